"""YOLO-World and YOLOE find what ultralytics' own predict finds."""

from __future__ import annotations

import importlib.machinery
import sys
import types

import numpy as np
import pytest
import torch

from glit.errors import WeightsError
from glit.models.backends.grounders.yolo import UltralyticsGrounder, UltralyticsOptions
from glit.models.weights import Resolved
from glit.stages.ground import GroundConfig

ultralytics = pytest.importorskip("ultralytics")
PHRASES = ["a red ball", "the dog", "a red ball"]


class Reads:
    """Stands for the text encoder: a fixed direction for each text."""

    def tokenize(self, texts):
        return torch.tensor([[sum(map(ord, text))] for text in texts])

    def encode_text(self, tokens, dtype=torch.float32):
        rows = [torch.randn(512, generator=torch.Generator().manual_seed(int(t))) for t in tokens]
        return torch.nn.functional.normalize(torch.stack(rows), dim=1)


@pytest.fixture
def text_encoder(monkeypatch, tmp_path):
    """The package and the files that ultralytics would load its text encoders from."""
    clip = types.ModuleType("clip")
    clip.__spec__ = importlib.machinery.ModuleSpec("clip", None)
    monkeypatch.setitem(sys.modules, "clip", clip)
    monkeypatch.setattr("ultralytics.utils.WEIGHTS_DIR", tmp_path)
    (tmp_path / "clip").mkdir()
    for name in ("clip/ViT-B-32.pt", "mobileclip_blt.ts"):
        (tmp_path / name).touch()
    text_model = pytest.importorskip("ultralytics.nn.text_model")
    monkeypatch.setattr(text_model, "build_text_model", lambda *_, **__: Reads())


def checkpoint(folder, name: str) -> Resolved:
    """A tiny random model of a file of ultralytics, whose scores are spread out."""
    torch.manual_seed(0)
    world = "world" in name
    kind = ultralytics.YOLOWorld if world else ultralytics.YOLOE
    yolo = kind(f"{name}.yaml")
    for module in yolo.model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_var.uniform_(0.02, 0.05)
        if hasattr(module, "logit_scale"):
            module.logit_scale.data.fill_(3.0)
            module.bias.data.fill_(0.0)
    path = folder / f"{name}.pt"
    yolo.save(path)
    return Resolved(name=str(path), path=path, revision="main", sha256="0")


def config(**values) -> GroundConfig:
    return GroundConfig(
        backend="ultralytics", device="cpu", options=UltralyticsOptions(allow_pickle=True), **values
    )


@pytest.mark.parametrize("name", ["yolov8n-worldv2", "yoloe-v8n", "yoloe-11n-seg"])
def test_boxes_are_those_of_the_librarys_predict(text_encoder, tmp_path, name):
    model = checkpoint(tmp_path, name)
    image = np.random.default_rng(0).integers(0, 255, (90, 160, 3), dtype=np.uint8)
    # without suppression: ours is of boxes that are cut at the edge, theirs of those before
    grounder = UltralyticsGrounder(config(threshold=0.0001, nms_iou=1.0, max_boxes=40), model)
    yolo = (ultralytics.YOLOWorld if "world" in name else ultralytics.YOLOE)(str(model.path))
    [[found]] = grounder.find([image], [["the dog"]])
    if "world" in name:
        yolo.set_classes(["the dog"])
    else:
        yolo.set_classes(["the dog"], yolo.get_text_pe(["the dog"]))
    [wanted] = yolo.predict(
        np.ascontiguousarray(image[:, :, ::-1]), conf=0.0001, iou=1.0, max_det=300, verbose=False,
        device="cpu",
    )  # fmt: skip
    boxes, scores = wanted.boxes.xyxy.numpy(), wanted.boxes.conf.numpy()
    real = (np.round(boxes[:, 2:], 2) > np.round(boxes[:, :2], 2)).all(axis=1)
    assert len(found.boxes) == 40
    np.testing.assert_allclose(found.scores, scores[real][:40], atol=1e-4)
    rounded = sorted(map(tuple, np.round(boxes[real], 1).tolist()))
    assert sum(tuple(box) in rounded for box in np.round(found.boxes, 1).tolist()) >= 38


def test_every_phrase_has_its_own_and_no_phrase_has_none(text_encoder, tmp_path):
    grounder = UltralyticsGrounder(config(threshold=0.0001), checkpoint(tmp_path, "yoloe-v8n"))
    images = [np.full((64, 96, 3), value, dtype=np.uint8) for value in (30, 200)]
    first, second = grounder.find(images, [PHRASES, []])
    assert len(first) == 3 and second == []
    np.testing.assert_array_equal(first[0].boxes, first[2].boxes)
    again = grounder.find(images[:1], [PHRASES])[0]
    np.testing.assert_array_equal(first[1].boxes, again[1].boxes)


def test_a_missing_text_encoder_is_one_line(text_encoder, tmp_path):
    model = checkpoint(tmp_path, "yolov8n-worldv2")
    (tmp_path / "clip" / "ViT-B-32.pt").unlink()
    with pytest.raises(WeightsError, match="text encoder clip:ViT-B/32 is not here; it wants"):
        UltralyticsGrounder(config(), model)


def test_other_checkpoints_are_refused(text_encoder, tmp_path):
    path = tmp_path / "plain.pt"
    ultralytics.YOLO("yolov8n.yaml").save(path)
    model = Resolved(name="plain", path=path, revision="main", sha256="0")
    with pytest.raises(WeightsError, match="a DetectionModel of ultralytics, but ground.backend"):
        UltralyticsGrounder(config(), model)
    with pytest.raises(WeightsError, match="set ground.allow_pickle = true"):
        UltralyticsGrounder(GroundConfig(backend="ultralytics", device="cpu"), model)
