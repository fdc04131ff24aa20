"""Formats keep all captions of an image; a dataset with one caption an image is written as ever."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from building import run_build

from glit.dataset.croissant import croissant
from glit.dataset.reader import Dataset
from glit.exporters import export


@pytest.fixture(scope="module")
def several(scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    with (folder / "captions.jsonl").open("w") as file:
        for line in (scenes / "captions.jsonl").read_text().splitlines():
            file.write(json.dumps({**json.loads(line), "short_caption": "A picture."}) + "\n")
    run_build(scenes / "images", folder / "out", captions=folder / "captions.jsonl", limit=2)
    return Dataset(folder / "out")


def entries(name, folder):
    """What the format says of each image."""
    if name == "grit":
        return pq.read_table(folder / "grit-00000.parquet").to_pylist()
    if name == "odvg":
        return [*map(json.loads, (folder / "annotations.jsonl").read_text().splitlines())]
    file, key = {
        "mdetr": ("annotations.json", "images"),
        "goal": ("goal.json", None),
    }[name]
    found = json.loads((folder / file).read_text())
    return found[key] if key else found


@pytest.mark.parametrize("name", ["mdetr", "odvg", "grit", "goal"])
def test_all_captions_are_there(name, several, built, tmp_path):
    export(several, to=name, output=tmp_path / "several")
    wanted = [row.extra["captions"] for row in several]
    assert [[each["kind"] for each in captions] for captions in wanted] == [["long", "short"]] * 2
    assert [entry["captions"] for entry in entries(name, tmp_path / "several")] == wanted
    export(Dataset(built), to=name, output=tmp_path / "one")
    assert all("captions" not in entry for entry in entries(name, tmp_path / "one"))


def test_croissant_describes_them(several, built):
    def fields(dataset):
        made = json.loads(croissant(dataset.manifest, name="x"))
        return {field["name"]: field for field in made["recordSet"][0]["field"]}

    assert "captions" not in fields(Dataset(built))
    found = fields(several)["captions"]
    assert found["repeated"] is True
    assert [each["name"] for each in found["subField"]] == ["kind", "text", "source"]
