"""What a build that is not finished, or that shipped nothing, has dropped so far, by name."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from glit.data.schema import DROPS_SCHEMA
from glit.dataset.manifest import MANIFEST
from glit.dataset.query import LOCKS, check_select, sql_fault
from glit.errors import InputError, UserError
from glit.pipeline.state import STATE, read_state
from glit.pipeline.status import newest_tables, status
from glit.pipeline.tables import read_table
from glit.stages import all_reasons, all_steps
from glit.stages.ingest import Ingest
from glit.storage.store import Store


def unfinished_build(output: str) -> UnfinishedBuild | None:
    """The build there, if it has no finished dataset yet."""
    store = Store(output)
    if store.exists(MANIFEST) or not store.exists(f"work/{STATE}"):
        return None
    return UnfinishedBuild(output)


class UnfinishedBuild:
    """A build without a dataset.

    Args:
        output: its folder or address.
    """

    def __init__(self, output: str) -> None:
        self.output = output

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
            for name in newest_tables(work, folder, state.num_chunks).values() if folder else ():
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
        for lock in LOCKS:
            connection.execute(lock)
        try:
            check_select(sql)
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
