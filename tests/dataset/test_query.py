"""SQL over a dataset."""

from __future__ import annotations

import pytest

from glit.dataset.query import query
from glit.errors import UserError


def test_query_and_its_mistakes(built):
    assert query(str(built), "select count(*) from samples").fetchall() == [(24,)]
    assert query(str(built), "select count(*) from drops").fetchall() == [(0,)]
    with pytest.raises(
        UserError, match="views: samples, sentences, regions, pairs, drops, duplicates"
    ):
        query(str(built), "select * from nothing")
