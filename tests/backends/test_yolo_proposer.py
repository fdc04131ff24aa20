"""Checkpoints of ultralytics by what they find: boxes, turned boxes, or none."""

from __future__ import annotations

import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glit.errors import WeightsError
from glit.models.backends.proposers import PROPOSERS
from glit.models.backends.proposers import yolo as yolo_module
from glit.models.backends.protocols import ProposerConfig
from glit.models.weights import Resolved


class Found(SimpleNamespace):
    """Boxes of ultralytics, as far as they are read."""

    def cpu(self):
        return self

    def numpy(self):
        return Found(**{name: value.numpy() for name, value in vars(self).items()})


def checkpoint(folder, kind: str) -> Resolved:
    path = folder / "yolo.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("yolo/data.pkl", b"cultralytics.nn.tasks\n" + kind.encode() + b"\n.")
    return Resolved(name="yolo", path=path, revision="", sha256="")


def made(monkeypatch, folder, results):
    model = SimpleNamespace(predict=lambda images, **_: results[: len(images)])
    monkeypatch.setattr(yolo_module, "load_yolo", lambda *_, **__: model)
    config = ProposerConfig(allow_pickle=True, device="cpu")
    return PROPOSERS["yolo"].make(config, checkpoint(folder, "OBBModel"))


@pytest.mark.parametrize("turned", [False, True])
def test_of_turned_boxes_the_boxes_around_them_are_taken(monkeypatch, tmp_path, turned):
    found = Found(
        xyxy=torch.tensor([[2.0, 3.0, 20.0, 30.0]]), conf=torch.tensor([0.75]),
        cls=torch.tensor([1.0]),
    )  # fmt: skip
    result = SimpleNamespace(
        names={1: "ship"}, boxes=None if turned else found, obb=found if turned else None
    )
    detector = made(monkeypatch, tmp_path, [result])
    [[region]] = detector.detect([np.zeros((40, 40, 3), np.uint8)])
    assert (region.box.xyxy, region.label, region.score) == ((2.0, 3.0, 20.0, 30.0), "ship", 0.75)


def test_a_classifier_is_refused_before_the_first_image(tmp_path):
    config = ProposerConfig(allow_pickle=True)
    check = PROPOSERS["yolo"].check
    assert check is not None
    for kind in ("DetectionModel", "SegmentationModel", "PoseModel", "OBBModel"):
        check(config, checkpoint(tmp_path, kind))
    with pytest.raises(WeightsError, match="is a classifier, which finds no boxes"):
        check(config, checkpoint(tmp_path, "ClassificationModel"))
