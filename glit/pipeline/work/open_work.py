"""An opened work folder: held by a build, or by ``glit retry`` and ``glit add`` as it was left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from glit.dataset.manifest import read_manifest
from glit.errors import DamagedTableError, GlitError, RecipeError, StoppedError, UserError
from glit.inputs.files import ImageFiles
from glit.pipeline.executors.protocols import Executor
from glit.pipeline.planning.inputs import Inputs, read_inputs
from glit.pipeline.planning.lock import Lock
from glit.pipeline.planning.plan import make_plan
from glit.pipeline.planning.recipe import recipe_from_dict
from glit.pipeline.work.build_lock import LockCheck, only_one_build, remove_held
from glit.pipeline.work.folder import Work
from glit.pipeline.work.state import STATE, OtherVersionError, read_state
from glit.pipeline.work.timeline import TimelineWriter
from glit.runtime.limits import Limits
from glit.runtime.progress import StageProgress, duration
from glit.stages import flow
from glit.stages.ingest import Ingest
from glit.stages.plan import Plan
from glit.storage.outputs import output_folder
from glit.storage.store import Store

_REPAIRS = 10
"""After so many damaged tables in one run, glit stops: the disk is not to be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWork:
    """A dataset, its locked work folder, and the executor and progress that work on it."""

    dataset: Store
    inputs: Inputs
    work: Work
    executor: Executor
    progress: StageProgress
    still_held: LockCheck
    """Raises where another build has taken over."""
    timeline: TimelineWriter
    built: Plan | None = None
    """The plan of the build, if the work has that of a retry with settings of its own."""
    limits: Limits = field(default_factory=Limits)
    _repaired: list[str] = field(default_factory=list)

    def check_time(self) -> None:
        """Stop a run that has had its time.

        Raises:
            StoppedError: it has.
        """
        seconds = self.progress.total_s
        if seconds >= 3600 * self.limits.hours:
            raise StoppedError(
                f"stopped after {duration(seconds)}, by --max-hours; run the same command to go on"
            )

    def repair(self, error: DamagedTableError) -> None:
        """Remove a damaged table; it is made again when a step needs it.

        Raises:
            DamagedTableError: there is no end of them.
        """
        if len(self._repaired) >= _REPAIRS:
            raise error
        self._repaired.append(error.table)
        self.progress.note(f"{error.table} is damaged ({error.reason}); it is made anew")
        self.work.store.remove(error.table)


@contextlib.contextmanager
def hold_work(
    dataset: Store, executor: Executor, progress: StageProgress
) -> Iterator[Callable[[Inputs, Work], OpenWork]]:
    """Hold the work folder of a dataset; yields what opens it, once inputs and work are known.

    Of a first build that is refused before its first image, not even its folders stay.
    """
    store = dataset.below("work")
    is_first = dataset.is_local and not dataset.exists("work")
    with only_one_build(store) as still_held:
        try:
            with TimelineWriter(store, executor.size) as timeline:
                yield lambda inputs, work: OpenWork(
                    dataset=dataset, inputs=inputs, work=work, executor=executor,
                    progress=progress, still_held=still_held, timeline=timeline,
                )  # fmt: skip
        except GlitError:
            if is_first and not any(name.startswith(f"{Ingest.name}-") for name in store.names()):
                remove_held(store)
                with contextlib.suppress(OSError):  # something else is in there
                    os.rmdir(dataset.full(""))
            raise


@contextlib.contextmanager
def open_finished(output: str, executor: Executor, progress: StageProgress) -> Iterator[OpenWork]:
    """Hold and open the work folder of a finished dataset.

    Raises:
        UserError: there is none, or models, prompt or glit are no longer those of the build.
    """
    dataset = Store(output_folder(output))
    store = _work_folder(dataset)
    with hold_work(dataset, executor, progress) as open_work:
        yield open_work(*_finished_work(store, executor.device))


def _work_folder(dataset: Store) -> Store:
    work = dataset.below("work")
    if not work.exists(STATE):
        read_manifest(dataset)  # nothing built here at all is the clearer thing to say
        if work.exists("listing.parquet"):
            raise UserError(
                f"{work.root}/{STATE}: it is gone; run glit build again, which writes it anew and "
                "reuses the tables"
            )
        raise UserError(
            f"{dataset.root}: its work folder is gone (glit clean); build it anew instead"
        )
    return work


def _finished_work(store: Store, device: str) -> tuple[Inputs, Work]:
    """Return the inputs of the build, and its work, as the folder's state file describes them."""
    state = read_state(store)
    another = f"{store.root}: was made by another version of glit; run glit build again"
    try:
        recipe = recipe_from_dict(state.recipe)
    except (RecipeError, KeyError) as error:  # its recipe had other keys
        raise OtherVersionError(f"{another} ({error})") from error
    stages = flow(recipe.tables).stages
    if set(state.folders) != set(stages):
        raise OtherVersionError(another)
    source = state.find_source()
    lock = None if state.lock is None else Lock(where=f"{store.root}: its lock", models=state.lock)
    inputs = read_inputs(source, state.captions, state.regions, lock, work=store)
    plan = make_plan(recipe, inputs, device=device)
    changed = [name for name in stages if plan.folder(name) != state.folders[name]]
    if changed:
        raise UserError(
            f"{store.root}: models, prompt or glit changed since the build (stage {changed[0]}); "
            "run glit build again instead"
        )
    return inputs, Work(store=store, images=ImageFiles(source.root, index=store.root), plan=plan)
