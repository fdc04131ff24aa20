"""Every format, read by the library that its users read it with: the same boxes, the same spans."""

from __future__ import annotations

import gc
import json
import tracemalloc
import warnings

import numpy as np
import pytest
from building import run_build
from PIL import Image

from glit.dataset.reader import Dataset
from glit.dataset.select import narrowed
from glit.errors import InputError
from glit.exporters import EXPORTERS, export
from glit.exporters.parts import write_tables


def pairs_of(dataset) -> dict[str, list]:
    """Box in pixels and span of every usable pair, by image."""
    return {
        row.sample_id: sorted(
            ((s.char_start, s.char_end), row.regions[p.region].box.xyxy)
            for p in row.pairs
            if not p.global_wins
            for s in [row.sentences[p.sentence]]
        )
        for row in dataset
    }


def boxes_of(dataset) -> dict[str, list]:
    return {row.sample_id: [r.box.xyxy for r in row.regions] for row in dataset}


def corners(xywh):
    x, y, width, height = xywh
    return (x, y, x + width, y + height)


def size_of(path):
    with Image.open(path) as image:
        return image.size


def read_coco(folder):
    from pycocotools.coco import COCO

    coco = COCO(folder / "instances.json")
    pairs, boxes = {}, {}
    for image_id, image in coco.imgs.items():
        key = image["file_name"]
        found = coco.imgToAnns[image_id]
        boxes[key] = [corners(each["bbox"]) for each in found]
        pairs[key] = sorted(
            ((s["char_start"], s["char_end"]), corners(each["bbox"]))
            for each in found
            for s in each["sentences"]
        )
    return pairs, boxes


def read_mdetr(folder):
    from pycocotools.coco import COCO

    coco = COCO(folder / "annotations.json")
    pairs = {}
    for image_id, image in coco.imgs.items():
        assert size_of(folder / "images" / image["file_name"]) == (image["width"], image["height"])
        assert image["tokens_negative"] == [[0, len(image["caption"])]]
        pairs[image["file_name"]] = sorted(
            (tuple(span), corners(each["bbox"]))
            for each in coco.imgToAnns[image_id]
            for span in each["tokens_positive"]
        )
    return pairs, None


