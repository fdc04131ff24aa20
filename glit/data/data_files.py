"""Make and parse the names of a dataset's data files: series and position within it."""

from __future__ import annotations

import re

_NAME = re.compile(r"data/train-(?:a(\d{4,})-)?\d{5,}-of-\d{5,}\.parquet")


def file_name(index: int, total: int, *, series: int = 0) -> str:
    """The name of a data file; files of an addition sort after the earlier ones.

    >>> file_name(0, 8), file_name(2, 3, series=1)
    ('train-00000-of-00008.parquet', 'train-a0001-00002-of-00003.parquet')
    """
    added = f"a{series:04d}-" if series else ""
    return f"train-{added}{index:05d}-of-{total:05d}.parquet"


def series_of_file(name: str) -> int | None:
    """The series of a file in the manifest; None if the name is not glit's.

    >>> series_of_file("data/train-a0001-00002-of-00003.parquet"), series_of_file("drops.parquet")
    (1, None)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1] or 0)
