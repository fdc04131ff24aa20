"""From a recipe to a plan: models found, devices and precisions decided, fingerprints made.

A fingerprint hashes a step's configuration, its models' identity, its code version and the
fingerprints upstream. It names the step's folder, so a change redoes what depends on it and
nothing else, and nothing stale is ever picked up.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from glit.errors import MissingModelError, RecipeError, UserError, WeightsError
from glit.models.weights import Resolved, resolve
from glit.pipeline.planning.inputs import Inputs
from glit.pipeline.planning.lock import Lock
from glit.pipeline.planning.prompts import further_prompts, read_prompt
from glit.pipeline.planning.recipe import overridden_tables, recipe_from_dict
from glit.recipes.config import identity
from glit.recipes.extras import require_all
from glit.recipes.plugins import plugin_of
from glit.rules.calibration import find_calibration
from glit.stages import flow
from glit.stages.base import Step, parts_of
from glit.stages.pair import PairStage
from glit.stages.plan import Plan, Recipe


def make_plan(recipe: Recipe, inputs: Inputs, *, device: str) -> Plan:
    """Decide everything that a build needs to have decided before its first image is read.

    Args:
        recipe: as the user wrote it.
        inputs: the user's tables, and the lock whose commits of models are taken.
        device: the best one that the executor's workers have: ``cuda``, ``mps`` or ``cpu``.

    Raises:
        RecipeError: captions or regions are wanted but none were given, or the prompt file is
            missing.
        MissingExtraError: an optional package is not installed.
        WeightsError: a model is missing, incomplete, of a kind that is not loaded, or not the
            locked one.
        UserError: a step wants a device that no worker has.
    """
    enabled = flow(recipe.tables)
    suffixes, given = enabled.suffixes(recipe), enabled.given(recipe)
    if "captions" in given and inputs.captions is None:
        raise RecipeError(
            "caption.backend = 'provided' wants the captions: add --captions FILE "
            "(.jsonl, .csv or .parquet keyed by path), or use caption.backend = 'sidecar'"
        )
    if "regions" in given and inputs.regions is None:
        raise RecipeError(
            f"{given['regions']}.backend = 'provided' wants the regions: add --regions FILE "
            "(.jsonl, .csv, .parquet or COCO's .json), or use propose.backend = 'file' for "
            "NAME.json beside images"
        )
    require_all(enabled.extras(recipe))
    models = find_models(recipe.name, enabled.models(recipe), lock=inputs.lock)
    tables = {s.name: s.with_models(recipe.tables[s.name], models) for s in enabled.steps}
    recipe = dataclasses.replace(recipe, tables={**recipe.tables, **tables})
    configs = {step.name: _settled(step, recipe, models, device) for step in enabled.steps}
    plan = Plan(
        recipe=recipe,
        flow=enabled,
        configs=configs,
        models=models,
        prompt=read_prompt(recipe.caption),
        further_prompts=further_prompts(recipe.caption),
        calibration=(
            find_calibration(recipe.pair.calibration) if PairStage.name in enabled.stages else None
        ),
        brought=(
            inputs.captions and dataclasses.replace(inputs.captions, kinds=recipe.caption.kinds)
        ),
        regions=inputs.regions,
        suffixes=suffixes,
        beside=(*suffixes, *given.values()),
    )
    for step in enabled.steps:
        step.check(plan)
    return dataclasses.replace(plan, fingerprints=_fingerprints(plan))


def plan_retry(plan: Plan, inputs: Inputs, settings: Sequence[str], *, device: str) -> Plan:
    """The plan of a build with the settings of a retry. Its tables stay where they are.

    Args:
        plan: of the build.
        inputs: of the build.
        settings: ``table.key=value``, for the samples that are tried again.
        device: as in :func:`make_plan`.

    Raises:
        UserError: they change more than how a dropped sample is tried.
    """
    if not settings:
        return plan
    tables = overridden_tables(settings)
    changeable = {step.name for step in plan.flow.steps if step.retryable}
    if other := tables.keys() - changeable:
        raise UserError(
            f"--set {min(other)}.…: a retry changes only {', '.join(sorted(changeable))}; the "
            "rest holds for the whole dataset, so build it anew with glit build --set"
        )
    columns, steps = (f"it decides which {what} the dataset has" for what in ("columns", "steps"))
    decided = {
        "ingest.near_duplicates": "it decides of all images and not of dropped ones alone",
        "caption.kinds": columns,
        "caption.short": columns,
        **{f"{name}.enabled": steps for name in tables},
    }
    for setting, why in decided.items():
        table, _, key = setting.partition(".")
        if key in tables.get(table, {}):
            raise _of_whole_dataset(setting, why)
    values = overridden_tables(settings, of=plan.recipe.as_dict())
    retried = make_plan(recipe_from_dict(values), inputs, device=device)
    words, made_with = " ".join(settings), "which the whole dataset would have to be made with"
    if retried.beside != plan.beside:
        raise _of_whole_dataset(words, f"reads other files beside the images, {made_with}")
    before = {role: model.identity() for role, model in plan.models.items()}
    if {role: model.identity() for role, model in retried.models.items()} != before:
        raise _of_whole_dataset(words, f"another model, {made_with}")
    return dataclasses.replace(retried, fingerprints=plan.fingerprints)


def _of_whole_dataset(setting: str, why: str) -> UserError:
    """The error for a setting that a retry cannot change."""
    return UserError(f"--set {setting}: {why}; build it anew with glit build --set")


def find_models(
    recipe: str, wanted: Mapping[str, tuple[str, str]], *, lock: Lock | None = None
) -> dict[str, Resolved]:
    """The models of a recipe by their roles.

    Args:
        recipe: its name.
        wanted: names and revisions by role, as :meth:`Flow.models` gives them.
        lock: whose revisions are taken.

    Raises:
        WeightsError: of those that are not here all are named, each with the command that gets it.
    """
    if lock is not None:
        wanted = {
            role: (name, lock.revision(role, name) or revision)
            for role, (name, revision) in wanted.items()
        }
    found: dict[tuple[str, str], Resolved] = {}
    missing: list[tuple[str, MissingModelError]] = []
    for model in dict.fromkeys(wanted.values()):
        try:
            found[model] = resolve(*model)
        except MissingModelError as error:
            roles = " and ".join(role for role, each in wanted.items() if each == model)
            missing.append((roles, error))
    if missing:
        raise _missing(recipe, missing)
    models = {role: found[model] for role, model in wanted.items()}
    if lock is not None:
        lock.check(models)
    return models


def _missing(recipe: str, errors: Sequence[tuple[str, MissingModelError]]) -> WeightsError:
    if len(errors) == 1:
        ((roles, error),) = errors
        return WeightsError(f"{roles}: {error}")
    return WeightsError(
        f"recipe {recipe!r}: {len(errors)} of its models are not on this machine; get them on "
        "a connected one with:\n" + "\n".join(_fetch_line(roles, error) for roles, error in errors)
    )


def _fetch_line(roles: str, error: MissingModelError) -> str:
    """A line for a shell, with a comment that says what it gets."""
    if error.fetch:
        return f"  {error.fetch}  # {roles} {error.name!r}"
    return f"  # {roles} {error.name!r}: {error.reason}"


def _settled(step: Any, recipe: Recipe, models: Mapping[str, Resolved], device: str) -> Any:
    """A step's table with ``auto`` decided, once its backend has agreed to it."""
    config = recipe.tables[step.name]
    backend = step.backend(config)
    if backend is None:
        return config
    if backend.needs_model and config.device not in ("auto", "cpu", device):
        raise UserError(
            f"[{step.name}] device = {config.device!r}: no worker of this build has one "
            f"(the best here is {device!r}); use device = 'auto' or 'cpu'"
        )
    settled = backend.settled(config, device)
    if backend.check is not None:
        own = [models[role] for role in step.models(recipe)]
        backend.check(settled, own[0] if own else None)
    return settled


