"""How far a build is, from the names and footers of its tables."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from typing import Any

from glit.dataset.manifest import MANIFEST, num_series, read_manifest
from glit.errors import DamagedTableError, UserError
from glit.pipeline.resume import shell_line
from glit.pipeline.state import STATE, read_state
from glit.pipeline.tables import sum_counts
from glit.stages import all_steps
from glit.storage.store import Store

_TABLE = re.compile(r"\d{6}-\w+\.parquet")
_SO_FAR = re.compile(r"\d{6}-\w+\.so-far\.parquet")


def status(output: str) -> dict[str, Any]:
    """What is done, pending and dropped, per stage; plain values.

    ``adding`` says that an addition to a complete dataset is not finished, ``retrying`` that a
    retry is not, ``empty`` that every stage is done and nothing was left to ship, ``command``
    what resumes a build that is not finished, where that is known. ``rows`` counts what is kept of
    chunks that are not finished, too.

    Args:
        output: a dataset, or a build in progress.

    Raises:
        UserError: neither a dataset nor a build in progress, or one of another version of glit.
    """
    dataset = Store(output)
    complete = dataset.exists(MANIFEST)
    result: dict[str, Any] = {
        "dataset": output,
        "complete": complete,
        "adding": False,
        "empty": False,
        "retrying": False,
        "command": "",
        "stages": [],
    }
    manifest = read_manifest(dataset) if complete else {}
    if complete:
        result["counts"] = manifest["counts"]
    if dataset.exists(f"work/{STATE}"):
        work = dataset.below("work")
        state = read_state(work)
        result["recipe"] = state.recipe["name"]
        result["adding"] = complete and state.additions >= num_series(manifest)
        result["retrying"] = state.retry is not None
        # stages of another version of glit come last
        order = {step.name: number for number, step in enumerate(all_steps())}
        result["stages"] = [
            _stage(work, stage, folder, state.num_chunks)
            for stage, folder in sorted(
                state.folders.items(), key=lambda item: order.get(item[0], len(order))
            )
        ]
        result["command"] = "" if complete else shell_line(state.command)
        result["empty"] = not complete and _shipped_nothing(result["stages"])
    elif not complete:
        raise UserError(f"{output}: no dataset and no build here")
    return result


def _shipped_nothing(stages: list[dict[str, Any]]) -> bool:
    """Whether every stage has done every chunk, and the last had nothing left."""
    last = stages[-1]
    done = all(stage["chunks_done"] == stage["chunks_total"] for stage in stages)
    return done and last["rows"] == sum(last["drops"].values())


def newest_tables(work: Store, folder: str, total: int) -> dict[int, str]:
    """The table of every chunk that a stage has finished; an image that changed leaves its chunk's
    former table beside the new one."""
    of: dict[int, list[str]] = {}
    for name in work.names(folder):
        if _TABLE.fullmatch(name) and int(name[:6]) < total:
            of.setdefault(int(name[:6]), []).append(f"{folder}/{name}")
    return {n: f[0] if len(f) == 1 else max(f, key=work.modified) for n, f in of.items()}


def _stage(work: Store, stage: str, folder: str, total: int) -> dict[str, Any]:
    newest = newest_tables(work, folder, total)
    rows, drops = sum_counts(work, newest.values())
    rows += _rows_so_far(work, folder, newest, total)
    done = {"chunks_done": len(newest), "chunks_total": total}
    return {"stage": stage, **done, "rows": rows, "drops": drops}


def _rows_so_far(work: Store, folder: str, done: Collection[int], total: int) -> int:
    """Rows that a slow stage keeps of chunks that are not finished; the build passes over a
    damaged table of them too."""
    kept: dict[int, int] = {}
    for name in work.names(folder):
        chunk = int(name[:6]) if _SO_FAR.fullmatch(name) else total
        if chunk < total and chunk not in done:
            with contextlib.suppress(DamagedTableError):
                found, _ = sum_counts(work, [f"{folder}/{name}"])
                kept[chunk] = max(found, kept.get(chunk, 0))
    return sum(kept.values())
