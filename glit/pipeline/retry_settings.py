"""What ``glit retry --set`` may change, and the work folder as a retry sees it."""

from __future__ import annotations

import dataclasses

from glit.errors import UserError
from glit.pipeline.lock import lock_of
from glit.pipeline.plan import make_plan, read_beside
from glit.pipeline.state import Retry
from glit.pipeline.work import Work
from glit.stages.recipe import overridden_tables, recipe_from_dict


def with_retry(work: Work, retry: Retry, device: str) -> Work:
    """The same tables in a retry, by its settings.

    Raises:
        UserError: they change more than how a dropped sample is tried.
    """
    if not retry.settings:
        return dataclasses.replace(work, retry=retry)
    settings = retry.settings
    tables = overridden_tables(settings)
    changeable = {step.name for step in work.plan.flow.steps if step.retryable}
    if other := tables.keys() - changeable:
        raise UserError(
            f"--set {min(other)}.…: a retry changes only {', '.join(sorted(changeable))}; the "
            "rest holds for the whole dataset, so build it anew with glit build --set"
        )
    if "near_duplicates" in tables.get("ingest", {}):
        raise UserError(
            "--set ingest.near_duplicates: it decides of all images and not of dropped ones alone; "
            "build it anew with glit build --set"
        )
    if deciding := sorted({"kinds", "short"} & tables.get("caption", {}).keys()):
        raise UserError(
            f"--set caption.{deciding[0]}: it decides which columns the dataset has; build it "
            "anew with glit build --set"
        )
    if switched := [name for name, table in tables.items() if "enabled" in table]:
        raise UserError(
            f"--set {switched[0]}.enabled: it decides which steps the dataset has; build it anew "
            "with glit build --set"
        )
    values = work.plan.recipe.as_dict()
    values = {**values, **{name: {**values[name], **table} for name, table in tables.items()}}
    plan = make_plan(
        recipe_from_dict(values),
        device=device,
        brought=work.plan.brought,
        regions=work.plan.regions,
        lock=lock_of(work.store),
    )
    if read_beside(plan.recipe) != read_beside(work.plan.recipe):
        raise UserError(
            f"--set {' '.join(settings)}: reads other files beside the images, which the whole "
            "dataset would have to be made with; build it anew with glit build --set"
        )
    before = {role: model.identity() for role, model in work.plan.models.items()}
    if {role: model.identity() for role, model in plan.models.items()} != before:
        raise UserError(
            f"--set {' '.join(settings)}: another model, which the whole dataset would have to be "
            "made with; build it anew with glit build --set"
        )
    plan = dataclasses.replace(plan, fingerprints=work.plan.fingerprints)
    return dataclasses.replace(work, plan=plan, retry=retry)
