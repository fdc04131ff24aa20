"""Report how far a build is: its stages, its drops so far, and the command that resumes it."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from glit.data.schema import DROPS_SCHEMA
from glit.dataset.manifest import MANIFEST, read_manifest
from glit.dataset.query import check_select, lock_down, sql_fault
from glit.errors import DamagedTableError, InputError, UserError
from glit.pipeline.work.state import STATE, read_state
from glit.pipeline.work.tables import read_table, sum_counts
from glit.pipeline.work.timeline import rate_per_s, read_timelines, seconds_left
from glit.plain import as_plain
from glit.recipes.resources import builtin_recipes
from glit.runtime.limits import drops_word
from glit.stages import all_reasons, all_steps
from glit.stages.ingest import Ingest
from glit.storage.store import Store, absolute

_TABLE = re.compile(r"\d{6}-\w+\.parquet")
_SO_FAR = re.compile(r"\d{6}-\w+\.so-far\.parquet")
_SECRET = re.compile(r"://[^/]*@|://.*\?|(password|secret|token|key)=", re.IGNORECASE)
"""Matches what may be a secret: a user or a query in an address, a setting named like a key."""


def status(output: str) -> dict[str, Any]:
    """Return the progress of a dataset's build per stage: done, pending and dropped; plain values.

    ``adding`` says that an addition to a complete dataset is not finished, ``retrying`` that a
    retry is not, ``empty`` that every stage is done and nothing was left to ship, ``command``
    what resumes a build that is not finished, where that is known. ``rows`` counts what is kept of
    chunks that are not finished, too; ``rate_per_s`` is of all runs that are remembered.
    ``seconds_left`` and ``stages_not_timed`` are those of
    :func:`glit.pipeline.work.timeline.seconds_left`.

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
        "seconds_left": 0.0,
        "stages_not_timed": [],
    }
    manifest = read_manifest(dataset) if complete else None
    if manifest is not None:
        result["counts"] = as_plain(manifest.counts)
    if dataset.exists(f"work/{STATE}"):
        work = dataset.below("work")
        state = read_state(work)
        result["recipe"] = state.recipe["name"]
        result["adding"] = manifest is not None and state.additions >= manifest.num_series
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
        runs = read_timelines(work)
        for stage in result["stages"]:
            stage["rate_per_s"] = rate_per_s(runs, stage)
        if not (complete or result["empty"]):
            left = seconds_left(runs, result["stages"])
            result["seconds_left"], result["stages_not_timed"] = left
    elif not complete:
        raise UserError(f"{output}: no dataset and no build here")
    return result


def _shipped_nothing(stages: list[dict[str, Any]]) -> bool:
    """Return whether every stage has done every chunk, and one of them let nothing through."""
    done = all(stage["chunks_done"] == stage["chunks_total"] for stage in stages)
    return done and any(stage["rows"] == sum(stage["drops"].values()) for stage in stages)


def _newest_tables(work: Store, folder: str, total: int) -> dict[int, str]:
    """The table of every chunk that a stage has finished; an image that changed leaves its chunk's
    former table beside the new one."""
    of: dict[int, list[str]] = {}
    for name in work.names(folder):
        if _TABLE.fullmatch(name) and int(name[:6]) < total:
            of.setdefault(int(name[:6]), []).append(f"{folder}/{name}")
    return {n: f[0] if len(f) == 1 else max(f, key=work.modified) for n, f in of.items()}


def _stage(work: Store, stage: str, folder: str, total: int) -> dict[str, Any]:
    newest = _newest_tables(work, folder, total)
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


def unfinished_build(output: str) -> UnfinishedBuild | None:
    """The build there, if it has no finished dataset yet."""
    store = Store(output)
    if store.exists(MANIFEST) or not store.exists(f"work/{STATE}"):
        return None
    return UnfinishedBuild(output)


