"""Detectors: the library's own boxes, whatever the batch."""

from __future__ import annotations

import copy
import dataclasses
import os

import numpy as np
import pytest
import torch
from pretend_cuda import pretend_cuda

from glit.errors import WeightsError
from glit.images import decode
from glit.models.backends.proposers import PROPOSERS
from glit.models.backends.proposers import yolos as yolos_module
from glit.models.weights import resolve
from glit.stages.propose import ProposeConfig


@pytest.fixture(scope="module")
def pictures(scenes) -> list[np.ndarray]:
    return [decode(path.read_bytes()) for path in sorted((scenes / "images").iterdir())[:9]]


@pytest.fixture(scope="module")
def yolos():
    return PROPOSERS["yolos"].make(
        ProposeConfig(batch_size=4, device="cpu"), resolve("mini-proposer")
    )


def library_boxes(yolos, image, threshold):
    """One image through the library's processor, model and post-processing."""
    chw = torch.from_numpy(image.copy()).permute(2, 0, 1)
    inputs = yolos.processor(images=chw, return_tensors="pt")
    with torch.inference_mode():
        outputs = yolos.model(pixel_values=inputs["pixel_values"])
    return yolos.processor.post_process_object_detection(
        outputs, threshold=threshold, target_sizes=[image.shape[:2]]
    )[0]


def assert_same(regions, wanted, image):
    order = wanted["scores"].argsort(descending=True, stable=True)
    limits = torch.tensor([image.shape[1], image.shape[0]] * 2)
    boxes = torch.minimum(wanted["boxes"][order].clamp(min=0), limits)
    assert len(regions) == len(boxes)
    for region, box, score in zip(regions, boxes, wanted["scores"][order], strict=True):
        assert np.abs(np.array(region.box.xyxy) - box.numpy()).max() < 1
        assert abs(region.score - float(score)) < 1e-3


def test_yolos_gives_the_librarys_boxes_and_scores(yolos, pictures):
    for image, regions in zip(pictures, yolos.detect(pictures), strict=True):
        assert_same(regions, library_boxes(yolos, image, 0.5), image)
        assert all(r.source == "yolos" and r.label for r in regions)


def test_yolos_on_photographs_of_mixed_sizes_does_not_know_its_batch(photographs):
    config = ProposeConfig(batch_size=4, score_threshold=0.05, device="cpu")
    yolos = PROPOSERS["yolos"].make(config, resolve("mini-proposer"))
    photos = [decode(path.read_bytes()) for path in sorted(photographs.glob("*.jpg"))[:8]]
    assert len({photo.shape for photo in photos}) > 2
    together = yolos.detect(photos)
    for photo, regions in zip(photos, together, strict=True):
        assert_same(regions, library_boxes(yolos, photo, 0.05), photo)
    assert yolos.detect(photos[3:4])[0] == together[3]


@pytest.fixture(scope="module")
def resizing_yolos(tmp_path_factory):
    """A small YOLOS with random weights that keeps the aspect, as the published ones do."""
    from transformers import YolosConfig, YolosForObjectDetection, YolosImageProcessor

    folder = tmp_path_factory.mktemp("yolos")
    torch.manual_seed(0)
    config = YolosConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        image_size=[64, 96], patch_size=16, num_detection_tokens=6, num_labels=3,
        use_mid_position_embeddings=True,
    )  # fmt: skip
    made = YolosForObjectDetection(config)
    made.vit.embeddings.position_embeddings.data.normal_()
    made.vit.encoder.interpolation.mid_position_embeddings.data.normal_()
    made.save_pretrained(folder)
    YolosImageProcessor(size={"shortest_edge": 64, "longest_edge": 96}).save_pretrained(folder)
    options = ProposeConfig(batch_size=4, score_threshold=0.01, device="cpu")
    return PROPOSERS["yolos"].make(options, resolve(str(folder)))


def test_mixed_shapes_share_no_batch_and_change_no_box(resizing_yolos, photographs):
    photos = [decode(path.read_bytes()) for path in sorted(photographs.glob("*.jpg"))[:10]]
    together = resizing_yolos.detect(photos)
    assert sum(map(len, together)) > 10
    for photo, regions in zip(photos, together, strict=True):
        assert_same(regions, library_boxes(resizing_yolos, photo, 0.01), photo)


