"""Refuse runs whose dataset, model or keys do not give what the objective learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from glit.data.captions import SHORT, text_of_kind
from glit.data.schema import has_captions
from glit.dataset.reader import Dataset
from glit.dataset.row_checks import is_grounded_schema
from glit.errors import DatasetError, InputError, RecipeError, WeightsError
from glit.models.tokenizer import tokenizer_hash
from glit.training.config import TrainConfig
from glit.training.mixture import Mixture
from glit.training.objective import Objective
from glit.training.objectives import OBJECTIVES
from glit.training.run_file import dataset_hash

Has = Callable[[Dataset], bool]


def check_keys(config: TrainConfig, objective: Objective) -> None:
    """Refuse keys that the objective has no use for.

    Raises:
        RecipeError: names the key.
    """
    needs, by = objective.needs, f"train.objective = {config.objective!r}"
    towers = ("lock_image", "lock_text", "image_lr", "text_lr", "lora_rank")
    named = [name for name in towers if getattr(config, name)]
    if named and objective.own_encoders:
        raise RecipeError(
            f"train.{named[0]}: {by} has encoders of its own and trains neither of CLIP's towers; "
            "leave it out"
        )
    if config.patches == "mask" and not needs.pooled_patches:
        raise RecipeError(
            f"train.patches = 'mask': {by} pools no patches of regions; leave it out, or take one "
            f"of {_fitting(lambda kind: kind.needs.pooled_patches)}"
        )
    if needs.num_local and config.local == "phrase" and needs.num_negatives:
        raise RecipeError(
            f"train.local = 'phrase': {by} learns from false sentences, which phrases have none "
            "of; take train.local=both"
        )
    if config.caption != "long" and (needs.pooled_tokens or not needs.captions):
        raise RecipeError(
            f"train.caption = {config.caption!r}: {by} takes its sentences from the long caption "
            "as it is encoded; leave train.caption out"
        )


def check_dataset(config: TrainConfig, dataset: Mixture, objective: Objective) -> None:
    """Refuse datasets that lack what the run learns from, or that are given twice.

    Raises:
        InputError: names the dataset, what it lacks, who asks for it, and how to get it.
    """
    if config.batch_size > len(dataset):
        raise InputError(
            f"{dataset.path}: train.batch_size = {config.batch_size} is larger than the "
            f"dataset's {len(dataset)} samples; add --set train.batch_size={len(dataset)}, or less"
        )
    needs, by = objective.needs, f"train.objective = {config.objective!r}"
    local, caption = f"train.local = {config.local!r}", f"train.caption = {config.caption!r}"
    of_phrases = bool(needs.num_local) and config.local != "sentence"
    of_sentences = bool(needs.num_local) and config.local == "sentence"

    def passes(pairs: Any) -> bool:
        kept = ~pairs["global_wins"]
        if config.min_probability:
            kept &= pairs["probability"] >= config.min_probability
        return bool(kept.any())

    wanted: list[tuple[Any, Callable[[Iterable[bool]], bool], Has, str]] = [
        # asked for by these keys, of any part or of all, found by, what is lacking and what to do
        (needs.num_local, any, lambda part: part.manifest.recipe.has_regions,
         f"a dataset of captions alone, and {by} learns from regions; take one of "
         f"{_fitting(lambda kind: not kind.needs.num_local)}, or build it with propose.enabled = "
         "true"),
        (config.pairs != "best" or config.min_probability, all,
         lambda part: bool(part.manifest.calibration),
         f"its pairs have no probability, which train.pairs = {config.pairs!r} and "
         f"train.min_probability = {config.min_probability} ask for; give a dataset whose pairs "
         "are calibrated (docs/pairs.md)"),
        (needs.num_negatives, all, lambda part: "negatives" in part.schema.names,
         f"has no false sentences, which {by} learns from; build it with --set "
         "negatives.enabled=true"),
        (config.patches == "mask", all,
         lambda part: any_row(part, "masks", lambda each: each is not None and len(each["region"])),
         "no region has a mask, which train.patches = 'mask' asks for; build it with --set "
         "propose.keep_masks=true"),
        (of_phrases, all, lambda part: is_grounded_schema(part.schema),
         f"has no phrases, which {local} learns from; build it with --set ground.enabled=true"),
        (of_phrases, any, lambda part: any_row(part, "groundings", lambda e: len(e["phrase"])),
         f"no phrase has a region, and {local} learns from them; take train.local=sentence, or "
         "build it with another grounder"),
        (of_sentences, any, lambda part: any_row(part, "pairs", passes),
         f"no sample has a local pair, and {by} learns from them; use --objective clip, or give a "
         "dataset whose regions passed the rule of pairing"),
        (config.caption != "long", all, lambda part: has_captions(part.schema),
         f"has one caption an image, and {caption} chooses among several; build it with "
         "--captions of several kinds (docs/captions.md)"),
        (config.caption == "short", any, has_short,
         f"no image has a caption of the kind 'short', which {caption} takes"),
    ]  # fmt: skip
    for asked, quantifier, has, message in wanted:
        if asked and not quantifier(map(has, dataset.parts)):
            lacking = dataset if quantifier is any else next(p for p in dataset.parts if not has(p))
            raise InputError(f"{lacking.path}: {message}")
    _check_apart(config, dataset)


def any_row(dataset: Dataset, column: str, holds: Callable[[Any], Any]) -> bool:
    """Return whether any row group's column holds it; stops at the first that does."""
    return column in dataset.schema.names and any(
        holds(getattr(dataset.row_group(number, columns=[column]), column))
        for number in range(len(dataset.places))
    )


