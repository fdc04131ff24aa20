"""``croissant.json`` as mlcroissant validates it and loads the dataset through it."""

from __future__ import annotations

import json
from pathlib import Path

import mlcroissant
import numpy as np
import pytest
from building import run_build

from glit.curate.pair_again import pair_again
from glit.data.schema import arrow_type, hf_feature
from glit.dataset.croissant import YOURS, croissant
from glit.dataset.reader import Dataset
from glit.errors import DatasetError
from glit.stages import all_steps

pytestmark = [  # of mlcroissant's own use of rdflib and pandas
    pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index"),
    pytest.mark.filterwarnings("ignore:.*ConjunctiveGraph is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Dataset.default_context is deprecated:DeprecationWarning"),
]

YOURS_TO_FILL = {"citeAs", "datePublished", "license"}
"""What a build cannot know, and mlcroissant recommends."""


@pytest.fixture(scope="module")
def dataset(scenes, tmp_path_factory):
    """With drops: one file of the folder is no image."""
    folder = tmp_path_factory.mktemp("croissant")
    images = folder / "images"
    images.mkdir()
    for path in sorted((scenes / "images").iterdir())[:5]:
        (images / path.name).write_bytes(path.read_bytes())
    (images / "again.png").write_bytes((images / "000001.png").read_bytes())
    (images / "broken.jpg").write_bytes(b"no image")
    run_build(images, folder / "dataset")
    return Dataset(str(folder / "dataset"))


def opened(folder):
    return mlcroissant.Dataset(jsonld=f"{folder}/croissant.json")


def test_it_is_valid_and_only_the_owners_fields_are_wanting(dataset):
    issues = opened(dataset.path).metadata.ctx.issues
    assert issues.errors == set()
    named = {warning.split('"')[1].rpartition("/")[2] for warning in issues.warnings}
    assert named == YOURS_TO_FILL


def test_records_are_the_rows(dataset):
    records = list(opened(dataset.path).records("samples"))
    rows = list(dataset)
    assert len(records) == len(rows) == 5
    for record, row in zip(records, rows, strict=True):
        found = {key.removeprefix("samples/"): value for key, value in record.items()}
        assert found["sample_id"].decode() == row.sample_id
        assert found["caption"].decode() == row.caption.text
        assert np.array_equal(np.array(found["image"].convert("RGB")), row.pixels())
        corners = [
            [box[f"samples/regions/{name}"] for name in ("x0", "y0", "x1", "y1")]
            for box in found["regions"]
        ]
        assert np.array_equal(corners, np.float32([r.box.xyxy for r in row.regions]))
        spans = [
            found["caption"].decode()[
                s["samples/sentences/char_start"] : s["samples/sentences/char_end"]
            ]
            for s in found["sentences"]
        ]
        assert spans == [sentence.text for sentence in row.sentences]
        chosen = [(p["samples/pairs/sentence"], p["samples/pairs/region"]) for p in found["pairs"]]
        assert chosen == [(pair.sentence, pair.region) for pair in row.pairs]
        assert np.array_equal(
            np.array(found["similarity"]).reshape(row.scores.similarity.shape),
            row.scores.similarity,
        )


def test_what_was_left_out_is_there_too(dataset):
    found = opened(dataset.path)
    (drop,) = found.records("drops")
    assert drop["drops/source_path"] == b"broken.jpg"
    (duplicate,) = found.records("duplicates")
    assert duplicate["duplicates/kept_path"] == b"000001.png"


def test_responsible_ai_fields_come_from_the_run(dataset):
    metadata = opened(dataset.path).metadata
    assert metadata.name == Path(dataset.path).name
    said = json.loads(croissant(dataset.manifest, name="mine"))
    assert any(field["dataType"] == "cr:BoundingBox" for field in said["recordSet"][0]["field"]
               if field["name"] == "regions")  # fmt: skip
    assert (
        metadata.data_collection.startswith("7 image files") and YOURS in metadata.data_collection
    )
    assert "1 images were dropped (1 ingest/not_an_image)" in metadata.data_collection_missing_data
    protocol = " ".join(metadata.data_annotation_protocol)
    assert dataset.manifest.prompt and dataset.manifest.prompt in protocol
    assert "mini-captioner" in protocol and "rule argmax" in protocol
    tools = " ".join(metadata.machine_annotation_tools)
    for model in dataset.manifest.models.values():
        assert model.sha256 in tools
    assert metadata.data_biases[0].startswith(YOURS)
    activity = said["prov:wasGeneratedBy"]
    assert dataset.manifest.fingerprints["pack"] in activity["prov:label"]
    assert len(activity["prov:wasAssociatedWith"]) == 1 + len(dataset.manifest.models)


def test_pairs_of_another_rule_have_another_croissant(dataset, tmp_path):
    pair_again(dataset, tmp_path / "new", recipe="lism", settings=())
    metadata = opened(tmp_path / "new").metadata
    assert "rule lism" in " ".join(metadata.data_annotation_protocol)
    assert (tmp_path / "new" / "croissant.json").read_bytes() == croissant(
        Dataset(str(tmp_path / "new")).manifest, name="new"
    )


def test_columns_of_all_stages_are_records_too(scenes, tmp_path):
    run_build(
        scenes / "images", tmp_path / "d", limit=3, captions=scenes / "captions.jsonl",
        overrides=["quality.enabled=true", "negatives.enabled=true"],
    )  # fmt: skip
    dataset = Dataset(str(tmp_path / "d"))
    assert opened(dataset.path).metadata.ctx.issues.errors == set()
    records, rows = list(opened(dataset.path).records("samples")), list(dataset.table().to_pylist())
    assert {"quality", "negatives"} <= set(dataset.manifest.columns)
    for record, row in zip(records, rows, strict=True):
        assert record["samples/quality"]["samples/quality/sharpness"] == row["quality"]["sharpness"]
        found = [each["samples/negatives/text"] for each in record["samples/negatives"]]
        assert [text.decode() for text in found] == [each["text"] for each in row["negatives"]]


def test_a_type_of_a_column_goes_there_and_back():
    for step in all_steps():
        for _, kind in getattr(step, "dataset_columns", ()):
            assert arrow_type(hf_feature(kind)) == kind
    with pytest.raises(DatasetError, match="'columns' is damaged"):
        arrow_type({"_type": "Value", "dtype": "no such type"})