def read_odvg(folder):
    """As MM-Grounding-DINO's dataset class does, and TAO's, which takes ``file_name``."""
    pairs = {}
    for line in (folder / "annotations.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        assert row["file_name"] == row["filename"]
        assert size_of(folder / "images" / row["filename"]) == (row["width"], row["height"])
        grounding = row["grounding"]
        for region in grounding["regions"]:
            [(start, end)] = region["tokens_positive"]
            assert grounding["caption"][start:end] == region["phrase"]
        pairs[row["filename"]] = sorted(
            (tuple(region["tokens_positive"][0]), tuple(region["bbox"]))
            for region in grounding["regions"]
        )
    return pairs, None


def read_grit(folder):
    from datasets import load_dataset

    rows = load_dataset(
        "parquet", data_files=str(folder / "grit-*.parquet"), split="train",
        cache_dir=str(folder.parent / "cache"),
    )  # fmt: skip
    pairs = {}
    for row in rows:
        assert (folder / row["file_name"]).is_file()
        size = np.array([row["width"], row["height"]] * 2)
        pairs[row["key"]] = sorted(
            ((int(start), int(end)), tuple(np.array(box) * size))
            for start, end, *box, _ in row["ref_exps"]
        )
    return pairs, None


def read_goal(folder):
    """As the published trainer does: no library of its own reads it."""
    from torch.utils.data import default_collate

    pairs = {}
    for entry in json.loads((folder / "goal.json").read_text()):
        whole = size_of(folder / entry["original_filename"])
        found = []
        for segment in entry["segment"]:
            box = {
                key: value[0].item()
                for key, value in default_collate([segment["bbox_coordinates"]]).items()
            }
            assert (box["width"], box["height"]) == whole
            width, height = size_of(folder / segment["filename"])
            assert abs(width - (box["x2"] - box["x1"])) <= 1
            assert abs(height - (box["y2"] - box["y1"])) <= 1
            start = entry["original_caption"].find(segment["caption"])
            xyxy = (box["x1"], box["y1"], box["x2"], box["y2"])
            found.append(((start, start + len(segment["caption"])), xyxy))
        best = max(entry["segment"], key=lambda each: each["similarity_score"])
        assert best["filename"].endswith("_0.png")
        pairs[entry["original_filename"].removeprefix("images/")] = sorted(found)
    for path in (folder / "without-pairs.txt").read_text().splitlines():
        pairs[path] = []
    return pairs, None


def read_hf(folder):
    from datasets import ClassLabel, load_dataset

    rows = load_dataset(str(folder), split="train", cache_dir=str(folder.parent / "cache"))
    kinds = rows.features["objects"]["categories"].feature
    assert isinstance(kinds, ClassLabel) and "centre" not in kinds.names
    assert rows.features["objects"]["bbox"].feature.length == 4
    pairs, boxes = {}, {}
    for row in rows:
        assert row["image"].size == (row["width"], row["height"])
        found = boxes[row["image_id"]] = [corners(box) for box in row["objects"]["bbox"]]
        pairs[row["image_id"]] = sorted(
            ((pair["char_start"], pair["char_end"]), found[pair["object"]]) for pair in row["pairs"]
        )
    return pairs, boxes


def read_webdataset(folder):
    import webdataset

    shards = sorted(str(path) for path in folder.iterdir())
    pairs, boxes = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the library leaves its files open
        rows = webdataset.WebDataset(shards, shardshuffle=False).decode("pil")
        samples = list(rows.to_tuple("__key__", "png", "txt", "json"))
        del rows
        gc.collect()
    for key, image, caption, about in samples:
        assert image.size == (about["width"], about["height"])
        found = boxes[key] = [tuple(region["bbox"]) for region in about["regions"]]
        spans = [(s["char_start"], s["char_end"]) for s in about["sentences"]]
        texts = [caption[start:end] for start, end in spans]
        assert texts == [s["text"] for s in about["sentences"]]
        pairs[key] = sorted(
            (spans[p["sentence"]], found[p["region"]])
            for p in about["pairs"]
            if not p["global_wins"]
        )
    return pairs, boxes


def read_lance(folder):
    import lance

    pairs, boxes = {}, {}
    for row in lance.dataset(str(folder / "dataset.lance")).to_table().to_pylist():
        assert row["image"]["bytes"][:4] == b"\x89PNG"
        found = [tuple(r[key] for key in ("x0", "y0", "x1", "y1")) for r in row["regions"]]
        boxes[row["sample_id"]] = found
        spans = [(s["char_start"], s["char_end"]) for s in row["sentences"]]
        pairs[row["sample_id"]] = sorted(
            (spans[p["sentence"]], found[p["region"]]) for p in row["pairs"] if not p["global_wins"]
        )
    return pairs, boxes


READERS = {
    "coco": read_coco,
    "goal": read_goal,
    "grit": read_grit,
    "hf": read_hf,
    "lance": read_lance,
    "mdetr": read_mdetr,
    "odvg": read_odvg,
    "webdataset": read_webdataset,
}


@pytest.fixture(scope="module")
def with_lism(scenes, tmp_path_factory):
    """Some sentences have no region, some regions have several."""
    folder = tmp_path_factory.mktemp("lism") / "dataset"
    run_build(
        scenes / "images", folder, captions=scenes / "captions.jsonl", limit=12,
        overrides=["pair.rule=lism"],
    )  # fmt: skip
    return Dataset(folder)


def test_every_format_is_read_back():
    assert {*READERS, "annotations"} == set(EXPORTERS), "attaching/test_attach.py reads that"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("where", ["", "source_path LIKE '%7.png' OR source_path LIKE '%2.png'"])
@pytest.mark.parametrize("name", READERS)
def test_the_same_boxes_and_spans_come_out(with_lism, tmp_path, name, where):
    told = []
    with_lism = narrowed(with_lism, where)
    assert len(with_lism) == (2 if where else 12)
    export(with_lism, to=name, output=tmp_path / name, report=told.append)
    assert sum(told) == len(with_lism)
    pairs, boxes = READERS[name](tmp_path / name)
    wanted = pairs_of(with_lism)
    assert any(not each for each in wanted.values()) or sum(map(len, wanted.values())) > 12
    known = {row.source_path: row.sample_id for row in with_lism}
    pairs = {known.get(key, key): found for key, found in pairs.items()}
    boxes = boxes and {known.get(key, key): found for key, found in boxes.items()}
    assert set(pairs) == set(wanted)
    for key, found in pairs.items():
        assert [span for span, _ in found] == [span for span, _ in wanted[key]]
        for (_, box), (_, true) in zip(found, wanted[key], strict=True):
            np.testing.assert_allclose(box, true, rtol=0, atol=1e-3)
    if boxes is not None:
        true_boxes = boxes_of(with_lism)
        assert set(boxes) == set(true_boxes)
        for key, found in boxes.items():
            np.testing.assert_allclose(found, true_boxes[key], rtol=0, atol=1e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_lance_searches_the_embeddings_of_a_clip(with_lism, tmp_path, run_glit):
    import lance
    import torch
    from transformers import CLIPModel, CLIPProcessor

    from glit.recipes.resources import mini_model

    done = run_glit(
        "export", with_lism.path, "--to", "lance", "-o", tmp_path / "out",
        "--embeddings", "mini-matcher",
    )  # fmt: skip
    assert done.code == 0, done.errors
    opened = lance.dataset(str(tmp_path / "out" / "dataset.lance"))
    rows = opened.to_table(columns=["sample_id", "embedding"]).to_pylist()
    folder = mini_model("matcher")
    model, processor = CLIPModel.from_pretrained(folder), CLIPProcessor.from_pretrained(folder)
    images = [Image.fromarray(row.pixels()) for row in with_lism]
    with torch.inference_mode():
        said = model.get_image_features(**processor(images=images, return_tensors="pt"))
    wanted = torch.nn.functional.normalize(said.pooler_output, dim=-1).numpy()
    np.testing.assert_allclose([row["embedding"] for row in rows], wanted, atol=2e-2)
    nearest = opened.to_table(
        columns=["sample_id"], nearest={"column": "embedding", "q": wanted[3], "k": 1}
    )
    assert nearest["sample_id"].to_pylist() == [rows[3]["sample_id"]]


def test_only_lance_takes_embeddings(with_lism, tmp_path):
    with pytest.raises(
        InputError, match="--embeddings: --to coco does not take it; want --to lance"
    ):
        export(with_lism, to="coco", output=tmp_path / "out", embeddings="mini-matcher")


@pytest.mark.parametrize("name", ["hf", "lance", "webdataset"])
def test_pictures_that_are_stored_by_path_go_in(scenes, tmp_path, run_glit, name):
    run_build(
        scenes / "images", tmp_path / "dataset", captions=scenes / "captions.jsonl", limit=2,
        overrides=["pack.image_store=path"],
    )  # fmt: skip
    done = run_glit(
        "export", tmp_path / "dataset", "--to", name, "-o", tmp_path / name, "--image-root",
        scenes / "images",
    )  # fmt: skip
    assert done.code == 0, done.errors
    first = (scenes / "images" / "000000.png").read_bytes()
    assert any(
        first in path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()
    )


def test_memory_stays_flat(tmp_path):
    """Tables are written a row group at a time, whatever their number."""
    import pyarrow as pa

    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])

    def peak(rows: int) -> int:
        tracemalloc.start()
        write_tables(
            ({"n": n, "text": "x" * 100} for n in range(rows)), schema, tmp_path, f"r{rows}"
        )
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(100)
    assert peak(20_000) < 4 * peak(1_000)


