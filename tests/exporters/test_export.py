"""Exports appear when they are whole, and say what is wrong with a name or a folder."""

from __future__ import annotations

import json
import pickle

import pyarrow.parquet as pq
import pytest
from building import run_build

import glit
from glit.dataset.reader import Dataset
from glit.dataset.select import narrowed
from glit.errors import DatasetError, InputError, UserError
from glit.exporters import EXPORTERS, ExportFormat, export
from glit.exporters.changed_rows import ChangedRows
from glit.exporters.common_pictures import CommonPictures
from glit.exporters.without_grid import table_without_grid, without_grid


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


def test_a_file_that_cannot_be_read_is_not_the_fault_of_the_output(built_copy, tmp_path, run_glit):
    (built_copy / "drops.parquet").unlink()
    for words in (
        ("pair", "-o", tmp_path / "o"),
        ("export", "--to", "annotations", "-o", tmp_path / "o"),
    ):
        done = run_glit(words[0], built_copy, *words[1:])
        assert done.code == 2 and "cannot be read" in done.errors, done
        assert f"{built_copy}/drops.parquet" in done.errors and " -o " not in done.errors


def test_an_export_that_fails_leaves_nothing(built, tmp_path, monkeypatch):
    def fails(dataset, folder, report):
        (folder / "half").write_text("x")
        raise DatasetError("row group 3 cannot be read")

    monkeypatch.setitem(EXPORTERS, "fails", ExportFormat(write=fails))
    with pytest.raises(DatasetError):
        export(Dataset(built), to="fails", output=tmp_path / "out")
    assert [*tmp_path.iterdir()] == []


def test_a_card_tells_of_the_rows_that_are_exported(built_by_mini, tmp_path, run_glit):
    """Whole row groups are read, and the regions of the grid are left out on the way."""
    whole = glit.open_dataset(built_by_mini)
    path = whole[0].source_path
    done = run_glit(
        "export", built_by_mini, "--to", "hf", "-o", tmp_path / "one", "--where",
        f"source_path = '{path}'", "--no-grid",
    )  # fmt: skip
    assert done.code == 0, done.errors
    card = (tmp_path / "one" / "README.md").read_text()
    regions = [each for each in whole[0].regions if not each.is_grid]
    assert 0 < len(regions) < len(whole[0].regions)
    assert "| images | 1 |" in card and f"| regions per image | {len(regions):.1f} |" in card
    table = pq.read_table(tmp_path / "one" / "data")
    assert len(table) == 1 and len(table["objects"][0].as_py()["bbox"]) == len(regions)
    labels = {each.label for each in regions if each.label}
    names = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]["objects"]
    assert set(names["categories"]["feature"]["names"]) <= labels | {"object"}


def test_rows_of_a_narrowed_and_changed_dataset_are_its_own(built):
    whole = glit.open_dataset(built)
    some = narrowed(whole, f"source_path = '{whole[0].source_path}'")
    pictures = CommonPictures(some.manifest.recipe, reencode=True)
    for view in (
        some,
        ChangedRows(some, without_grid, table_without_grid),
        ChangedRows(some, pictures),
    ):
        assert [row.sample_id for row in view.rows()] == [whole[0].sample_id]
        assert len(view.table(["regions"], row_group=0)) == 1
    assert len(pickle.loads(pickle.dumps(some))) == 1


def test_the_card_of_captions_alone_promises_no_region(scenes, tmp_path):
    run_build(scenes / "images", tmp_path / "d", captions=scenes / "captions.jsonl", limit=3,
              recipe="captions-only")  # fmt: skip
    glit.export(tmp_path / "d", to="hf", output=tmp_path / "hf")
    card = (tmp_path / "hf" / "README.md").read_text()
    _, header, body = card.split("---\n", 2)
    assert "object-detection" not in header and "region" not in header.split("configs:")[0]
    for word in ("region", "boxes", "pairs", "without a pair"):
        assert word not in body.split("## How it was made")[0].split("| images |")[0], word
    assert "without a pair" not in body


def test_nothing_is_encoded_again_where_there_are_no_pictures(built, tmp_path):
    with pytest.raises(InputError, match="--reencode"):
        glit.export(built, to="hf", output=tmp_path / "x", images=False, reencode=True)
