"""Open and check a run's model, tokenizer and dataset before training."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch

from glit.dataset.mini_models import shows_scenes
from glit.dataset.reader import Dataset
from glit.dataset.row_checks import is_grounded_schema
from glit.errors import DatasetError, InputError, RecipeError, WeightsError
from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.image_processor import Preprocessing, read_preprocessing
from glit.models.clip.kinds import OpenedModel, assemble, open_model
from glit.models.clip.model_types import is_naflex, is_siglip
from glit.models.clip.runs import find_model, refuse_own_encoders
from glit.models.device import has_bfloat16, warn_if_slow
from glit.models.tokenizer import TextTokenizer, tokenizer_hash
from glit.models.weights import is_mini
from glit.runtime.cores import unused_allocation
from glit.training.captions import check_captions
from glit.training.checkpoint import read_module
from glit.training.config import TrainConfig
from glit.training.decode_processes import IS_SUPPORTED
from glit.training.loader import BatchLoader
from glit.training.lora import add_adapters, read_adapters
from glit.training.mixture import Mixture
from glit.training.model import TrainedModel
from glit.training.module import EncodingModule, ObjectiveModule
from glit.training.objective import Objective
from glit.training.objectives import OBJECTIVES
from glit.training.run_file import dataset_hash
from glit.training.towers import lock_towers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """Everything a run needs in addition to its configuration."""

    model: TrainedModel
    objective: Objective
    loader: BatchLoader
    tokenizer: TextTokenizer
    start: Path
    """Folder of the model training started from."""
    preprocessing: Preprocessing


def mixed_precision(wanted: str, device: str) -> Literal["no", "bf16", "fp16"]:
    """Resolve ``train.precision`` for a device: ``auto`` is bf16 on a GPU that supports it."""
    if wanted == "auto":
        return "bf16" if device == "cuda" and has_bfloat16(device) else "no"
    warn_if_slow(wanted, device, where="train.precision")
    return cast(Literal["no", "bf16", "fp16"], wanted)


def prepare(
    config: TrainConfig,
    dataset: str,
    *,
    rank: int = 0,
    num_ranks: int = 1,
    checkpoint: Path | None = None,
    pin_memory: bool = False,
) -> Ingredients:
    """Load and check everything.

    Args:
        config: the run's configuration.
        dataset: folder or address of a finished dataset.
        rank: this process.
        num_ranks: processes of the run.
        checkpoint: weights to go on from, in place of the starting model's.
        pin_memory: page-locked batches, for a GPU; images are decoded in processes.

    Raises:
        InputError: the dataset cannot feed this objective or batch size.
        WeightsError: the model's tokenizer is not the one the dataset's spans were made with.
    """
    if rank == 0 and (told := unused_allocation()):
        warnings.warn(told, stacklevel=2)
    objective = config.make_objective()
    start = find_model(config.model).folder
    refuse_own_encoders(start, config.model)
    if is_naflex(start):
        raise RecipeError(
            f"train.model = {config.model!r}: a NaFlex model, whose images keep their shape, is "
            "measured and matched alone; give a CLIP, or a SigLIP of fixed size"
        )
    if is_siglip(start):
        _check_siglip_suffices(config, objective)
    parts = [Dataset(path, image_root=config.image_root) for path in (dataset, *config.also)]
    mixture = Mixture(parts, config.weights)
    _check_fit(config, mixture, objective)
    _check_apart(config, mixture)
    check_captions(config, mixture, objective)
    if rank == 0:
        _warn_of_mini(config, dataset, parts)
    if objective.needs.pooled_tokens:
        for part in parts:
            check_tokenizer(part, config.model, start)
    opened = _opened(config, objective, start, checkpoint)
    encoder, found, tokenizer = opened.encoder, opened.preprocessing, opened.tokenizer
    module = _own_module(config, objective, encoder)
    if module is None and not any(p.requires_grad for p in encoder.parameters() if p.numel() > 1):
        raise RecipeError(
            "train.lock_image and train.lock_text: both together leave nothing to train but the "
            "logit scale; leave one out, or set train.unlocked_blocks"
        )
    if checkpoint is not None and module is not None:
        read_module(checkpoint, module)
    if config.batch_size % num_ranks:
        raise RecipeError(
            f"train.batch_size = {config.batch_size} does not divide among {num_ranks} "
            f"processes; set it to a multiple of {num_ranks}"
        )
    loader = BatchLoader(
        mixture,
        objective,
        lambda texts: tokenizer.encode_closed(texts, context=config.context),
        config,
        side=encoder.side,
        pad_id=tokenizer.end_id,
        patch_size=encoder.patch_size,
        rank=rank,
        num_ranks=num_ranks,
        pin_memory=pin_memory,
        processes=pin_memory and IS_SUPPORTED,
    )
    model = TrainedModel(encoder, objective, module)
    _to_own_memory(model)
    return Ingredients(
        model=model,
        objective=objective,
        loader=loader,
        tokenizer=tokenizer,
        start=start,
        preprocessing=Preprocessing(mean=found.mean, std=found.std, fit=config.image_fit),
    )


def _warn_of_mini(config: TrainConfig, dataset: str, parts: list[Dataset]) -> None:
    """Warn where a mini model is trained on photographs."""
    if is_mini(config.model) and not all(map(shows_scenes, parts)):
        warnings.warn(
            f"{config.model} learned glit's procedural scenes alone, and the images of {dataset} "
            "look otherwise, so what is learned here means little; give a CLIP for photographs "
            "with --set train.model=FOLDER",
            stacklevel=3,
        )


def _to_own_memory(model: torch.nn.Module) -> None:
    """Copy weights out of the file that they are mapped from.

    In the file they begin at any byte, which depends on its header. Products with a batch of one
    sample add up in another order then, so that a resumed run would differ in the last digit.
    """
    for weight in {*model.parameters(), *model.buffers()}:
        weight.data = weight.data.clone()


def _own_module(
    config: TrainConfig, objective: Objective, encoder: ClipEncoder
) -> ObjectiveModule | None:
    """The objective's module, drawn from the run's seed, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        module = objective.module(encoder)
    if objective.own_encoders and not isinstance(module, EncodingModule):
        raise RecipeError(
            f"train.objective = {config.objective!r}: has own_encoders, so its module() has to "
            f"return a glit.training.module.EncodingModule, not {type(module).__name__}"
        )
    return module


