"""Lists written side by side come back as one object."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.exporters.json_file import JsonFile

VALUES = st.lists(
    st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)),
    max_size=6,
)


@given(a=VALUES, b=VALUES)
def test_lists_come_back(tmp_path_factory, a, b):
    folder = tmp_path_factory.mktemp("json")
    with JsonFile(folder / "x.json", "a", "b") as file:
        for value in a:
            file.add("a", value)
        for value in b:
            file.add("b", value)
    assert json.loads((folder / "x.json").read_text()) == {"a": a, "b": b}
    assert [path.name for path in folder.iterdir()] == ["x.json"]


def test_an_error_leaves_no_file(tmp_path):
    with pytest.raises(ValueError), JsonFile(tmp_path / "x.json", "a") as file:
        file.add("a", float("nan"))
    assert [*tmp_path.iterdir()] == []
