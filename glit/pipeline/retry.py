"""Only the drops once more: what succeeds is merged back and goes on through the flow.

New tables are written beside the finished ones and put in place at the end, the last stage
first, so that a kill at any moment leaves tables that fit together.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from glit.dataset.manifest import MANIFEST, manifest_before
from glit.errors import UserError
from glit.executors.protocols import Executor, Job, Tally
from glit.pipeline.build_lock import LockCheck, only_one_build
from glit.pipeline.duplicates import forget_duplicates, leave_out_duplicates
from glit.pipeline.listing import Chunk
from glit.pipeline.open_work import (
    complete,
    finished_work,
    in_dataset,
    is_made_of,
    lock_of,
    not_finished,
    read_listing,
    work_folder,
)
from glit.pipeline.plan import make_plan, read_beside
from glit.pipeline.publish import publish
from glit.pipeline.retries import note_retry, retries
from glit.pipeline.retry_task import RetryTask, RetryUnit
from glit.pipeline.run import run_stages, with_table_repair
from glit.pipeline.timeline import Timed
from glit.pipeline.versions import note_versions
from glit.pipeline.work import RETRY_MARK, Work
from glit.runtime.progress import StageProgress
from glit.stages import all_reasons, all_steps
from glit.stages.dedup import Duplicate
from glit.stages.pack import Pack
from glit.stages.recipe import overridden_tables, recipe_from_dict
from glit.storage.outputs import output_folder
from glit.storage.store import Store, to_json

_IN_PLACE = f"in-place{RETRY_MARK}"


def retry(
    output: str,
    executor: Executor,
    progress: StageProgress,
    *,
    stage: str | None = None,
    reason: str | None = None,
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """Try dropped samples again and rebuild the data files; the new manifest.

    Args:
        output: a dataset whose stages are all done and whose ``work/`` is still there.
        executor: where to run.
        progress: what to tell.
        stage: only drops of this stage; None takes all.
        reason: only drops for this reason; None takes all.
        settings: ``table.key=value`` words that hold for what is tried again, and for nothing else;
            the manifest keeps them.

    Raises:
        UserError: no such stage or reason, a setting that would not fit the rest, nothing to
            resume from, or a file.
    """
    stages, reasons = [step.name for step in all_steps() if step is not Pack], all_reasons()
    if stage is not None and stage not in stages:
        raise UserError(f"--stage {stage!r}: want one of {', '.join(stages)}")
    if reason is not None and reason not in reasons:
        raise UserError(f"--reason {reason!r}: want one of {', '.join(reasons)}")
    dataset = Store(output_folder(output))
    store = work_folder(dataset)
    executor = Timed(executor, store)
    with only_one_build(store, keep_retry=True) as still_held:
        finished = finished_work(store, executor.device)
        changed = _changed(finished, settings, executor.device)
        listed = in_dataset(dataset, store, read_listing(store, wanted_by="retry"))
        retries(finished)  # damaged notes are told before the work, not after it
        manifest = manifest_before(dataset)
        if manifest is not None and not is_made_of(manifest, finished, listed):
            raise not_finished(store, wanted_by="retry")

        note_versions(finished)
        asked = {"stage": stage, "reason": reason, "settings": list(settings)}
        _finish_interrupted(finished)

        def retried() -> dict[str, Any]:
            if _in_place(store) == asked:  # a retry that was stopped after its last sample
                now, duplicates = leave_out_duplicates(finished, listed)
            else:
                store.sweep(RETRY_MARK)
                now, duplicates = _retried(
                    finished, changed, listed, executor, progress, still_held,
                    stage=stage, reason=reason, settings=settings,
                )  # fmt: skip
            made = publish(dataset, finished, now, duplicates, executor, progress, still_held)
            store.remove(_IN_PLACE)
            return made

        again = partial(run_stages, finished, listed, executor, progress, still_held)
        if dataset.exists(MANIFEST):
            again()  # nothing, unless a table was lost since
        else:
            complete(finished, listed, wanted_by="retry")
        return with_table_repair(finished, progress, retried, before=again)


def _retried(
    finished: Work,
    changed: Work,
    listed: list[Chunk],
    executor: Executor,
    progress: StageProgress,
    still_held: LockCheck,
    *,
    stage: str | None,
    reason: str | None,
    settings: Sequence[str],
) -> tuple[list[Chunk], list[Duplicate]]:
    """The chunks with their tables merged, and the duplicates among them."""
    before = complete(finished, listed, wanted_by="retry")
    overlay = dataclasses.replace(changed, overlay=True)
    _again("ingest", overlay, [RetryUnit(now=c, before=c) for c in before], executor, progress,
           stage=stage, reason=reason)  # fmt: skip
    now, duplicates = leave_out_duplicates(overlay, listed)
    units = [RetryUnit(now=n, before=b) for n, b in zip(now, before, strict=True)]
    for name in finished.plan.flow.stages:
        _again(name, overlay, units, executor, progress, stage=stage, reason=reason)
    still_held()
    if settings:  # before they hold for anything: a kill must not leave samples without the note
        note_retry(changed, settings, stage=stage, reason=reason)
    asked = {"stage": stage, "reason": reason, "settings": list(settings)}
    finished.store.write(_IN_PLACE, to_json(asked))
    _put_in_place(finished)
    return now, duplicates


def _changed(work: Work, settings: Sequence[str], device: str) -> Work:
    """The same tables by other settings.

    Raises:
        UserError: they change more than how a dropped sample is tried.
    """
    if not settings:
        return work
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
    values = work.plan.recipe.as_dict()
    values = {**values, **{name: {**values[name], **table} for name, table in tables.items()}}
    plan = make_plan(
        recipe_from_dict(values),
        device=device,
        brought=work.plan.brought,
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
    return dataclasses.replace(
        work, plan=dataclasses.replace(plan, fingerprints=work.plan.fingerprints)
    )


def _again(
    name: str,
    work: Work,
    units: list[RetryUnit],
    executor: Executor,
    progress: StageProgress,
    *,
    stage: str | None,
    reason: str | None,
) -> None:
    task = RetryTask(name=name, work=work, selected=stage in (None, name), reason=reason)
    touched = [unit for unit in units if _concerns(task, unit, work)]
    total = sum(map(task.num_todo, touched))

    def done(unit: RetryUnit, tally: Tally) -> None:
        progress.finished(unit, tally.rows, sum(tally.drops.values()))

    job = Job(
        task=task,
        units=touched,
        on_done=done,
        begin=lambda: progress.begin(name, total=total, done=0),
        watch=progress,
    )
    executor.run([job])


def _concerns(task: RetryTask, unit: RetryUnit, work: Work) -> bool:
    """Whether a chunk has drops to retry here, or was touched by an earlier stage."""
    _, drops = work.counts(task.name, [unit.before])
    if any(task.wanted({"reason": reason}) for reason in drops):
        return True
    tables = work.plan.flow.tables
    earlier = tables[: tables.index(task.name)]
    return unit.now != unit.before or any(
        work.table(name, unit.now).endswith(RETRY_MARK) for name in earlier
    )


def _in_place(store: Store) -> dict[str, Any] | None:
    """What the retry was asked for whose tables are all written, and are being put in place or in
    place already; None where there is no such retry.

    Were its drops tried again, they would count one attempt more than was published.
    """
    if not store.exists(_IN_PLACE):
        return None
    try:
        return json.loads(store.read(_IN_PLACE))
    except ValueError:
        return None


def _finish_interrupted(finished: Work) -> None:
    """Put the rest of the tables in place, where a retry was stopped while it did."""
    if _in_place(finished.store) is not None:
        _put_in_place(finished)


def _put_in_place(finished: Work) -> None:
    """The retry's tables in the place of those before; by chunk, the last stage first."""
    store = finished.store
    forget_duplicates(finished)
    written: dict[str, list[str]] = {}
    for stage in reversed(finished.plan.flow.tables):
        folder = finished.plan.folder(stage)
        for name in sorted(store.names(folder)):
            if name.endswith(RETRY_MARK):
                written.setdefault(name.partition("-")[0], []).append(f"{folder}/{name}")
    ledgers = finished.ledger_folder
    for name in store.names(ledgers):
        if name.partition("-")[0] in written:  # it tells of the tables before
            store.remove(f"{ledgers}/{name}")
    for _, tables in sorted(written.items()):
        for table in tables:
            store.move(table, table.removesuffix(RETRY_MARK))
