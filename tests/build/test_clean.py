"""A dataset without its resumable state."""

from __future__ import annotations

import pytest

from glit.build.clean import clean
from glit.build.one_build import only_one_build
from glit.build.status import status
from glit.dataset.verify import verify
from glit.errors import UserError
from glit.storage import Store


def test_clean_leaves_a_dataset_that_verifies(built_copy):
    work = built_copy / "work"
    size = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    assert clean(str(built_copy)) == size
    assert not (built_copy / "work").exists()
    assert list(verify(str(built_copy))) == []
    assert status(str(built_copy))["complete"]


def test_a_build_at_work_keeps_its_folder(built_copy):
    with (
        only_one_build(Store(built_copy / "work")),
        pytest.raises(UserError, match="another glit is building here"),
    ):
        clean(str(built_copy))
    assert (built_copy / "work" / "state.json").exists()
    assert clean(str(built_copy)) > 0
    assert clean(str(built_copy)) == 0