@dataclass(frozen=True, slots=True)
class UnfinishedBuild:
    """A build without a dataset."""

    output: str
    """Its folder or address."""

    def drops(self) -> pa.Table:
        """The drops in the tables of a build, as ``drops.parquet`` will have them.

        Raises:
            UserError: the work folder is of another version of glit, or a table is damaged.
        """
        work = Store(self.output).below("work")
        state = read_state(work)
        paths: dict[str, str] = {}
        rows: list[dict[str, Any]] = []
        for step in all_steps():
            folder = state.folders.get(step.name, "")
            for name in _newest_tables(work, folder, state.num_chunks).values() if folder else ():
                for row in read_table(work, name).to_pylist():
                    if step is Ingest and row["sample_id"]:
                        paths[row["sample_id"]] = row["source_path"]
                    if row["drop"] is not None:
                        path = row.get("source_path") or paths.get(row["sample_id"], "")
                        found = {"sample_id": row["sample_id"], "source_path": path, **row["drop"]}
                        rows.append({**found, "stage": step.name})
        rows.sort(key=lambda row: row["source_path"])
        return pa.Table.from_pylist(rows, schema=DROPS_SCHEMA)

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Run a SELECT over the view ``drops``.

        Raises:
            UserError: not a SELECT that DuckDB accepts.
        """
        connection = duckdb.connect(config={"python_enable_replacements": "false"})
        connection.register("drops", self.drops())
        lock_down(connection)
        try:
            check_select(sql, connection)
            return connection.sql(sql).materialize()
        except (duckdb.Error, RuntimeError) as error:
            raise UserError(
                f"query: {sql_fault(error, DROPS_SCHEMA.names)} ({self.output} is not finished; "
                "it has the view drops alone)"
            ) from error

    def explain(self, name: str) -> str:
        """Why an image was dropped, or how far the build is.

        Raises:
            InputError: it was not dropped so far.
        """
        for row in self.drops().to_pylist():
            if name == row["source_path"] or (len(name) > 5 and row["sample_id"].startswith(name)):
                meaning = all_reasons().get(row["reason"], "")
                return (
                    f"{row['source_path']}  {row['sample_id']}\n"
                    f"dropped by {row['stage']}: {row['reason']} ({meaning})\n  {row['message']}\n"
                    "glit retry tries it again"
                )
        stages = ", ".join(
            f"{each['stage']} {each['chunks_done']}/{each['chunks_total']}"
            for each in status(self.output)["stages"]
        )
        raise InputError(
            f"{self.output}: the build is not finished, and {name} was not dropped so far (chunks "
            f"done: {stages}); run glit build again to go on"
        )


def build_words(images: str, output: str, recipe: str, **options: Any) -> tuple[str, ...]:
    """The words of ``glit build``, with absolute paths; none where one may be a secret.

    Args:
        images: the folder or address.
        output: the dataset's.
        recipe: a name or a file.
        options: of :func:`glit.api.build`; those at their defaults are left out.
    """
    named = recipe if recipe in builtin_recipes() else absolute(recipe)
    words = ["glit", "build", absolute(images), "-o", absolute(output), "-r", named]
    for setting in options.pop("settings", ()):
        words += ["--set", setting]
    drops = drops_word(options.pop("max_drops", 1.0))
    options["max_drops"] = None if drops in ("", "100%") else drops
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value not in (None, False, "auto", math.inf):
            is_path = name in ("captions", "regions")
            words += [option, absolute(value) if is_path else str(value)]
    return () if any(map(_SECRET.search, words)) else tuple(words)


def shell_line(words: Sequence[str]) -> str:
    """The words as a shell takes them; paths below this folder are relative to it.

    >>> shell_line(["glit", "build", os.path.abspath("my photos"), "-o", "/data/out"])
    "glit build 'my photos' -o /data/out"
    """
    here = os.path.join(os.getcwd(), "")
    return shlex.join(word.removeprefix(here) for word in words)
