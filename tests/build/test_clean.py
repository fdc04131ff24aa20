"""A dataset without its resumable state."""

from __future__ import annotations

from glit.build.clean import clean
from glit.build.status import status
from glit.dataset.verify import verify


def test_clean_leaves_a_dataset_that_verifies(built_copy):
    work = built_copy / "work"
    size = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    assert clean(str(built_copy)) == size
    assert not (built_copy / "work").exists()
    assert list(verify(str(built_copy))) == []
    assert status(str(built_copy))["complete"]
