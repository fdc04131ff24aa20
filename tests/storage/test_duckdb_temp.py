"""DuckDB with a limit: what a process keeps of it is not a forked one's."""

from __future__ import annotations

import os
import signal
import warnings

from glit.storage.duckdb_temp import spilling


def counted(folder) -> int:
    with spilling(folder) as connection:
        connection.execute("CREATE TABLE numbers AS SELECT range AS n FROM range(100000)")
        found = connection.execute("SELECT count(DISTINCT n % 1000) FROM numbers").fetchone()
    return found[0]


def test_a_forked_process_has_a_database_of_its_own(tmp_path):
    assert counted(tmp_path) == counted(tmp_path) == 1000  # the second in the first one's database
    with warnings.catch_warnings(action="ignore"):  # of the threads that a fork does not have
        child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if counted(tmp_path) == 1000 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert counted(tmp_path) == 1000