def test_positions_are_interpolated_once_a_size_and_as_the_library_does(
    resizing_yolos, photographs, monkeypatch
):
    from transformers import YolosForObjectDetection
    from transformers.models.yolos import modeling_yolos

    photos = [decode(path.read_bytes()) for path in sorted(photographs.glob("*.jpg"))[:10]]
    inputs = [resizing_yolos.prepare(photo)[None] for photo in photos]
    shapes = {each.shape for each in inputs}
    assert 1 < len(shapes) <= yolos_module._SIZES_KEPT
    plain = YolosForObjectDetection.from_pretrained(resizing_yolos.model.name_or_path).eval()
    remembering = copy.deepcopy(plain)
    yolos_module._remember_positions(remembering)
    with torch.inference_mode():
        wanted = [plain(pixel_values=each).pred_boxes for each in inputs]
        calls = []
        real = modeling_yolos.nn.functional.interpolate
        monkeypatch.setattr(
            modeling_yolos.nn.functional,
            "interpolate",
            lambda *a, **k: [calls.append(1), real(*a, **k)][1],
        )
        found = [remembering(pixel_values=each).pred_boxes for each in inputs * 2]
    for a, b in zip(wanted * 2, found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert len(calls) == 2 * len(shapes)  # those of the first layer, those of all others


def test_an_image_thinner_than_a_patch_has_no_detections(resizing_yolos, pictures):
    thin = np.zeros((4000, 10, 3), np.uint8)
    found = resizing_yolos.detect([thin, pictures[0]])
    assert found[0] == [] and found[1] == resizing_yolos.detect(pictures[:1])[0] != []


def test_nan_is_a_failure_and_not_an_empty_picture(pictures):
    detector = PROPOSERS["yolos"].make(ProposeConfig(device="cpu"), resolve("mini-proposer"))
    detector.model.vit.layernorm.weight.data.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="YOLOS answered NaN"):
        detector.detect(pictures[:1])


@pytest.fixture(scope="module")
def yolo_checkpoint(tmp_path_factory):
    """A YOLO of the real architecture with random weights, saved as ultralytics saves."""
    from ultralytics import YOLO

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("yolo") / "yolov8n.pt"
    YOLO("yolov8n.yaml").save(str(path))
    return path


def test_yolo_wants_its_pickle_allowed(yolo_checkpoint):
    with pytest.raises(WeightsError, match="allow_pickle = true"):
        PROPOSERS["yolo"].make(ProposeConfig(backend="yolo"), resolve(str(yolo_checkpoint)))


def test_yolo_installs_nothing(yolo_checkpoint, monkeypatch):
    """Whatever the user's environment says: checking a requirement leads to no installation."""
    monkeypatch.setenv("YOLO_AUTOINSTALL", "true")
    config = ProposeConfig(backend="yolo", allow_pickle=True, device="cpu")
    PROPOSERS["yolo"].make(config, resolve(str(yolo_checkpoint)))
    assert os.environ["YOLO_AUTOINSTALL"] == "false"


def test_yolo_boxes_are_ultralytics_own_and_do_not_know_their_batch(yolo_checkpoint, photographs):
    from ultralytics import YOLO

    config = ProposeConfig(
        backend="yolo", allow_pickle=True, score_threshold=1e-7, device="cpu", batch_size=3
    )
    ours = PROPOSERS["yolo"].make(config, resolve(str(yolo_checkpoint)))
    photos = [decode(path.read_bytes()) for path in sorted(photographs.glob("*.jpg"))[:2]]
    together = ours.detect(photos)
    library = YOLO(str(yolo_checkpoint), task="detect")
    for photo, regions in zip(photos, together, strict=True):
        (wanted,) = library.predict(
            np.ascontiguousarray(photo[:, :, ::-1]), conf=1e-7, device="cpu", verbose=False
        )
        boxes = wanted.boxes.xyxy.numpy()
        assert len(regions) == len(boxes) > 0
        assert np.allclose([r.box.xyxy for r in regions], boxes, atol=0.02)
        assert all(r.source == "yolo" for r in regions)


def test_yolo_on_a_pretended_gpu(yolo_checkpoint):
    pictures = [
        np.random.default_rng(seed).integers(0, 255, (96, 128, 3), np.uint8) for seed in range(2)
    ]

    def found(device):
        config = ProposeConfig(
            backend="yolo", allow_pickle=True, score_threshold=1e-7, device=device, max_regions=20
        )
        return PROPOSERS["yolo"].make(config, resolve(str(yolo_checkpoint))).detect(pictures)

    wanted = found("cpu")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with pretend_cuda():
        assert found("cuda") == wanted and len(wanted[0]) > 0
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible


def test_a_wrong_folder_is_one_clear_error():
    with pytest.raises(WeightsError, match="cannot be loaded as YOLOS"):
        wrong = dataclasses.replace(resolve("mini-proposer"), path=resolve("mini-matcher").path)
        wrong = dataclasses.replace(wrong, path=wrong.path / "nothing")
        PROPOSERS["yolos"].make(ProposeConfig(), wrong)