def _opened(
    config: TrainConfig, objective: Objective, start: Path, checkpoint: Path | None
) -> OpenedModel:
    """The model with its text window; weights that are not trained are frozen."""
    _check_towers(config, objective)
    model = open_model(start if config.lora_rank else checkpoint or start)
    found = read_preprocessing(start)  # of any size: train.image_fit makes the squares
    opened = assemble(model, found, start, context=config.context)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    lock_towers(model, config)
    if config.lora_rank:
        add_adapters(model, config)
        if checkpoint is not None:
            read_adapters(checkpoint, model)
    if objective.own_encoders:
        opened.encoder.requires_grad_(False)
    return opened


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


def _check_fit(config: TrainConfig, dataset: Mixture, objective: Objective) -> None:
    if config.batch_size > len(dataset):
        raise InputError(
            f"{dataset.path}: train.batch_size = {config.batch_size} is larger than the "
            f"dataset's {len(dataset)} samples; add --set train.batch_size={len(dataset)}, or less"
        )
    alone = not any(part.manifest.recipe.has_regions for part in dataset.parts)
    if objective.needs.num_local and alone:
        fit = ", ".join(name for name, kind in OBJECTIVES.items() if not kind().needs.num_local)
        raise InputError(
            f"{dataset.path}: a dataset of captions alone, and train.objective = "
            f"{config.objective!r} learns from regions; take one of {fit}, or build it with "
            "propose.enabled = true"
        )
    wanted = config.pairs != "best" or config.min_probability
    bare = [part.path for part in dataset.parts if not part.manifest.calibration]
    if wanted and bare:
        raise InputError(
            f"{bare[0]}: its pairs have no probability, which train.pairs = "
            f"{config.pairs!r} and train.min_probability = {config.min_probability} ask for; "
            "give a dataset whose pairs are calibrated (docs/pairs.md)"
        )
    without = [part.path for part in dataset.parts if "negatives" not in part.schema.names]
    if objective.needs.num_negatives and without:
        raise InputError(
            f"{without[0]}: has no false sentences, which train.objective = {config.objective!r} "
            "learns from; build it with --set negatives.enabled=true"
        )
    if config.patches == "mask":
        _check_masks(config, dataset, objective)
    if objective.needs.num_local and config.local != "sentence":
        _check_phrases(config, dataset, objective)
    elif objective.needs.num_local and not _has_local_pairs(dataset, config.min_probability):
        raise InputError(
            f"{dataset.path}: no sample has a local pair, and train.objective = "
            f"{config.objective!r} learns from them; use --objective clip, or give a dataset "
            "whose regions passed the rule of pairing"
        )


