"""Equal pictures, of which some have captions or regions: none of them vanishes."""

from __future__ import annotations

import io
import json

import pyarrow.parquet as pq
import pytest
from building import counts, png, run_build
from PIL import Image, ImageFilter


def row(path: str, text: str = "A red cup stands on a table. It is full.") -> dict:
    return {"path": path, "caption": text}


def build(tmp_path, pictures: dict[str, bytes], captions=(), *, regions=(), overrides=(), **rest):
    images = tmp_path / "in"
    images.mkdir(exist_ok=True)
    for name, data in pictures.items():
        (images / name).write_bytes(data)
    files = {}
    for name, rows in (("captions", captions), ("regions", regions)):
        if rows:
            files[name] = tmp_path / f"{name}.jsonl"
            files[name].write_text("".join(json.dumps(each) + "\n" for each in rows))
    recipe = "provided" if regions else "captions-only"
    own = [*([] if captions else ["caption.backend=sidecar"]), *overrides]
    return run_build(images, tmp_path / "out", overrides=own, recipe=recipe, **files, **rest)


def samples(tmp_path) -> list[dict]:
    files = sorted((tmp_path / "out" / "data").glob("*.parquet"))
    return [each for file in files for each in pq.read_table(file).to_pylist()]


def dropped(tmp_path) -> list[tuple[str, str]]:
    rows = pq.read_table(tmp_path / "out" / "drops.parquet").to_pylist()
    return [(each["reason"], each["message"]) for each in rows]


@pytest.mark.parametrize("chunk_size", [1, 4])
def test_the_one_with_a_caption_stays(tmp_path, chunk_size):
    pictures = {"a_copy.png": png(seed=1), "b.png": png(seed=1), "c.png": png(seed=2)}
    overrides = [f"ingest.chunk_size={chunk_size}"]
    manifest = build(tmp_path, pictures, [row("b.png"), row("c.png")], overrides=overrides)
    assert counts(manifest) == (3, 2, 0, 1)
    assert {each["source_path"] for each in samples(tmp_path)} == {"b.png", "c.png"}


def test_the_one_with_a_text_beside_it_stays(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.txt").write_text("A red cup stands on a table.")
    manifest = build(tmp_path, {"a.png": png(seed=1), "b.png": png(seed=1)})
    assert counts(manifest) == (2, 1, 0, 1)
    assert [each["source_path"] for each in samples(tmp_path)] == ["b.png"]


def test_captions_and_boxes_of_equal_pictures_are_joined(tmp_path):
    box = {"path": "b.png", "width": 64, "height": 64, "box_xyxy": [4, 4, 40, 40]}
    box["sentences"] = ["A red cup stands on a table."]
    other = {**box, "path": "c.png", "box_xyxy": [8, 8, 50, 50]}
    pictures = {name: png(size=(64, 64), seed=1) for name in ("a.png", "b.png", "c.png")}
    manifest = build(
        tmp_path, pictures, [row("a.png"), row("c.png")], regions=[box, other, {**box, "path": "c.png"}],    )  # fmt: skip
    assert counts(manifest) == (3, 1, 0, 2)
    (sample,) = samples(tmp_path)
    assert sample["source_path"] == "c.png"
    assert sorted(
        tuple(each[edge] for edge in ("x0", "y0", "x1", "y1")) for each in sample["regions"]
    ) == [
        (4, 4, 40, 40),
        (8, 8, 50, 50),
    ]


def test_captions_that_contradict_are_dropped_and_both_are_named(tmp_path):
    pictures = {"q1.png": png(seed=1), "q2.png": png(seed=1), "r.png": png(seed=2)}
    texts = [row("q1.png"), row("q2.png", "Beside the window there is a plant."), row("r.png")]
    manifest = build(tmp_path, pictures, texts, overrides=["ingest.chunk_size=1"])
    assert counts(manifest) == (3, 1, 1, 1)
    ((reason, message),) = dropped(tmp_path)
    assert reason == "ambiguous_caption"
    assert message.startswith("q1.png and q2.png are the same picture with different captions")


@pytest.mark.parametrize("empty", ["", "  ", "A red cup  stands on a table.\nIt is full."])
def test_an_empty_or_the_same_caption_contradicts_none(tmp_path, empty):
    manifest = build(
        tmp_path, {"a.png": png(seed=1), "b.png": png(seed=1)}, [row("a.png", empty), row("b.png")]
    )
    assert counts(manifest) == (2, 1, 0, 1)


def test_captions_of_kinds_are_joined(tmp_path):
    captions = [
        {"path": "a.png", "caption": "A red cup stands on a table.", "kind": "long"},
        {"path": "b.png", "caption": "A cup.", "kind": "short"},
        {"path": "b.png", "caption": "A red cup stands on a table.", "kind": "long"},
    ]
    manifest = build(tmp_path, {"a.png": png(seed=1), "b.png": png(seed=1)}, captions)
    assert counts(manifest) == (2, 1, 0, 1)
    (sample,) = samples(tmp_path)
    assert [each["kind"] for each in sample["captions"]] == ["long", "short"]


def near(side: int, blur: float = 0) -> bytes:
    image = Image.open(io.BytesIO(png(size=(16, 16), seed=3))).convert("RGB")
    image = image.resize((side, side), Image.Resampling.NEAREST)
    data = io.BytesIO()
    image.filter(ImageFilter.GaussianBlur(blur)).save(data, "PNG")
    return data.getvalue()


@pytest.mark.parametrize(
    ("pictures", "labelled", "kept"),
    [
        ({"a.png": near(80), "b.png": near(320)}, "ab", "b.png"),
        ({"a.png": near(160, 2), "b.png": near(160)}, "ab", "b.png"),
        ({"a.png": near(320), "b.png": near(80)}, "b", "b.png"),
    ],
    ids=["larger", "sharper", "labelled"],
)
def test_of_near_duplicates_the_best_stays(tmp_path, pictures, labelled, kept):
    captions = [row(f"{name}.png", f"A cup {name}.") for name in labelled]
    overrides = ["ingest.near_duplicates=8"]
    manifest = build(tmp_path, pictures, captions, overrides=overrides)
    assert counts(manifest) == (2, 1, 0, 1)
    assert [each["source_path"] for each in samples(tmp_path)] == [kept]


def test_a_caption_that_is_added_later_decides_anew(tmp_path):
    pictures = {"a.png": png(seed=1), "b.png": png(seed=1)}
    assert counts(build(tmp_path, pictures, [row("a.png")])) == (2, 1, 0, 1)
    assert samples(tmp_path)[0]["source_path"] == "a.png"
    assert counts(build(tmp_path, pictures, [row("b.png")], replace=True)) == (2, 1, 0, 1)
    assert samples(tmp_path)[0]["source_path"] == "b.png"
