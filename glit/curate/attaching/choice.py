"""The best picture of each sample, of all that were found.

DuckDB joins and sorts the tables in the work folder, and keeps there what does not fit into its
memory, so that memory does not grow with their rows.
"""

from __future__ import annotations

from pathlib import Path

from glit.curate.attaching.found import AMBIGUOUS, FoundPictures
from glit.storage.duckdb_temp import quoted, spilling

MEMORY = "96MB"
"""Memory of DuckDB."""
_WHOLE = 0.98
"""Share of a published picture from which a found one shows all of it."""
_TABLES = ("listing", "published", "hashes", "looks")
_VIEW = """
    CREATE VIEW {name} AS SELECT *, file_row_number AS number
    FROM read_parquet('{path}', file_row_number = true, hive_partitioning = false)
"""
_BY_HASH = """
    SELECT published.number AS sample, hashes.file, hashes.sha256, '{how}' AS how
    FROM hashes JOIN published ON published.{column} = hashes.{column}
"""
_SAME = f"""
    CREATE TABLE same AS
    WITH both_ways AS (
        {_BY_HASH.format(how="bytes", column="sha256")}
        UNION ALL {_BY_HASH.format(how="pixels", column="pixels_sha256")}
    )
    SELECT * FROM both_ways
    QUALIFY row_number() OVER (PARTITION BY sample ORDER BY how, file) = 1
"""
_ALIKE = f"""
    CREATE TABLE alike AS
    WITH files AS (
        SELECT file, count(*) = 1 OR bool_and(shown >= {_WHOLE} AND colours = 'same') AS is_sure
        FROM looks GROUP BY file
    ),
    missing AS (
        SELECT looks.*, is_sure FROM looks JOIN files USING (file) ANTI JOIN same USING (sample)
    )
    SELECT *, CASE WHEN is_sure THEN 'looks' ELSE '{AMBIGUOUS}' END AS how FROM missing
    QUALIFY row_number() OVER (
        PARTITION BY sample ORDER BY NOT is_sure, is_sure AND shown < {_WHOLE},
        is_sure AND (mirrored OR turned <> 0), is_sure AND colours <> 'same',
        CASE WHEN is_sure THEN -width * height END, CASE WHEN is_sure THEN apart END, file
    ) = 1
"""
_CHOSEN = """
    CREATE VIEW chosen AS
    SELECT sample, how, listing.source, listing.path, sha256, mirrored, turned, "left", top,
        "right", bottom, shown, coalesce(colours, 'same') AS colours
    FROM (SELECT * FROM same UNION ALL BY NAME SELECT * FROM alike) AS best
    JOIN listing ON listing.number = best.file
"""
_COUNTS = f"""
    SELECT count(*) FILTER (how <> '{AMBIGUOUS}'),
        coalesce(bool_or(shown < 1) FILTER (how = 'looks'), false)
    FROM read_parquet('{{path}}', hive_partitioning = false)
"""


def number_of_same(work: Path) -> int:
    """Return the number of samples of which a file has the same bytes or the same pixels."""
    with spilling(work, memory=MEMORY) as connection:
        for name in ("published", "hashes"):
            connection.execute(_VIEW.format(name=name, path=quoted(work / f"{name}.parquet")))
        connection.execute(_SAME)
        ((number,),) = connection.execute("SELECT count(*) FROM same").fetchall()
        return number


def choose(work: Path) -> FoundPictures:
    """Choose each sample's picture: by bytes before pixels before looks.

    Files that look like a sample count if they look like no other sample, or show the whole
    picture, unchanged in tones, of each that they look like. Of several the best is one that shows
    all, upright, in the same tones, then the largest, the nearest, the first.

    Args:
        work: folder with the tables of the search.

    Raises:
        RunError: the disk of the work folder is full.
    """
    path = work / "chosen.parquet"
    with spilling(work, memory=MEMORY) as connection:
        for name in _TABLES:
            connection.execute(_VIEW.format(name=name, path=quoted(work / f"{name}.parquet")))
        for sql in (_SAME, _ALIKE, _CHOSEN):
            connection.execute(sql)
        target = f"'{quoted(path)}' (FORMAT parquet, ROW_GROUP_SIZE 16384)"
        connection.execute(f"COPY (SELECT * FROM chosen ORDER BY sample) TO {target}")
        ((number, is_cut),) = connection.execute(_COUNTS.format(path=quoted(path))).fetchall()
    return FoundPictures(path, number=number, is_cut=is_cut)
