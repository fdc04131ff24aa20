"""How far a build is, from the names and footers of its tables."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from glit.dataset.manifest import MANIFEST, num_series, read_manifest
from glit.errors import UserError
from glit.pipeline.tables import sum_counts
from glit.stages import all_steps
from glit.storage.store import Store

STATE = "state.json"
_TABLE = re.compile(r"\d{6}-\w+\.parquet")
_STATE_KEYS = {"images", "captions", "recipe", "folders", "num_chunks"}
_FOLDER = re.compile(r"[a-z]+-[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatus:
    """One stage's progress."""

    stage: str
    chunks_done: int
    chunks_total: int
    rows: int
    drops: dict[str, int]


def status(output: str) -> dict[str, Any]:
    """What is done, pending and dropped, per stage; plain values.

    ``adding`` says that an addition to a complete dataset is not finished.

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
        "stages": [],
    }
    manifest = read_manifest(dataset) if complete else {}
    if complete:
        result["counts"] = manifest["counts"]
    if dataset.exists(f"work/{STATE}"):
        work = dataset.below("work")
        state = read_state(work)
        result["recipe"] = state["recipe"]["name"]
        result["adding"] = complete and state.get("additions", 0) >= num_series(manifest)
        result["stages"] = [
            asdict(_stage(work, stage, folder, state["num_chunks"]))
            for stage, folder in sorted(state["folders"].items(), key=_in_flow_order)
        ]
    elif not complete:
        raise UserError(f"{output}: no dataset and no build here")
    return result


def read_state(work: Store) -> dict[str, Any]:
    """What a build noted of itself in its work folder.

    Raises:
        UserError: it is damaged, or of a glit that noted other things.
    """
    try:
        state: Any = json.loads(work.read(STATE))
    except ValueError as error:
        raise UserError(
            f"{work.root}/{STATE}: not valid JSON ({error}); run glit build again, which writes it "
            "anew and reuses the tables"
        ) from error
    if not isinstance(state, dict) or not state.keys() >= _STATE_KEYS:
        raise UserError(other_version(work))
    if isinstance(state["recipe"], dict) and "name" not in state["recipe"]:
        raise UserError(other_version(work))
    if faults := [name for name, good in _looked_at(state).items() if not good]:
        raise UserError(
            f"{work.root}/{STATE}: {faults[0]} = {json.dumps(state[faults[0]])[:60]} is nothing "
            "that glit writes there; run glit build again, which writes it anew and reuses the "
            "tables"
        )
    return state


def _looked_at(state: dict[str, Any]) -> dict[str, bool]:
    """By key whether its value can be what a build noted."""
    folders, recipe, source = state["folders"], state["recipe"], state.get("source", {})
    return {
        "images": isinstance(state["images"], str),
        "captions": isinstance(state["captions"], str | None),
        "recipe": isinstance(recipe, dict) and isinstance(recipe.get("name"), str),
        "lock": isinstance(state.get("lock"), dict | None),
        "source": isinstance(source, dict)
        and source.keys() <= {"pattern", "list_file"}
        and all(isinstance(v, str) for v in source.values()),
        "folders": isinstance(folders, dict)
        and all(isinstance(v, str) and _FOLDER.fullmatch(v) for v in folders.values()),
        "num_chunks": _is_count(state["num_chunks"]),
        "additions": _is_count(state.get("additions", 0)),
    }


def _is_count(found: Any) -> bool:
    return type(found) is int and found >= 0


def other_version(work: Store) -> str:
    """What is said of a work folder that this glit did not write."""
    return (
        f"{work.root}: was made by another version of glit; run glit build again, which reuses "
        "what is still valid"
    )


def _in_flow_order(item: tuple[str, str]) -> int:
    """Stages of another version of glit come last."""
    names = [step.name for step in all_steps()]
    return names.index(item[0]) if item[0] in names else len(names)


def _stage(work: Store, stage: str, folder: str, total: int) -> StageStatus:
    of: dict[int, list[str]] = {}
    for name in work.names(folder):
        if _TABLE.fullmatch(name) and int(name[:6]) < total:
            of.setdefault(int(name[:6]), []).append(f"{folder}/{name}")
    # an image that changed leaves its chunk's former table beside the new one
    newest = {
        n: found[0] if len(found) == 1 else max(found, key=work.modified) for n, found in of.items()
    }
    rows, drops = sum_counts(work, newest.values())
    return StageStatus(
        stage=stage, chunks_done=len(newest), chunks_total=total, rows=rows, drops=drops
    )
