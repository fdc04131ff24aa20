"""The benchmark of LISM against FLISM: the columns do the same work, and its figures are right."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from measuring import measured
from rich.console import Console

from glit.backends.sam.model import PRESETS, build_sam
from glit.backends.weights import resolve
from glit.bench.harness import Row
from glit.bench.lism_flism.columns import COLUMNS, CROP, PARTS, covered
from glit.bench.lism_flism.fixed import fixed_boxes, rectangles
from glit.bench.lism_flism.inputs import photographs, with_sentences
from glit.bench.lism_flism.models import (
    FULL,
    SHARE_PASSING,
    TINY,
    calibrated_threshold,
    find_models,
)
from glit.bench.lism_flism.operations import (
    SAM_DECODER,
    SAM_ENCODER,
    clip_crop,
    count_parameters,
    sam_image,
    yolos_image,
)
from glit.bench.lism_flism.report import (
    TABLE_X,
    better_rates,
    main_rows,
    page,
    parameters,
    project,
)
from glit.bench.lism_flism.run import write
from glit.bench.scenes import judge
from glit.bench.tables import markdown, show
from glit.data.geometry import area_ratio_mask, grid_boxes, iou
from glit.errors import InputError, WeightsError
from glit.stages.split import SplitConfig

KEYS = [column.key for column in COLUMNS]
PAIR = ("flism-glit", "lism-one")


@pytest.fixture(scope="module")
def mini() -> Row:
    return measured(weights="mini", num_quality=4, sizes=TINY)


@pytest.mark.slow
def test_four_columns_whose_parts_make_up_their_total(mini):
    assert list(mini["columns"]) == KEYS
    for each in mini["columns"].values():
        parts = sum(each["parts_s"][part]["median"] for part in PARTS)
        total = each["total_s"]["median"]
        assert total == pytest.approx(parts)
        assert each["images_per_s"]["median"] == pytest.approx(1 / total)
        assert each["peak_host_mb"] > 100 and each["peak_device_mb"] is None
        assert each["num_dropped"] == 0
    for key in ("lism-one", "flism-one"):
        column = mini["columns"][key]
        assert column["decode_s"] == column["parts_s"]["wait"]


@pytest.mark.slow
def test_both_ways_of_a_method_look_at_the_same_regions(mini):
    columns = mini["columns"]
    regions = {key: column["regions_per_image"] for key, column in columns.items()}
    for method in ("lism", "flism"):
        assert regions[f"{method}-one"] == regions[f"{method}-glit"] > 2
    assert columns["lism-glit"]["crops_per_image"] == regions["lism-one"] + 1
    assert columns["flism-one"]["proposed_per_image"] == regions["flism-one"] - 5


@pytest.mark.slow
def test_choices_are_right_where_the_truth_is_known(mini):
    quality = mini["quality"]
    assert set(quality) == set(KEYS)
    for key, found in quality.items():
        assert found["right"] > (0.9 if key.startswith("flism") else 0.7)
        assert 0.6 < found["mean_iou"] <= 1
        assert found["num_object_sentences"] == quality["flism-one"]["num_object_sentences"]
        assert (found["global_wins"] > 0) == key.startswith("lism")


@pytest.mark.slow
def test_parameters_are_those_of_the_models(mini):
    from safetensors import safe_open

    def stored(name: str) -> int:
        with safe_open(resolve(name).path / "model.safetensors", "pt") as file:
            names = file.keys()
            shapes = {name: file.get_slice(name).get_shape() for name in names}
        buffers = ("positional_encoding_gaussian_matrix", "pixel_mean", "pixel_std", "position_ids")
        return sum(int(np.prod(s)) for key, s in shapes.items() if not key.endswith(buffers))

    assert mini["parameters"]["flism"]["clip"] == stored("mini-matcher")
    assert mini["parameters"]["flism"]["proposer"] == stored("mini-proposer")
    assert mini["parameters"]["lism"]["proposer"] == stored("mini-segmenter")


def test_random_weights_get_thirty_regions_in_every_column(random_tiny):
    assert random_tiny["settings"]["num_fixed"] == 30
    assert random_tiny["settings"]["warm_up_images"] == 1
    for column in COLUMNS:
        figures = random_tiny["columns"][column.key]
        assert figures["regions_per_image"] == 30
        scores_whole = column.method == "lism" or column.in_glit
        assert figures["crops_per_image"] == 30 + scores_whole
    assert random_tiny["quality"] is None
    assert any("speed only" in note and "30" in note for note in random_tiny["notes"])


def test_ratios_and_projection_follow_from_the_totals(random_tiny):
    total = {key: each["total_s"]["median"] for key, each in random_tiny["columns"].items()}
    first = next(r for r in random_tiny["ratios"] if (r["fast"], r["slow"]) == PAIR)
    assert first["paper"] == 12.7
    assert first["times"]["median"] == pytest.approx(total["lism-one"] / total["flism-glit"])
    docci = random_tiny["projections"][0]
    assert docci["minutes"]["lism-one"] == pytest.approx(9647 * total["lism-one"] / 60)


@pytest.mark.slow
def test_floors_are_operations_over_rates(mini):
    each_crop = []
    for key in ("lism-glit", "flism-glit"):
        column = mini["columns"][key]
        floor = column["floor"]
        seconds = {
            part: number / floor["rates"][part]["operations_per_s"]
            for part, number in floor["operations"].items()
        }
        assert floor["encode_s"] == pytest.approx(seconds.pop(CROP))
        assert floor["propose_s"] == pytest.approx(sum(seconds.values()))
        each_crop.append(floor["operations"][CROP] / column["crops_per_image"])
    assert each_crop[0] == pytest.approx(each_crop[1])


def test_the_better_rate_stays():
    def facts(first: float, second: float) -> Row:
        return {"rates": {"a": {"operations_per_s": first}, "b": {"operations_per_s": second}}}

    assert better_rates(facts(1, 5), facts(2, 4)) == facts(2, 5)


def test_projection_by_hand():
    docci, dci, many = project({"lism-one": 6.0})
    assert docci["minutes"]["lism-one"] == pytest.approx(964.7)
    assert docci["paper_minutes"] == {"lism": 1239.7, "flism": 97.63}
    assert dci["minutes"]["lism-one"] == pytest.approx(580.5)
    assert dci["paper_minutes"] == {"lism": 407.71, "flism": 34.44}
    assert many["minutes"]["lism-one"] == pytest.approx(10_000)
    assert many["paper_minutes"] == {"lism": 57 * 24 * 60}


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
    table_x = values["parameters"]["lism"]["table_x"] / 1e6
    assert f"{table_x:.1f}" in text and "projection" in text.lower()
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


def test_table_x_adds_up():
    import torch
    from transformers import CLIPConfig, CLIPModel, YolosConfig, YolosForObjectDetection

    with torch.device("meta"):
        sam = build_sam(FULL.sam)
        yolos = YolosForObjectDetection(YolosConfig(**FULL.yolos))
        clip = CLIPModel(CLIPConfig(vision_config={"patch_size": 16}))
    clip_parameters = count_parameters(clip)
    lism = parameters(proposer=count_parameters(sam), clip=clip_parameters)
    flism = parameters(proposer=count_parameters(yolos), clip=clip_parameters)
    assert round(clip_parameters / 1e6, 1) == 149.6
    assert round(lism["proposer"] / 1e6, 1) == 641.1
    assert round(flism["proposer"] / 1e6, 1) == 127.8
    assert round(lism["table_x"] / 1e6, 1) == 940.3
    assert round(flism["table_x"] / 1e6, 1) == 427.0  # Table X prints 426.9; its parts give 427.0
    assert TABLE_X == {"lism": 940.3, "flism": 426.9}
    assert round(lism["once"] / 1e6, 1) == 790.7
    assert round(flism["once"] / 1e6, 1) == 277.4


def test_operations_of_the_full_models():
    """ViT-B/16 is known as 17.5 G multiply-adds an image, SAM's ViT-H as 2.98 T."""
    import torch
    from transformers import CLIPVisionConfig, YolosConfig

    assert clip_crop(CLIPVisionConfig(patch_size=16)) / 2 == pytest.approx(17.5e9, rel=0.01)
    with torch.device("meta"):
        sam = build_sam(PRESETS["vit_h"])
    encoder = sam_image(sam, 0)[SAM_ENCODER]
    assert encoder / 2 == pytest.approx(2.98e12, rel=0.01)
    point = sam_image(sam, 1)[SAM_DECODER]
    assert 1e9 < point < 4e9
    assert sam_image(sam, 1024) == {SAM_ENCODER: encoder, SAM_DECODER: 1024 * point}
    tokens, width = 1 + 50 * 66 + 100, 768
    patching = 2 * 50 * 66 * 3 * 16**2 * width
    blocks = 12 * (24 * width**2 * tokens + 4 * width * tokens**2)
    heads = 2 * 100 * width * (2 * width + 2 * width + 92 + 4)
    wanted = patching + blocks + heads
    assert yolos_image(YolosConfig(**FULL.yolos), 800, 1056) == wanted


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
    assert [len(each) for each in texts] == [8, 8]
    assert not set(texts[0]) & set(texts[1])
    assert 150 < len(found.samples[0].caption.text.split()) < 220


def test_a_folder_without_photographs(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError, match="none of the 1 files"):
        photographs(str(tmp_path), num=3)


def test_the_threshold_lets_the_wanted_share_pass():
    import torch
    from segment_anything import SamPredictor

    torch.manual_seed(0)
    sam = build_sam(TINY.sam)
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    threshold = calibrated_threshold(sam, image, 4)
    predictor = SamPredictor(sam)
    predictor.set_image(image)
    places = (np.arange(4) + 0.5) * 16
    scores = [
        predictor.predict(np.array([[x, y]]), np.array([1]))[1] for y in places for x in places
    ]
    assert (np.concatenate(scores) > threshold).mean() == pytest.approx(SHARE_PASSING, abs=0.03)


def test_covered_time_counts_overlaps_once():
    assert covered([(0, 10), (2, 3), (8, 12), (20, 21)]) == 13
    assert covered([]) == 0


def test_real_weights_that_are_not_here():
    with pytest.raises(WeightsError, match="--weights random"):
        find_models("manifest", "cpu")