def test_the_page_and_the_preview_for_the_hub(with_lism, tmp_path):
    from datasets import Features, load_dataset
    from huggingface_hub import DatasetCard

    folder = tmp_path / "hf"
    export(with_lism, to="hf", output=folder)
    card = DatasetCard.load(folder / "README.md")
    assert card.data.license == "unknown" and "name the licence" in card.text
    assert [config["config_name"] for config in card.data.configs] == ["default", "preview"]
    assert card.data.dataset_info[0]["splits"][0]["num_examples"] == 12
    pictures = sorted(path.name for path in (folder / "pictures").iterdir())
    assert pictures == ["1.jpg", "2.jpg", "3.jpg"]
    assert all(f"](pictures/{name})" in card.text for name in pictures)
    assert "| found | 12 |\n| here | 12 |" in card.text
    regions = sum(len(row.regions) for row in with_lism) / 12
    assert f"| regions per image | {regions:.1f} |" in card.text
    assert "| GLIT100k | 100,647 | 159 |" in card.text
    assert all(len(line) <= 100 or line.startswith(("|", "!")) for line in card.text.splitlines())
    for info, loaded in zip(card.data.dataset_info, ("default", "preview"), strict=True):
        assert info["config_name"] == loaded
        given = load_dataset(
            "parquet", data_files=f"{folder}/{'data' if loaded == 'default' else loaded}/*.parquet",
            split="train", cache_dir=str(tmp_path / "plain"),
        )  # fmt: skip
        assert Features._from_yaml_list(info["features"]) == given.features
    rows = load_dataset(
        str(folder), "preview", split="train", cache_dir=str(tmp_path / "cache")
    )  # fmt: skip
    assert len(rows) == 12
    for shown, row in zip(rows, with_lism, strict=True):
        assert shown["image_id"] == row.sample_id
        assert [text.split(" ", 1)[1] for text in shown["sentences"]] == [
            s.text for s in row.sentences
        ]
        paired = {p.sentence for p in row.pairs if not p.global_wins}
        assert {n for n, text in enumerate(shown["sentences"]) if text[0] != "–"} == paired
        drawn = np.asarray(shown["image"]).astype(int)
        plain = row.pixels().astype(int)
        changed = np.abs(drawn - plain).max(axis=2) > 60
        region = next((p.region for p in row.pairs if not p.global_wins), None)
        if region is not None:
            x0, y0, x1, y1 = (round(value) for value in row.regions[region].box.xyxy)
            assert changed[y0:y1, x0:x1].any()
