"""The benchmark of LISM against FLISM: the columns do the same work, and its figures are right."""

from __future__ import annotations

import io
import json
import re
import time
from collections import namedtuple

import numpy as np
import psutil
import pytest
from measuring import measured
from rich.console import Console

from glit.bench.harness import Row
from glit.bench.lism_flism.columns import PARTS, columns_on
from glit.bench.lism_flism.fixed import fixed_boxes, rectangles
from glit.bench.lism_flism.inputs import photographs, with_sentences
from glit.bench.lism_flism.models import (
    FULL,
    SHARE_PASSING,
    TINY,
    calibrated_threshold,
    find_models,
)
from glit.bench.lism_flism.published_sam import build_published
from glit.bench.lism_flism.report import main_rows, page
from glit.bench.lism_flism.run import write
from glit.bench.machine import Load, describe_machine
from glit.bench.scenes import judge
from glit.data.geometry import area_ratio_mask, grid_boxes, iou
from glit.errors import InputError, WeightsError
from glit.models.weights import resolve
from glit.runtime.tables import markdown, show
from glit.stages.split import SplitConfig

KEYS = [column.key for column in columns_on("cpu")]
PAIR = ("flism-glit", "lism-one")


@pytest.fixture(scope="module")
def mini() -> Row:
    return measured(weights="mini", num_quality=4, sizes=TINY)


@pytest.mark.slow
def test_columns_whose_parts_make_up_their_total(mini):
    assert list(mini["columns"]) == KEYS
    for each in mini["columns"].values():
        parts = sum(each["parts_s"][part]["median"] for part in PARTS)
        total = each["total_s"]["median"]
        assert total == pytest.approx(parts)
        assert each["images_per_s"]["median"] == pytest.approx(1 / total)
        assert each["peak_host_mb"] > 100 and each["peak_device_mb"] is None
        assert each["num_dropped"] == 0


@pytest.mark.slow
def test_both_ways_of_a_method_look_at_the_same_regions(mini):
    columns = mini["columns"]
    regions = {key: column["regions_per_image"] for key, column in columns.items()}
    for method in ("lism", "flism"):
        assert regions[f"{method}-one"] == regions[f"{method}-glit"] > 2


@pytest.mark.slow
def test_choices_are_right_where_the_truth_is_known(mini):
    quality = mini["quality"]
    assert set(quality) == set(KEYS)
    for key, found in quality.items():
        assert found["right"] > (0.9 if key.startswith("flism") else 0.7)
        assert 0.6 < found["mean_iou"] <= 1
        assert found["num_object_sentences"] == quality["flism-one"]["num_object_sentences"]
        assert (found["global_wins"] > 0) == key.startswith("lism")


def test_random_weights_get_thirty_regions_in_every_column(random_tiny):
    assert random_tiny["settings"]["num_fixed"] == 30
    assert random_tiny["settings"]["warm_up_images"] == 1
    for key in KEYS:
        assert random_tiny["columns"][key]["regions_per_image"] == 30
    assert random_tiny["quality"] is None
    assert any("speed only" in note and "30" in note for note in random_tiny["notes"])


def test_ratios_follow_from_the_totals(random_tiny):
    total = {key: each["total_s"]["median"] for key, each in random_tiny["columns"].items()}
    first = next(r for r in random_tiny["ratios"] if (r["fast"], r["slow"]) == PAIR)
    assert first["paper"] == 12.7
    assert first["times"]["median"] == pytest.approx(total["lism-one"] / total["flism-glit"])


def test_the_report_names_instructions_and_says_if_the_machine_was_busy(random_tiny):
    instructions = random_tiny["machine"]["instructions"]
    assert instructions and instructions in markdown(page(random_tiny))
    for column in random_tiny["columns"].values():
        assert column["cpu_s"]["median"] > 0
    idle, busy = random_tiny | {"others": 0.0}, random_tiny | {"others": 1.3}
    assert "not idle" not in markdown(page(idle))
    assert "others took up to 1.30 cores" in markdown(page(busy))


def test_limits_of_instructions_are_named(monkeypatch):
    for name in ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert describe_machine("cpu")["instructions"].endswith(", ONEDNN_MAX_CPU_ISA=AVX2")


def test_work_of_others_is_counted_apart(monkeypatch):
    Times = namedtuple("Times", "user nice system idle")
    times = iter([Times(10.0, 0.0, 0.0, 50.0), Times(16.0, 0.0, 0.0, 54.0)])
    monkeypatch.setattr(psutil, "cpu_times", times.__next__)
    monkeypatch.setattr(time, "process_time", iter([1.0, 3.0]).__next__)
    monkeypatch.setattr(time, "perf_counter", iter([100.0, 102.0]).__next__)
    assert Load().others() == pytest.approx(2.0)  # (6 s of all - 2 s of its own) in 2 s


@pytest.mark.slow
def test_files_hold_the_same_figures(mini, tmp_path):
    paths = write(mini, tmp_path)
    assert [path.name for path in paths] == [
        f"lism-flism.{s}" for s in ("json", "md", "png", "svg")
    ]
    values = json.loads(paths[0].read_text())
    text = paths[1].read_text()
    for key in KEYS:
        median = values["columns"][key]["total_s"]["median"]
        assert median == mini["columns"][key]["total_s"]["median"]
        row = next(line for line in text.splitlines() if line.startswith("| **total**"))
        shown = [float(x) for x in re.findall(r"\*\*([\d.]+)\*\*", row)]
        assert shown[KEYS.index(key)] == pytest.approx(median, rel=0.01)
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in paths[3].read_text()