def _fingerprints(plan: Plan) -> dict[str, str]:
    found: dict[str, str] = {}
    for step in plan.flow.steps:
        config = plan.recipe.tables[step.name]
        auto = step.backend(config) is not None and config.precision == "auto"
        # what "auto" came to: results of two machines must not mix
        precision = plan.configs[step.name].precision if auto else ""
        found[step.name] = fingerprint(
            step,
            config,
            extra={**step.identity(plan), **_plugins_of(step, config)},
            upstream=[found[name] for name in plan.flow.direct[step.name]],
            precision=precision,
        )
    return found


def _plugins_of(step: type[Step], config: Any) -> dict[str, Any]:
    """The identities of the plugins whose parts a step uses, if it uses any."""
    found = [each.identity() for part in parts_of(step, config) if (each := plugin_of(part))]
    return {"plugins": found} if found else {}


def fingerprint(
    step: type[Step],
    config: Any,
    *,
    extra: Mapping[str, Any],
    upstream: Sequence[str],
    precision: str = "",
) -> str:
    """The fingerprint of a step.

    Args:
        step: of the flow.
        config: its table.
        extra: what decides its results beside its table.
        upstream: the fingerprints of the steps it builds on directly.
        precision: what ``precision = "auto"`` came to; empty where it was not asked.
    """
    parts = {
        "stage": step.name,
        "version": step.version,
        "config": identity(config),
        "extra": extra,
        "precision": precision,
        "upstream": list(upstream),
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
