"""``glit retry``: dropped samples once more; what succeeds goes on through the flow.

The tables with such drops, and those made of them, become tables of rows so far. The flow then
finishes them like those of a build that was stopped: it makes the rows that are missing, and those
of drops that are retried. Until that is published the dataset is whole, and whatever stops it, the
same command goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from glit.dataset.manifest import MANIFEST, Manifest, manifest_before
from glit.errors import DamagedTableError, UserError
from glit.masking import without_secrets
from glit.pipeline.executors.protocols import Executor
from glit.pipeline.planning.plan import plan_retry
from glit.pipeline.planning.recipe import overridden_tables
from glit.pipeline.run import require_finished, run_and_publish, run_first_stage
from glit.pipeline.work.finished import in_dataset, is_made_of, not_finished, read_listing
from glit.pipeline.work.folder import Work
from glit.pipeline.work.listing import Chunk
from glit.pipeline.work.open_work import OpenWork, open_finished
from glit.pipeline.work.state import Retry, TriedSettings, read_state, update_state
from glit.pipeline.work.tables import sum_counts
from glit.runtime.progress import StageProgress
from glit.stages import all_reasons, all_steps
from glit.stages.pack import Pack


def retry(
    output: str,
    executor: Executor,
    progress: StageProgress,
    *,
    stage: str | None = None,
    reason: str | None = None,
    settings: Sequence[str] = (),
) -> Manifest:
    """The work of :func:`glit.api.retry`; the new manifest, which keeps the settings.

    Raises:
        UserError: no such stage or reason, a setting that would not fit the rest, nothing to resume
            from, or a file.
    """
    stages, reasons = [step.name for step in all_steps() if step is not Pack], all_reasons()
    for option, given, known in (("stage", stage, stages), ("reason", reason, reasons)):
        if given is not None and given not in known:
            raise UserError(f"--{option} {given!r}: want one of {', '.join(known)}")
    asked = Retry(stage=stage, reason=reason, settings=tuple(map(_written, settings)))
    with open_finished(output, executor, progress) as opened:
        dataset, finished, store = opened.dataset, opened.work, opened.work.store
        state = read_state(store)
        plan = plan_retry(finished.plan, opened.inputs, settings, device=executor.device)
        work = dataclasses.replace(finished, plan=plan, retry=asked)
        listed = in_dataset(dataset, store, read_listing(store, wanted_by="retry"))
        manifest = manifest_before(dataset)
        if manifest is not None and not is_made_of(manifest, finished, listed):
            raise not_finished(store, wanted_by="retry")
        if state.retry is None and not dataset.exists(MANIFEST):
            require_finished(finished, listed, wanted_by="retry")
        opened = dataclasses.replace(opened, work=work, built=finished.plan)
        while read_state(store).retry != asked:
            try:
                _begin(opened, listed, asked)
            except DamagedTableError as error:
                opened.repair(error)
        return run_and_publish(opened, listed)


def _written(setting: str) -> str:
    """A setting as it may stand in the state and in a manifest: an address without its user and
    password."""
    return without_secrets(setting) if "://" in setting else setting


def _begin(opened: OpenWork, listed: list[Chunk], asked: Retry) -> None:
    """Set the tables aside that are to be made again.

    The state says what was asked for once all are; a kill before that tries no sample twice.
    """
    work = opened.work
    update_state(work.store, retry=None)
    # what another retry has set aside comes back as it is
    untried = dataclasses.replace(opened, work=dataclasses.replace(work, retry=None))
    chunks, _ = run_first_stage(untried, listed)
    opened.still_held()
    for chunk in chunks:
        _set_aside(work, chunk, asked)
    retries = read_state(work.store).retries
    if asked.settings:  # which, and the tables they go into
        tables = overridden_tables(asked.settings)
        tried = TriedSettings(
            told={"settings": tables, "stage": asked.stage, "reason": asked.reason},
            folders={name: work.plan.folder(name) for name in tables},
        )
        retries = retries if tried in retries else (*retries, tried)
    update_state(work.store, retry=asked, retries=retries)


def _set_aside(work: Work, chunk: Chunk, asked: Retry) -> None:
    """A chunk's tables with drops that are tried again, and those made of them, the last first."""
    stages = list(work.plan.flow.stages)
    there = [name for name in stages if not work.missing(name, [chunk])]
    asked_of = [name for name in there if asked.stage in (None, name)]
    drops = {name: sum_counts(work.store, [work.table(name, chunk)])[1] for name in asked_of}
    hit = {name for name in drops if any(asked.wants(name, why) for why in drops[name])}
    concerned = [name for name in stages if name in hit or hit.intersection(work.waits_for(name))]
    if concerned:
        work.forget_ledger(chunk)
    for name in reversed(concerned):
        work.set_aside(name, chunk)