def test_the_picture_is_the_same_every_time(random_tiny, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        write(random_tiny, folder)
    assert (folders[0] / "lism-flism.svg").read_bytes() == (
        folders[1] / "lism-flism.svg"
    ).read_bytes()


def test_no_path_of_the_machine_in_the_output(random_tiny):
    text = json.dumps(random_tiny) + markdown(page(random_tiny))
    assert "/" not in re.sub(r"[A-Za-z]+/s |min–max|\bG/s", "", text.replace("</", ""))


def test_terminal_and_page_show_the_same_cells(random_tiny):
    console = Console(width=200, record=True, quiet=False, file=io.StringIO())
    show(page(random_tiny), console)
    text = console.export_text()
    for _, *cells in main_rows(random_tiny):
        assert all(cell in text for cell in cells)


def test_the_random_models_have_the_papers_sizes():
    """Millions of parameters as FAST-GOAL's Table X has them."""
    import torch
    from transformers import (
        CLIPConfig,
        CLIPModel,
        SamConfig,
        SamModel,
        YolosConfig,
        YolosForObjectDetection,
    )

    with torch.device("meta"):
        sam = SamModel(SamConfig(**FULL.sam))
        yolos = YolosForObjectDetection(YolosConfig(**FULL.yolos))
        clip = CLIPModel(CLIPConfig(vision_config={"patch_size": 16}))
    counted = [sum(p.numel() for p in model.parameters()) / 1e6 for model in (clip, sam, yolos)]
    assert [round(each, 1) for each in counted] == [149.6, 641.1, 127.8]


@pytest.mark.parametrize("size", [(1024, 1024), (640, 427), (96, 96), (3000, 400)])
def test_fixed_boxes_pass_every_filter(size):
    width, height = size
    boxes = fixed_boxes(width, height, 30)
    assert boxes.shape == (30, 4)
    assert (boxes == boxes.round()).all() and (boxes == fixed_boxes(width, height, 30)).all()
    limits = {"min_ratio": 0.01, "max_ratio": 0.8}
    assert area_ratio_mask(boxes, width=width, height=height, **limits).all()
    grid = np.array(list(grid_boxes(width=width, height=height).values()), dtype=float)
    everything = np.concatenate([grid, boxes])
    overlaps = iou(everything, everything)[5:]
    overlaps[np.arange(30), np.arange(5, 35)] = 0
    assert overlaps.max() <= 0.8
    masks = rectangles(width, height, boxes)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    assert [mask.sum() for mask in masks] == areas.tolist()


def test_quality_by_hand(scenes):
    found = photographs(str(scenes / "images"), num=1)
    sample = with_sentences(found, resolve("mini-matcher"), SplitConfig()).samples[0]
    starts = [sentence.char_start for sentence in sample.sentences or ()]
    truth = {starts[0]: (0, 0, 10, 10), starts[1]: (0, 0, 10, 10), starts[2]: (5, 5, 9, 9)}
    chosen = [(0.0, 0.0, 10.0, 8.0), (0.0, 0.0, 10.0, 4.0), None, (1.0, 1.0, 2.0, 2.0)]
    chosen += [None] * (len(starts) - len(chosen))
    result = judge([sample], [tuple(chosen)], [truth])
    assert result["num_object_sentences"] == 3
    assert result["right"] == pytest.approx(1 / 3)
    assert result["mean_iou"] == pytest.approx((0.8 + 0.4) / 2)
    assert result["global_wins"] == pytest.approx((len(starts) - 3) / len(starts))
    assert result["global_wins_object"] == pytest.approx(1 / 3)


def test_captions_of_photographs_differ_and_are_long(scenes):
    found = photographs(str(scenes / "images"), num=2)
    batch = with_sentences(found, resolve("mini-matcher"), SplitConfig())
    texts = [[sentence.text for sentence in s.sentences or ()] for s in batch.samples]
    assert min(len(each) for each in texts) >= 6
    assert not set(texts[0]) & set(texts[1])
    assert 100 < len(found.samples[0].caption.text.split()) < 220


def test_a_folder_without_photographs(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError, match="none of the 1 files"):
        photographs(str(tmp_path), num=3)


def test_the_threshold_lets_the_wanted_share_pass():
    import torch
    from segment_anything import SamPredictor
    from transformers import SamConfig

    torch.manual_seed(0)
    sam = build_published(SamConfig(**TINY.sam))
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    threshold = calibrated_threshold(sam, image, 4)
    predictor = SamPredictor(sam)
    predictor.set_image(image)
    places = (np.arange(4) + 0.5) * 16
    scores = [
        predictor.predict(np.array([[x, y]]), np.array([1]))[1] for y in places for x in places
    ]
    assert (np.concatenate(scores) > threshold).mean() == pytest.approx(SHARE_PASSING, abs=0.03)


def test_real_weights_that_are_not_here():
    with pytest.raises(WeightsError, match="--weights random"):
        find_models("manifest", "cpu")