def _check_phrases(config: TrainConfig, dataset: Mixture, objective: Objective) -> None:
    without = [part.path for part in dataset.parts if not is_grounded_schema(part.schema)]
    if without:
        raise InputError(
            f"{without[0]}: has no phrases, which train.local = {config.local!r} learns from; "
            "build it with --set ground.enabled=true"
        )
    if config.local == "phrase" and objective.needs.num_negatives:
        raise RecipeError(
            f"train.local = 'phrase': train.objective = {config.objective!r} learns from false "
            "sentences, which phrases have none of; take train.local=both"
        )
    groups = (
        dataset.row_group(number, columns=["groundings"]) for number in range(len(dataset.places))
    )
    if not any(len(group.groundings["phrase"]) for group in groups):
        raise InputError(
            f"{dataset.path}: no phrase has a region, and train.local = {config.local!r} learns "
            "from them; take train.local=sentence, or build it with another grounder"
        )


def _check_masks(config: TrainConfig, dataset: Mixture, objective: Objective) -> None:
    if not objective.needs.pooled_patches:
        fit = sorted(name for name, kind in OBJECTIVES.items() if kind().needs.pooled_patches)
        raise RecipeError(
            f"train.patches = 'mask': train.objective = {config.objective!r} pools no patches of "
            f"regions; leave it out, or take one of {', '.join(fit)}"
        )
    for part in dataset.parts:
        if not _has_masks(part):
            raise InputError(
                f"{part.path}: no region has a mask, which train.patches = 'mask' asks for; build "
                "it with --set propose.keep_masks=true"
            )


def _has_masks(dataset: Dataset) -> bool:
    """Return whether any region has a mask; stops at the first row group in which one has."""
    if "masks" not in dataset.schema.names:
        return False
    groups = (dataset.row_group(n, columns=["masks"]).masks for n in range(len(dataset.places)))
    return any(masks is not None and len(masks["region"]) for masks in groups)


def _check_towers(config: TrainConfig, objective: Objective) -> None:
    keys = ("lock_image", "lock_text", "image_lr", "text_lr", "lora_rank")
    named = [name for name in keys if getattr(config, name)]
    if named and objective.own_encoders:
        raise RecipeError(
            f"train.{named[0]}: train.objective = {config.objective!r} has encoders of its own and "
            "trains neither of CLIP's towers; leave it out"
        )


def _check_siglip_suffices(config: TrainConfig, objective: Objective) -> None:
    """Refuse a SigLIP start for an objective that wants more of it than there is."""
    if not siglip_suffices(objective):
        fit = sorted(name for name, kind in OBJECTIVES.items() if siglip_suffices(kind()))
        more = ", set train.pool_tokens=false" if config.objective == "glit" else ""
        raise RecipeError(
            f"train.objective = {config.objective!r}: looks at CLIP's tokens or widths, and "
            f"{config.model} is a SigLIP model, which has none; take one of {', '.join(fit)}"
            f"{more}, or start from a CLIP model"
        )


def siglip_suffices(objective: Objective) -> bool:
    """Return whether an objective uses only what SigLIP models have: embeddings, and patches of
    images."""
    needs = objective.needs
    return not (objective.own_encoders or needs.pooled_tokens or needs.tokens)


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


def _has_local_pairs(dataset: Mixture, min_probability: float) -> bool:
    """Return whether any sample has a usable local pair; stop at the first row group with one."""
    for number in range(len(dataset.places)):
        pairs = dataset.row_group(number, columns=["pairs"]).pairs
        local = ~pairs["global_wins"]
        if min_probability:
            local &= pairs["probability"] >= min_probability
        if local.any():
            return True
    return False
