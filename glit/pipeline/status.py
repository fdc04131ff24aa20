"""How far a build is, from the names and footers of its tables."""

from __future__ import annotations

import re
from typing import Any

from glit.dataset.manifest import MANIFEST, num_series, read_manifest
from glit.errors import UserError
from glit.pipeline.state import STATE, read_state
from glit.pipeline.tables import sum_counts
from glit.stages import all_steps
from glit.storage.store import Store

_TABLE = re.compile(r"\d{6}-\w+\.parquet")


def status(output: str) -> dict[str, Any]:
    """What is done, pending and dropped, per stage; plain values.

    ``adding`` says that an addition to a complete dataset is not finished, ``retrying`` that a
    retry is not.

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
        "retrying": False,
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
    elif not complete:
        raise UserError(f"{output}: no dataset and no build here")
    return result


def _stage(work: Store, stage: str, folder: str, total: int) -> dict[str, Any]:
    of: dict[int, list[str]] = {}
    for name in work.names(folder):
        if _TABLE.fullmatch(name) and int(name[:6]) < total:
            of.setdefault(int(name[:6]), []).append(f"{folder}/{name}")
    # an image that changed leaves its chunk's former table beside the new one
    newest = {
        n: found[0] if len(found) == 1 else max(found, key=work.modified) for n, found in of.items()
    }
    rows, drops = sum_counts(work, newest.values())
    done = {"chunks_done": len(newest), "chunks_total": total}
    return {"stage": stage, **done, "rows": rows, "drops": drops}
