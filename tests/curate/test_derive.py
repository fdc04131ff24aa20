"""The one writer of datasets from datasets: drops, balance, columns and certificates."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import run_build

import glit
from glit.curate.derive import change_rows, finish
from glit.data.records import Drop
from glit.data.schema import MASKS, PICTURES
from glit.dataset.reader import Dataset
from glit.errors import InputError


def dropping(*paths: str):
    """A change that drops these pictures' rows."""

    def change(group):
        names = group.table["source_path"].to_pylist()
        gone = {at: Drop(reason="no_region", message="no edge") for at, n in enumerate(names) if n in paths}  # fmt: skip
        return group.table.filter(pa.array([name not in paths for name in names])), gone

    return change


def test_drops_leave_the_balance_of_their_series_and_what_tells_pictures_apart(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number in range(12):
        os.link(scenes / "images" / f"{number:06d}.png", images / f"{number:06d}.png")
        if number == 7:
            (images / "bad.png").write_bytes(b"no picture")
            run_build(images, tmp_path / "d", captions=scenes / "captions.jsonl", overrides=["pack.row_group_rows=2"])  # fmt: skip
    glit.add(tmp_path / "d", executor="local", quiet=True)
    glit.export(tmp_path / "d", to="annotations", output=tmp_path / "a")
    source, folder = Dataset(tmp_path / "a"), tmp_path / "new"
    gone = ("000001.png", "000004.png", "000009.png")
    made = change_rows(source, folder, dropping(*gone), stage="correct", added=(MASKS,), values={"masks": []})  # fmt: skip
    finish(folder, made, name="new", sources=[source])
    assert glit.verify(folder) == []
    counts, (addition,) = made.counts, made.additions
    before, (added,) = source.manifest.counts, source.manifest.additions
    assert (counts.shipped, counts.dropped) == (before.shipped - 3, before.dropped + 3)
    assert counts.drops == {**before.drops, "correct/no_region": 3}
    assert (addition.shipped, addition.dropped) == (added.shipped - 1, added.dropped + 1)
    new = Dataset(folder)
    assert [row["source_path"] for row in new.drops().to_pylist()] == ["bad.png", *gone]
    assert new.drops().to_pylist()[1]["message"] == "no edge"
    ids = new.table(["sample_id"])["sample_id"].to_pylist()
    assert pq.read_table(folder / PICTURES)["sample_id"].to_pylist() == ids and len(ids) == 9
    assert new.table(["masks"])["masks"].to_pylist() == [[]] * 9 and "masks" in made.columns


def test_a_dataset_that_would_be_empty_is_none(built, tmp_path):
    source = Dataset(built)
    change = dropping(*(row.source_path for row in source))
    with pytest.raises(InputError, match=r"no sample would be left \(24 correct/no_region\)"):
        change_rows(source, tmp_path / "new", change, stage="correct")


def test_a_row_that_vanishes_is_our_own_fault(built, tmp_path):
    with pytest.raises(AssertionError, match="vanished"):
        change_rows(Dataset(built), tmp_path / "new", lambda group: (group.table.slice(1), {}))


def test_a_column_of_a_name_that_is_added_is_named(built, tmp_path):
    with pytest.raises(InputError, match="has a column caption that is not glit's"):
        change_rows(Dataset(built), tmp_path / "new", None, added=(("caption", pa.int32()),))
