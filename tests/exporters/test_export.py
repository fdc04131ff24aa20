"""Exports appear when they are whole, and say what is wrong with a name or a folder."""

from __future__ import annotations

import pytest

from glit.dataset.reader import Dataset
from glit.errors import DatasetError, InputError, UserError
from glit.exporters import EXPORTERS, ExportFormat, export


def test_a_format_that_does_not_exist(built, tmp_path):
    with pytest.raises(InputError, match="--to cooc: no such format; did you mean 'coco'"):
        export(Dataset(built), to="cooc", output=tmp_path / "out")


def test_a_folder_that_exists_is_left_alone(built, tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="exists already"):
        export(Dataset(built), to="coco", output=tmp_path / "mine")
    assert [*(tmp_path / "mine").iterdir()] == []


def test_a_folder_nobody_may_write(built, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write there"):
        export(Dataset(built), to="coco", output=tmp_path / "file" / "out")


def test_an_export_that_fails_leaves_nothing(built, tmp_path, monkeypatch):
    def fails(dataset, folder, report):
        (folder / "half").write_text("x")
        raise DatasetError("row group 3 cannot be read")

    monkeypatch.setitem(EXPORTERS, "fails", ExportFormat(write=fails))
    with pytest.raises(DatasetError):
        export(Dataset(built), to="fails", output=tmp_path / "out")
    assert [*tmp_path.iterdir()] == []
