"""Propose the published pictures that a user's picture may be: those that share most SIFT points.

Points are looked up by signs of random projections of their descriptors (Charikar 2002), cut into
keys, which DuckDB holds and joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from glit.curate.attaching.picture import Picture

if TYPE_CHECKING:
    from jaxtyping import Int64

_TABLES, _KEY_BITS, _FEWEST_BITS = 4, 24, 14
_STRONGEST = 100
"""Points of a picture that are looked up."""
_LEAST_VOTES, _MOST = 3, 6
"""Shared keys of a proposal, and proposals a picture."""
_PROJECTIONS = np.random.default_rng(2024).standard_normal((128, _TABLES * _KEY_BITS))
_PROJECTIONS = _PROJECTIONS.astype(np.float32)
TABLES = """
    CREATE TABLE indexed (sample INTEGER);
    CREATE TABLE sample_keys (sample INTEGER, key INTEGER);
"""
_PROPOSED = f"""
    SELECT file, sample FROM (
        SELECT file, sample, count(*) AS votes FROM file_keys JOIN sample_keys USING (key)
        GROUP BY ALL HAVING votes >= {_LEAST_VOTES}
    ) QUALIFY row_number() OVER (PARTITION BY file ORDER BY votes DESC, sample) <= {_MOST}
    ORDER BY file, votes DESC, sample
"""


class Index:
    """Published pictures, by what they are looked up by.

    Args:
        connection: to a database with :data:`TABLES`.
        number: of the published pictures.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, number: int) -> None:
        self._connection = connection
        # as many bits as tell the points apart: a point shares a key with a sixteenth of another
        bits = np.log2(max(number, 1) * _STRONGEST) + 4
        self._bits = int(np.clip(bits, _FEWEST_BITS, _KEY_BITS))

    def add(self, samples: Sequence[int], pictures: Sequence[Picture]) -> None:
        """Add published pictures by their numbers."""
        keys = self._rows("sample", samples, pictures, ways=(False,))
        self._connection.from_arrow(keys).insert_into("sample_keys")
        self._connection.from_arrow(pa.table({"sample": samples})).insert_into("indexed")

    def propose(self, files: Sequence[int], pictures: Sequence[Picture]) -> list[tuple[int, int]]:
        """Return pairs of a file and a published picture that it may be, as it is or mirrored, by
        file, the best first.

        Args:
            files: numbers of the files.
            pictures: theirs.
        """
        keys = self._rows("file", files, pictures, ways=(False, True))
        self._connection.register("file_keys", keys)
        return self._connection.execute(_PROPOSED).fetchall()

    def _rows(
        self, owner: str, numbers: Sequence[int], pictures: Sequence[Picture], ways: Sequence[bool]
    ) -> pa.Table:
        """Return the number of each picture with each of its keys."""
        keys = [self._keys(each, ways) for each in pictures]
        owners = np.repeat(np.asarray(numbers, np.int64), [len(each) for each in keys])
        return pa.table({owner: owners, "key": np.concatenate([np.empty(0, np.int64), *keys])})

    def _keys(self, picture: Picture, ways: Sequence[bool]) -> Int64[np.ndarray, " K"]:
        """Return the distinct keys of the picture's strongest SIFT points: pieces of the signs of
        random projections (locality-sensitive hashing)."""
        values = np.concatenate([picture.features(mirrored=way)[1][:_STRONGEST] for way in ways])
        values = values - values.mean(axis=1, keepdims=True)
        signs = (values @ _PROJECTIONS > 0).reshape(-1, _TABLES, _KEY_BITS)[..., : self._bits]
        tables = np.arange(_TABLES) << _KEY_BITS
        return np.unique(signs @ (1 << np.arange(self._bits)) + tables)
