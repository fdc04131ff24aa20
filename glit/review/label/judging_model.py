"""Open the vision-language model that judges, as a captioner of glit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from glit.dataset.certificate import items_of
from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError
from glit.models.backends.captioners import CAPTIONERS
from glit.models.weights import resolve
from glit.pipeline.planning.recipe import overridden_tables, read_tables
from glit.plain import MisfitError, from_plain
from glit.recipes.config import build_dataclass
from glit.recipes.toml_tables import naming_file
from glit.review.label.judge import LONGEST_SIDE, JudgeTally, judge, prompt_sha256
from glit.stages.caption import CaptionConfig
from glit.verdicts.judged import Judging
from glit.verdicts.record import Claim

_BACKENDS = ("endpoint", "vllm")


def judge_with(
    dataset: Dataset,
    judged: Path,
    *,
    recipe: str | None,
    settings: Sequence[str],
    of: str,
    where: str,
    num: int | None,
    report: Callable[[int], None] = lambda number: None,
) -> JudgeTally:
    """Ask the model of a recipe about a dataset; see :func:`glit.judge`.

    Raises:
        GlitError: see there.
    """
    config = _config(recipe, settings)
    try:
        claim = from_plain(Claim, {"of": of, "where": where})
    except MisfitError as error:
        raise InputError(f"a judge {error}") from error
    if claim.of == "repairs":
        raise InputError("a judge is asked about pairs, sentences, phrases or boxes")
    backend = CAPTIONERS[config.backend]
    items = items_of(dataset, claim)
    found = resolve(config.model, config.revision) if backend.needs_model else None
    judging = Judging(
        of=claim.of, where=where, items_sha256=items.sha256, model=config.model,
        revision=found.revision if found else "", backend=config.backend,
        prompt_sha256=prompt_sha256(),
    )  # fmt: skip
    model = backend.make(config, found, "")
    return judge(
        dataset, judged, claim=claim, model=model, judging=judging,
        structured=config.structured, most=num, report=report,
    )  # fmt: skip


def _config(recipe: str | None, settings: Sequence[str]) -> CaptionConfig:
    """The ``[caption]`` table, for a model that is asked one question at a time.

    Raises:
        RecipeError: a key cannot be, is of another table, or the backend asks no questions.
    """
    for word in settings:
        if not word.startswith("caption."):
            raise RecipeError(f"--set {word}: only keys of [caption] can be set here")
    with naming_file(recipe):
        if recipe is None:
            values = overridden_tables(settings).get("caption", {})
        else:
            values = read_tables(recipe, overrides=settings).get("caption", {})
        config = build_dataclass(CaptionConfig, values, where="[caption]")
    if config.backend not in _BACKENDS:
        raise RecipeError(
            f"[caption] backend: {config.backend!r} cannot be asked; take --set "
            f"caption.backend={' or '.join(_BACKENDS)}"
        )
    if "max_image_side" in overridden_tables(settings).get("caption", {}):
        return config
    return replace(config, max_image_side=LONGEST_SIDE)  # a recipe's is meant for one picture
