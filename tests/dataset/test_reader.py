"""The one reader: the same rows as Arrow has, by row, file and column."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import glit
from glit.dataset.reader import Dataset
from glit.errors import DatasetError, InputError, UserError


def test_rows_are_those_of_the_files(built) -> None:
    dataset = glit.open_dataset(built)
    plain = pq.read_table(built / "data").to_pylist()
    assert len(dataset) == len(plain) == 24
    for row, wanted in zip(dataset, plain, strict=True):
        assert row.sample_id == wanted["sample_id"]
        assert row.image == wanted["image"]["bytes"]
        assert row.caption.text == wanted["caption"]
        assert row.caption.kind == wanted["caption_source"]["kind"]
        for sentence, value in zip(row.sentences, wanted["sentences"], strict=True):
            assert {name: getattr(sentence, name) for name in value} == value
        for region, value in zip(row.regions, wanted["regions"], strict=True):
            assert region.box.xyxy == (value["x0"], value["y0"], value["x1"], value["y1"])
            assert (region.score, region.label, region.source) == (
                value["score"], value["label"], value["source"],
            )  # fmt: skip
        assert row.similarity.shape == (len(row.sentences), len(row.regions))
        assert row.similarity.ravel().tolist() == wanted["similarity"]
        assert row.image_similarity.tolist() == wanted["image_similarity"]
        for pair, value in zip(row.pairs, wanted["pairs"], strict=True):
            assert {name: getattr(pair, name) for name in value} == value


def test_a_row_by_number_is_that_of_the_iteration(built) -> None:
    dataset = Dataset(built)
    ids = [row.sample_id for row in dataset.rows(images=False)]
    assert [dataset[number].sample_id for number in range(len(dataset))] == ids
    assert dataset[-1].sample_id == ids[-1]
    for outside in (24, -25):
        with pytest.raises(IndexError, match="24"):
            dataset[outside]


def test_images_are_decoded_when_asked(built, scenes) -> None:
    dataset = Dataset(built)
    row = dataset[0]
    with Image.open(scenes / "images" / row.source_path) as picture:
        assert np.array_equal(row.pixels(), np.asarray(picture.convert("RGB")))
    assert row.pixels().shape == (row.height, row.width, 3)
    without = next(dataset.rows(images=False))
    assert without.image is None
    with pytest.raises(DatasetError, match="read without its image"):
        without.pixels()


def test_tables_by_file_row_group_and_column(built) -> None:
    dataset = Dataset(built)
    whole = dataset.table(["sample_id", "pairs"])
    assert whole.column_names == ["sample_id", "pairs"] and whole.num_rows == 24
    by_file = [dataset.table(["sample_id"], file=name) for name in dataset.files]
    assert [x for t in by_file for x in t["sample_id"].to_pylist()] == whole[
        "sample_id"
    ].to_pylist()
    first = dataset.table(["sample_id"], row_group=0)
    assert first.num_rows == dataset.places[0].num_rows
    assert dataset.drops().num_rows == dataset.duplicates().num_rows == 0


def test_a_dataset_travels_to_other_processes(built) -> None:
    there = pickle.loads(pickle.dumps(Dataset(built)))
    assert there[3].sample_id == Dataset(built)[3].sample_id


def test_images_stored_by_path(make_dataset, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()

    def by_path(index: int, row) -> None:
        (images / row["source_path"]).write_bytes(row["image"]["bytes"])
        row["image"]["bytes"] = None

    folder = make_dataset(3, change=by_path)
    dataset = Dataset(folder, image_root=str(images))
    assert dataset[1].image == (images / "000001.jpg").read_bytes()
    assert Image.open(io.BytesIO(dataset[1].image)).size == (dataset[1].width, dataset[1].height)
    other = Image.new("RGB", (dataset[1].width, dataset[1].height))
    other.save(images / "000001.jpg")
    with pytest.raises(DatasetError, match=r"000001.jpg is not the one .*its SHA-256"):
        Dataset(folder, image_root=str(images))[1]
    (images / "000001.jpg").unlink()
    with pytest.raises(DatasetError, match=r"000001.jpg is stored by path .*train.image_root"):
        Dataset(folder, image_root=str(images))[1]


def test_no_dataset_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no manifest.json"):
        Dataset(tmp_path)


def test_a_build_that_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(UserError, match="the build is not finished; run glit build again"):
        Dataset(tmp_path)


def test_a_dataset_without_samples(make_dataset) -> None:
    folder = make_dataset(2)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="no samples"):
        Dataset(folder)


def test_a_missing_shard_is_found_at_the_start(make_dataset) -> None:
    folder = make_dataset(40, rows_per_file=10)
    sorted((folder / "data").iterdir())[2].unlink()
    with pytest.raises(DatasetError, match=r"train-00002-of-00004.parquet is in the manifest"):
        Dataset(folder)


def test_a_truncated_shard_is_found_at_the_start(make_dataset) -> None:
    folder = make_dataset(10)
    file = next((folder / "data").iterdir())
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=r"train-00000-of-00001.parquet: not a readable"):
        Dataset(folder)


def test_a_shard_lost_after_it_was_opened(make_dataset) -> None:
    folder = make_dataset(8)
    dataset = Dataset(folder)
    next((folder / "data").iterdir()).unlink()
    with pytest.raises(DatasetError, match="row group 0 cannot be read .* repair the dataset"):
        dataset[0]


def test_a_footer_that_is_read_again_is_that_of_before(make_dataset, monkeypatch) -> None:
    monkeypatch.setattr("glit.dataset.footers._MOST", 1)
    folder = make_dataset(40, rows_per_file=10)
    dataset = Dataset(folder)
    ids = [row.sample_id for row in dataset]
    assert [dataset[number].sample_id for number in reversed(range(40))] == ids[::-1]
    first, second, *_ = sorted((folder / "data").iterdir())
    dataset = Dataset(folder)
    shutil.copy(first, second)
    with pytest.raises(DatasetError, match="00001-of-00004.*changed since it was opened"):
        dataset[15]


def test_a_dataset_in_another_file_system(built) -> None:
    """Any address that fsspec knows; here one in memory."""
    import fsspec

    memory = fsspec.filesystem("memory")
    for path in built.rglob("*"):
        if path.is_file() and "work" not in path.relative_to(built).parts:
            memory.pipe_file(f"/reader/{path.relative_to(built)}", path.read_bytes())
    try:
        there, here = Dataset("memory://reader"), Dataset(built)
        assert [row.sample_id for row in there] == [row.sample_id for row in here]
        assert there[5].image == here[5].image
    finally:
        memory.rm("/reader", recursive=True)


def test_a_read_that_failed_is_tried_again(make_dataset, monkeypatch) -> None:
    """Ctrl-C in a notebook, or a network that is back: the next one to ask gets the row."""
    dataset = Dataset(make_dataset(2))
    real, interrupts = dataset.row_group, [KeyboardInterrupt(), OSError("gone for a moment")]

    def row_group(*arguments, **options):
        if interrupts:
            raise interrupts.pop(0)
        return real(*arguments, **options)

    monkeypatch.setattr(dataset, "row_group", row_group)
    with pytest.raises(KeyboardInterrupt):
        dataset[0]
    with pytest.raises(OSError, match="for a moment"):
        dataset[0]
    assert dataset[0].source_path == "000000.jpg"
