"""The flow of a build: which stage needs which, what each runs with, and its fingerprint.

A fingerprint hashes a stage's configuration, its model's identity, its code version and the
fingerprints upstream. It names the stage's folder, so a change redoes what depends on it and
nothing else, and nothing stale is ever picked up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glit.backends.proposers import DETECTORS, READERS
from glit.backends.weights import Resolved, resolve
from glit.config import identity
from glit.errors import RecipeError
from glit.recipe import Recipe
from glit.resources import default_prompt
from glit.stages import caption, dedup, ingest, match, pack, propose, split
from glit.stages.base import Stage
from glit.stages.brought import BroughtCaptions

STAGES: tuple[str, ...] = ("ingest", "caption", "split", "propose", "match")
"""In the order a sample meets them."""

NEEDS: dict[str, tuple[str, ...]] = {
    "ingest": (),
    "caption": ("ingest",),
    "split": ("caption",),
    "propose": ("ingest",),
    "match": ("split", "propose"),
    "pack": ("match",),
}
"""Whose tables a stage reads; proposals do not wait for captions, so either can change alone."""

VERSIONS: dict[str, int] = {
    "ingest": ingest.VERSION + dedup.VERSION,
    "caption": caption.VERSION,
    "split": split.VERSION,
    "propose": propose.VERSION,
    "match": match.VERSION,
    "pack": pack.VERSION,
}
"""Raised whenever a stage's code would answer differently for the same input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A recipe with its models found, its prompt read and its fingerprints made. Picklable."""

    recipe: Recipe
    models: Mapping[str, Resolved]
    """By role: captioner, proposer, matcher, tokenizer."""
    prompt: str
    brought: BroughtCaptions | None = None
    captions_sha256: str = ""
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    def folder(self, stage: str) -> str:
        """Name of the stage's folder of tables."""
        return f"{stage}-{self.fingerprints[stage]}"


def make_plan(
    recipe: Recipe, *, brought: BroughtCaptions | None = None, captions_sha256: str = ""
) -> Plan:
    """Find the models of a recipe and compute the fingerprints.

    Raises:
        RecipeError: captions are wanted but none were given, or the prompt file is missing.
        WeightsError: a model is missing or incomplete.
    """
    if recipe.caption.backend == "provided" and brought is None:
        raise RecipeError(
            "caption.backend = 'provided' wants the captions: add --captions FILE "
            "(.jsonl, .csv or .parquet keyed by path), or use caption.backend = 'sidecar'"
        )
    plan = Plan(
        recipe=recipe,
        models=_find_models(recipe),
        prompt=_read_prompt(recipe.caption.prompt),
        brought=brought,
        captions_sha256=captions_sha256,
    )
    return Plan(
        recipe=plan.recipe,
        models=plan.models,
        prompt=plan.prompt,
        brought=plan.brought,
        captions_sha256=plan.captions_sha256,
        fingerprints=_fingerprints(plan),
    )


def sidecars(recipe: Recipe) -> dict[str, str]:
    """Suffixes of the files beside the images that a recipe reads, by the stage that does."""
    found = {}
    if recipe.caption.backend == "sidecar":
        found["caption"] = ".txt"
    if recipe.propose.backend in READERS:
        found["propose"] = ".json"
    return found


def _find_models(recipe: Recipe) -> dict[str, Resolved]:
    models = {"matcher": resolve(recipe.match.model, recipe.match.revision)}
    if recipe.caption.backend in ("vllm", "transformers"):
        models["captioner"] = resolve(recipe.caption.model, recipe.caption.revision)
    if recipe.propose.backend != "grid" and recipe.propose.backend not in READERS:
        models["proposer"] = resolve(recipe.propose.model, recipe.propose.revision)
    models["tokenizer"] = (
        resolve(recipe.split.tokenizer) if recipe.split.tokenizer else models["matcher"]
    )
    return models


def _read_prompt(file: str) -> str:
    path = Path(file) if file else default_prompt()
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"[caption] prompt: {path} cannot be read ({error})") from error


def _fingerprints(plan: Plan) -> dict[str, str]:
    recipe, models = plan.recipe, plan.models
    extra: dict[str, Any] = {
        "ingest": {},
        "caption": {
            "model": _who(models.get("captioner")),
            "prompt": plan.prompt,
            "splitter": [recipe.split.splitter, recipe.split.language],  # trims cut captions
            "brought": plan.captions_sha256,
        },
        "split": {"tokenizer": _who(models["tokenizer"])},
        "propose": {"model": _who(models.get("proposer"))},
        "match": {"model": _who(models["matcher"])},
        "pack": {},
    }
    found: dict[str, str] = {}
    for stage in (*STAGES, "pack"):
        parts = {
            "stage": stage,
            "version": VERSIONS[stage],
            "config": identity(getattr(recipe, stage)),
            "extra": extra[stage],
            "precision": _precision(getattr(recipe, stage)),
            "upstream": [found[name] for name in NEEDS[stage]],
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        found[stage] = hashlib.sha256(text.encode()).hexdigest()[:12]
    return found


def _precision(config: Any) -> str:
    """What ``precision = "auto"`` comes to on this machine: results of two must not mix."""
    if getattr(config, "precision", "") != "auto":
        return ""
    try:
        import torch
    except ImportError:
        return "float32"
    on_gpu = torch.cuda.is_available() and config.device in ("auto", "cuda")
    return "bfloat16" if on_gpu and getattr(config, "backend", "") != "sam" else "float32"


def _who(model: Resolved | None) -> dict[str, str]:
    return {} if model is None else model.identity()


def upstream(stage: str) -> tuple[str, ...]:
    """Every stage before this one that it depends on, in flow order, without ingest."""
    wanted: set[str] = set()
    waiting = list(NEEDS[stage])
    while waiting:
        name = waiting.pop()
        wanted.add(name)
        waiting += NEEDS[name]
    return tuple(name for name in STAGES if name in wanted and name != "ingest")


def open_stage(name: str, plan: Plan) -> Stage:
    """Make a stage with its model loaded; the expensive part of starting a worker."""
    recipe, models = plan.recipe, plan.models
    if name == "caption":
        return _open_caption(plan)
    if name == "split":
        from glit.backends.tokenizer import TextTokenizer

        return split.SplitStage(recipe.split, TextTokenizer(models["tokenizer"].path))
    if name == "propose":
        if read := READERS.get(recipe.propose.backend):
            return propose.ShippedRegionsStage(recipe.propose, read(recipe.propose))
        kind = recipe.propose.backend.removesuffix("+grid")
        make = DETECTORS.get(kind)
        detector = make(recipe.propose, models["proposer"]) if make else None
        return propose.ProposeStage(recipe.propose, detector)
    assert name == "match", name
    from glit.backends.matchers.clip import ClipMatcher

    return match.MatchStage(recipe.match, ClipMatcher(recipe.match, models["matcher"]))


def _open_caption(plan: Plan) -> Stage:
    from glit.backends.captioners import CAPTIONERS

    config = plan.recipe.caption
    if config.backend == "sidecar":
        return caption.BroughtCaptionStage(BroughtCaptions(name="sidecar", table=""))
    if config.backend == "provided":
        assert plan.brought is not None
        return caption.BroughtCaptionStage(plan.brought)
    model = plan.models.get("captioner")
    return caption.CaptionStage(
        config,
        CAPTIONERS[config.backend](config, model, plan.prompt),
        model=config.model,
        revision=model.revision if model else "",
        prompt=plan.prompt,
        splitter=split.make_splitter(plan.recipe.split.splitter, plan.recipe.split.language),
    )
