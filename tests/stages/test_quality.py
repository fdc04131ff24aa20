"""The stage that measures images and drops those beyond a threshold."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from building import quiet, run_build
from PIL import Image, ImageFilter

from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import RecipeError, UserError
from glit.images import decode
from glit.models.backends.classifiers import ImageClassifier
from glit.models.weights import Resolved
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.stages.quality import QualityConfig

ON = ("quality.enabled=true",)


@pytest.fixture
def images(scenes, tmp_path):
    """Six scenes, the second blurred, the third nearly black, the fourth cut to a strip."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(6):
        shutil.copy(scenes / "images" / f"{number:06d}.png", folder)
    blurred, dark, strip = (folder / f"{number:06d}.png" for number in (1, 2, 3))
    Image.open(blurred).filter(ImageFilter.GaussianBlur(6)).save(blurred)
    Image.open(dark).point(lambda value: value // 20).save(dark)
    Image.open(strip).crop((0, 0, 128, 16)).save(strip)
    return folder


def built(images, scenes, output, *overrides: str) -> Dataset:
    run_build(images, output, captions=scenes / "captions.jsonl", overrides=(*ON, *overrides))
    assert not list(verify(str(output)))
    return Dataset(str(output))


def drops(dataset: Dataset) -> dict[str, str]:
    return {row["source_path"]: row["message"] for row in dataset.drops().to_pylist()}


def test_measured_and_nothing_dropped(images, scenes, tmp_path):
    dataset = built(images, scenes, tmp_path / "all")
    assert len(dataset) == 6
    quality = {row.source_path: row.extra["quality"] for row in dataset}
    assert quality["000001.png"]["sharpness"] < 30 < quality["000000.png"]["sharpness"]
    assert quality["000003.png"]["aspect"] == 8 and quality["000003.png"]["labels"] == []
    sql = "SELECT source_path FROM samples WHERE quality.brightness < 0.1"
    assert query(str(tmp_path / "all"), sql).fetchall() == [("000002.png",)]


def test_thresholds_drop_with_the_value_and_retry_takes_others(images, scenes, tmp_path):
    limits = ("quality.min_sharpness=30", "quality.min_brightness=0.1", "quality.max_aspect=4")
    dataset = built(images, scenes, tmp_path / "some", *limits)
    told = drops(dataset)
    assert sorted(told) == ["000001.png", "000002.png", "000003.png"]
    assert "sharpness" in told["000001.png"] and "want 30 or more" in told["000001.png"]
    assert told["000003.png"] == "aspect 8, want 4 or less"
    assert {row["reason"] for row in dataset.drops().to_pylist()} == {"low_quality"}
    retry(
        str(tmp_path / "some"), LocalExecutor(), quiet(), reason="low_quality",
        settings=["quality.max_aspect=0"],
    )  # fmt: skip
    assert sorted(drops(Dataset(str(tmp_path / "some")))) == ["000001.png", "000002.png"]
    assert not list(verify(str(tmp_path / "some")))


def classifier(folder, labels, **config):
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 16, "image_size": 32, "patch_size": 16}  # fmt: skip
    named = {"id2label": dict(enumerate(labels)), "label2id": {x: n for n, x in enumerate(labels)}}
    model = ViTForImageClassification(ViTConfig(**shape, **named, **config))
    model.classifier.weight.data *= 30  # far from equal probabilities
    model.save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", [None, "multi_label_classification"])
def test_probabilities_are_those_of_the_library(images, tmp_path, kind):
    from transformers import pipeline

    folder = classifier(tmp_path / "model", ["safe", "nsfw", "mark"], problem_type=kind)
    own = ImageClassifier(
        QualityConfig(), Resolved(name="vit", path=folder, revision="", sha256="", licence="")
    )
    pixels = [decode(path.read_bytes()) for path in sorted(images.iterdir())]
    theirs = pipeline("image-classification", model=str(folder), device="cpu")
    found = own.classify(pixels)
    for image, scores in zip(pixels, found, strict=True):
        wanted = {each["label"]: each["score"] for each in theirs(Image.fromarray(image), top_k=3)}
        assert scores == pytest.approx(wanted, abs=1e-5)
        alone = own.classify([image])[0]
        assert alone == pytest.approx(scores, abs=1e-5)


def test_labels_drop_and_are_kept(images, scenes, tmp_path):
    folder = classifier(tmp_path / "model", ["safe", "nsfw"])
    on = ("quality.backend=classifier", f"quality.model={folder}")
    dataset = built(images, scenes, tmp_path / "all", *on)
    score = {
        row.source_path: {each["label"]: each["score"] for each in row.extra["quality"]["labels"]}
        for row in dataset
    }
    assert all(abs(sum(each.values()) - 1) < 1e-5 for each in score.values())
    unsafe = np.array([each["nsfw"] for each in score.values()])
    least = float(np.median(unsafe))
    some = built(images, scenes, tmp_path / "some", *on, f'quality.reject=["nsfw={least:.6f}"]')
    told = drops(some)
    assert sorted(told) == sorted(p for p, each in score.items() if each["nsfw"] >= least)
    assert all(message.startswith("nsfw 0.") for message in told.values())


def test_a_classifier_that_answers_nan_drops_its_images(images, scenes, tmp_path, monkeypatch):
    folder = classifier(tmp_path / "model", ["safe", "nsfw"])

    def classify(self, images):
        if any(min(image.shape[:2]) == 16 for image in images):
            raise FloatingPointError("the classifier answered NaN or infinity")
        return [{"safe": 1.0, "nsfw": 0.0} for _ in images]

    monkeypatch.setattr(ImageClassifier, "classify", classify)
    on = ("quality.backend=classifier", f"quality.model={folder}")
    dataset = built(images, scenes, tmp_path / "some", *on)
    (drop,) = dataset.drops().to_pylist()
    assert (drop["source_path"], drop["reason"]) == ("000003.png", "model_error")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["quality.min_sharpness=nan"], "min_sharpness: found nan"),
        (["quality.max_text=-1"], "max_text: found -1"),
        (["quality.backend=classifier"], "wants the name of an image classifier"),
        (['quality.reject=["nsfw=0.5"]'], "labels are those of backend = 'classifier'"),
        (["quality.backend=classifier", "quality.model=x", 'quality.reject=["nsfw"]'], "as 'nsfw=0.5'"),
        (["quality.backend=classifer"], "backend: found 'classifer'"),
    ],
)  # fmt: skip
def test_values_that_cannot_be(images, scenes, tmp_path, settings, message):
    with pytest.raises(RecipeError, match=message):
        built(images, scenes, tmp_path / "none", *settings)


def test_models_that_cannot_be(images, scenes, tmp_path):
    folder = classifier(tmp_path / "model", ["safe", "nsfw"])
    on = ("quality.backend=classifier", f"quality.model={folder}")
    with pytest.raises(RecipeError, match="has no label 'nfsw'; did you mean 'nsfw'"):
        built(images, scenes, tmp_path / "none", *on, 'quality.reject=["nfsw=0.5"]')
    (folder / "config.json").write_text(json.dumps({"id2label": 3}))
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        built(images, scenes, tmp_path / "none", *on)
