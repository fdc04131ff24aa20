"""The best picture of each sample, of all that were found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import duckdb

from glit.curate.attaching.placement import Placement

WAYS = {
    "bytes": "the same file",
    "pixels": "another file of the same pixels",
    "looks": "encoded again, resized, cut, padded, mirrored, turned or in other tones",
}
"""How a picture is found."""
AMBIGUOUS = "ambiguous"
"""Instead of a way: the file may as well be another sample's picture."""
_WHOLE = 0.98
"""Share of a published picture from which a found one shows all of it."""
_PLACE = [each.name for each in dataclasses.fields(Placement)]
_SAME = """
    CREATE OR REPLACE TEMP TABLE same AS
    WITH both_ways AS (
        SELECT sample, 'bytes' AS how, file FROM samples JOIN hashed USING (sha256)
        UNION ALL
        SELECT sample, 'pixels', file FROM samples JOIN hashed USING (pixels_sha256)
    )
    SELECT sample, how, file FROM both_ways JOIN listed USING (file)
    QUALIFY row_number() OVER (PARTITION BY sample ORDER BY how, source, path) = 1
"""
_CHOSEN = f"""
    CREATE OR REPLACE TEMP TABLE chosen AS
    WITH own AS (SELECT * FROM alike JOIN listed USING (file)),
    sure AS (
        SELECT file, count(*) = 1 OR bool_and(shown >= {_WHOLE} AND colours = 'same') AS is_sure
        FROM own GROUP BY file
    ),
    best AS (
        SELECT *, CASE WHEN is_sure THEN 'looks' ELSE '{AMBIGUOUS}' END AS how
        FROM own JOIN sure USING (file) ANTI JOIN same USING (sample)
        QUALIFY row_number() OVER (
            PARTITION BY sample ORDER BY NOT is_sure, is_sure AND shown < {_WHOLE},
            is_sure AND (mirrored OR turned <> 0), is_sure AND colours <> 'same',
            CASE WHEN is_sure THEN -width * height END, CASE WHEN is_sure THEN residual END,
            source, path
        ) = 1
    )
    SELECT sample, how, listed.source, listed.path, sha256, coalesce(colours, 'same') AS colours,
        {", ".join(f'"{name}"' for name in _PLACE)}, shown
    FROM (SELECT * FROM same UNION ALL BY NAME SELECT * EXCLUDE (source, path) FROM best) AS found
    JOIN listed USING (file) JOIN hashed USING (file)
    ORDER BY sample
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The file among the user's that shows a sample's picture."""

    how: str
    """A key of :data:`WAYS`, or :data:`AMBIGUOUS`."""
    source: int
    """Number of the folder."""
    path: str
    """Path of the file, relative to that folder."""
    sha256: str
    colours: str
    """Colours of the file beside the published ones: ``same``, ``grey`` or ``changed``."""
    placement: Placement | None
    """None for the same pixels."""


def count_same(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the number of samples of which a file has the same bytes or the same pixels."""
    connection.execute(_SAME)
    return connection.execute("SELECT count(*) FROM same").fetchall()[0][0]


class Matches:
    """Each sample's picture: by bytes before pixels before looks.

    Files that look like a sample count if they look like no other sample, or show the whole
    picture, unchanged in tones, of each that they look like. Of several the best is one that shows
    all, upright, in the same tones, then the largest, the nearest, the first.

    Args:
        connection: to the work file, after the search.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        count_same(connection)
        connection.execute(_CHOSEN)
        ((self._number, self.is_cut),) = connection.execute(
            f"SELECT count(*) FILTER (how <> '{AMBIGUOUS}'), "
            "coalesce(bool_or(shown < 1) FILTER (how = 'looks'), false) FROM chosen"
        ).fetchall()

    def __len__(self) -> int:
        return self._number

    def of(self, first: int, number: int) -> dict[int, Match]:
        """Return the pictures of consecutive samples."""
        rows = self._connection.execute(
            "SELECT * FROM chosen WHERE sample BETWEEN ? AND ?", [first, first + number - 1]
        ).fetchall()
        return {
            sample: Match(
                how=how, source=source, path=path, sha256=sha256, colours=colours,
                placement=Placement(**dict(zip(_PLACE, place, strict=True)))
                if how == "looks" else None,
            )
            for sample, how, source, path, sha256, colours, *place, _ in rows
        }  # fmt: skip
