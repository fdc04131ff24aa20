"""A class for every pixel: means by hand, interpolation, the two layouts, a real model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from annotations import labels, noise, voc_folder
from evaluating import CONFIG, config

from glit.errors import InputError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import load_embedder
from glit.evaluation.label_maps import IGNORED, open_label_maps
from glit.evaluation.run import evaluate
from glit.evaluation.tasks.classify import class_vectors
from glit.evaluation.tasks.segment import classes_of_pixels, confusion, means, open_segments


@pytest.fixture
def voc(tmp_path) -> Path:
    return voc_folder(tmp_path / "VOC2012")


def test_means_by_hand() -> None:
    """Truth 0 0 1 1 and found 0 1 1 1 of three classes: 1/2 and 2/3; the third is nowhere."""
    truth = np.array([[0, 0, 1, 1, IGNORED]])
    found = confusion(truth, np.array([[0, 1, 1, 1, 2]]), 3)
    assert found.tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 0]]
    assert means(found) == pytest.approx({"miou": (1 / 2 + 2 / 3) / 2, "pixel_accuracy": 3 / 4})
    with pytest.raises(InputError, match="no pixel has a class"):
        means(np.zeros((2, 2), dtype=np.int64))


def test_rows_of_pixels_are_those_of_the_whole(monkeypatch) -> None:
    cosine = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(0))
    whole = F.interpolate(cosine[None], (23, 31), mode="bilinear")[0].argmax(dim=0)
    monkeypatch.setitem(classes_of_pixels.__globals__, "_COSINES_AT_ONCE", 200)
    assert classes_of_pixels(cosine, 23, 31).tolist() == whole.tolist()


def test_labels_of_voc(voc) -> None:
    maps = open_label_maps("voc", voc, split=None)
    found = maps.labels(0)
    assert (found[0, 0], found[10, 0], found[15, 0], found[20, 0]) == (0, 19, IGNORED, IGNORED)
    assert maps.classes[19] == ("tv monitor",)
    assert len(open_label_maps("voc", voc, split=None, limit=1).maps) == 1


def test_labels_of_ade20k(tmp_path) -> None:
    folder = tmp_path / "ADE"
    noise(folder / "images" / "validation" / "x.jpg", size=(9, 8))
    labels(folder / "annotations" / "validation" / "x.png", np.full((8, 9), 2), mode="L")
    (folder / "objectInfo150.txt").write_text(
        "Idx\tRatio\tTrain\tVal\tName\n1\t0.1\t2\t3\twall\n2\t0.1\t2\t3\tbuilding, edifice\n"
    )
    maps = open_label_maps("ade20k", folder, split=None)
    assert maps.classes == [("wall",), ("building", "edifice")]
    assert set(maps.labels(0).flatten().tolist()) == {1}


@torch.no_grad()
@pytest.mark.parametrize("unmixed", [False, True])
def test_a_real_model_against_the_plain_way(tiny_clip, voc, unmixed) -> None:
    settings = config(unmixed=unmixed, templates="a photo of a {}.", image_fit="centre-crop")
    (result,) = evaluate("segment", [str(tiny_clip)], str(voc), settings, kind="voc")
    maps = open_label_maps("voc", voc, split=None)
    embedder = load_embedder(str(tiny_clip), config(image_fit="resize"))
    vectors = class_vectors(embedder, maps.classes, settings)
    patches = torch.cat(list(replace(embedder, unmixed=unmixed).patches(maps, range(2))))
    right = seen = 0
    for number in range(2):
        cosine = (patches[number] @ vectors.T).T.unflatten(1, (4, 4))
        found = F.interpolate(cosine[None], (30, 40), mode="bilinear")[0].argmax(dim=0).numpy()
        truth = maps.labels(number)
        right += int(((found == truth) & (truth >= 0)).sum())
        seen += int((truth >= 0).sum())
    assert result.metrics["pixel_accuracy"] == pytest.approx(right / seen)
    assert result.metrics["images"] == 2


def test_labels_that_cannot_be_used(voc, tiny_clip) -> None:
    file = voc / "SegmentationClass" / "a.png"
    labels(file, np.ones((3, 4)))
    with pytest.raises(InputError, match="its image has another size"):
        evaluate("segment", [str(tiny_clip)], str(voc), CONFIG, kind="voc")
    file.write_bytes(b"no image")
    with pytest.raises(InputError, match="no labels of pixels"):
        evaluate("segment", [str(tiny_clip)], str(voc), CONFIG, kind="voc")
    file.unlink()
    with pytest.raises(InputError, match="1 label files are missing"):
        open_label_maps("voc", voc, split=None)
    with pytest.raises(InputError, match="not voc as published"):
        open_label_maps("voc", voc, split="test")


@pytest.mark.parametrize("kind", ["voc", "ade20k"])
def test_a_folder_of_images_is_not_passed_over(tmp_path, kind) -> None:
    with pytest.raises(InputError, match=f"--format {kind} holds its images; leave it out"):
        open_segments(str(tmp_path), EvaluateConfig(), kind=kind, images=tmp_path, split=None)