def has_short(dataset: Dataset) -> bool:
    """Return whether any image has a short caption; stops at the first row group that has one."""
    return has_captions(dataset.schema) and any(
        text_of_kind(captions, SHORT)
        for number in range(len(dataset.places))
        for captions in dataset.table(["captions"], row_group=number)["captions"].to_pylist()
    )


def short_text_note(config: TrainConfig, dataset: str) -> str:
    """Return the note on short texts that a run shows before it begins; empty where it has none."""
    objective = config.make_objective()
    if not (objective.takes_short and objective.needs.num_texts):
        return ""
    parts = [Dataset(path) for path in (dataset, *config.also)]
    having = [has_short(part) for part in parts]
    if objective.needs_short:
        some = "short texts: captions of the kind 'short'; none for images without one"
        return some if any(having) else ""
    if all(having):
        return "short texts: captions of the kind 'short'; the first sentence where there is none"
    where = "" if not any(having) else f" in {parts[having.index(False)].path}"
    return f"short texts: first sentences, as there are no captions of the kind 'short'{where}"


def _check_apart(config: TrainConfig, datasets: Mixture) -> None:
    """Refuse a dataset that is given twice, or is to be measured on."""
    seen: dict[str, str] = {}
    for part in datasets.parts:
        key = dataset_hash(part)
        if key in seen:
            raise InputError(
                f"{part.path}: holds the same data files as {seen[key]}; leave it out, and where "
                "its samples are to count more, say so in train.weights"
            )
        seen[key] = part.path
    if config.validation and dataset_hash(Dataset(config.validation)) in seen:
        raise InputError(
            f"{config.validation}: train.validation is the dataset that is trained on, so the best "
            "checkpoint would be the one that knows it by heart; give samples that are not trained"
        )


def check_tokenizer(dataset: Dataset, model: str, folder: Path) -> None:
    """Refuse a model whose tokenizer is not the one the dataset's token spans were made with."""
    theirs, ours = dataset.tokenizer, tokenizer_hash(folder)
    if not theirs:
        raise DatasetError(
            f"{dataset.path}: the data files do not say which tokenizer gave the token spans; "
            "rebuild the dataset with this version of glit"
        )
    if theirs["sha256"] != ours:
        raise WeightsError(
            f"model {model!r}: its tokenizer ({ours[:12]}) is not the one the token spans of "
            f"{dataset.path} were made with ({theirs['name']!r}, {theirs['sha256'][:12]}); "
            "train a model that has it, or rebuild the dataset with split.tokenizer set to "
            f"{model!r}"
        )


def check_siglip_suffices(config: TrainConfig, objective: Objective) -> None:
    """Refuse a SigLIP start for an objective that wants more of it than there is: embeddings, and
    patches of images."""

    def suffices(objective: Objective) -> bool:
        needs = objective.needs
        return not (objective.own_encoders or needs.pooled_tokens or needs.tokens)

    if not suffices(objective):
        more = ", set train.pool_tokens=false" if config.objective == "glit" else ""
        raise RecipeError(
            f"train.objective = {config.objective!r}: looks at CLIP's tokens or widths, and "
            f"{config.model} is a SigLIP model, which has none; take one of {_fitting(suffices)}"
            f"{more}, or start from a CLIP model"
        )


def _fitting(fits: Callable[[Objective], bool]) -> str:
    """Names of the objectives that fit, for a message."""
    return ", ".join(sorted(name for name, kind in OBJECTIVES.items() if fits(kind())))
