"""``glit select --distinct``: of images that mean the same, the best one stays."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from building import run_build
from changed import rewrite
from PIL import Image, ImageFilter

import glit
from glit.dataset.query import query
from glit.errors import RunError, UserError
from glit.models.clip.encoder import ClipEncoder


@pytest.fixture(scope="module")
def copied(scenes, tmp_path_factory):
    """Eight scenes, one also as a smaller file, and one also blurred a little."""
    folder = tmp_path_factory.mktemp("copied")
    images = folder / "images"
    images.mkdir()
    lines = [json.loads(line) for line in (scenes / "captions.jsonl").read_text().splitlines()]
    captions = {row["path"].split("/")[-1]: row["caption"] for row in lines}
    rows = []
    for number in range(8):
        name = f"{number:06d}.png"
        shutil.copy(scenes / "images" / name, images)
        rows.append({"path": name, "caption": captions[name]})
    first, second = (Image.open(images / f"{number:06d}.png") for number in range(2))
    first.resize((first.width - 8, first.height - 8)).save(images / "a-smaller.png")
    second.filter(ImageFilter.GaussianBlur(0.5)).save(images / "z-blurred.png")
    rows += [{"path": "a-smaller.png", "caption": captions["000000.png"]},
             {"path": "z-blurred.png", "caption": captions["000001.png"]}]  # fmt: skip
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(scope="module")
def dataset(copied):
    run_build(
        copied / "images", copied / "dataset", captions=copied / "captions.jsonl",
        overrides=["quality.enabled=true"],
    )  # fmt: skip
    return copied / "dataset"


def files(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_the_sharpest_stays_and_the_pairs_are_told(dataset, tmp_path):
    found = glit.select(dataset, tmp_path / "a" / "new", distinct=0.97, model="mini-matcher")
    assert glit.verify(tmp_path / "a" / "new") == []
    pairs = found.duplicates().to_pylist()
    assert {(row["source_path"], row["kept_path"]) for row in pairs} >= {
        ("z-blurred.png", "000001.png")
    }
    assert {row["kind"] for row in pairs} == {"meaning"}
    assert all(0 <= row["distance"] <= 0.03 for row in pairs)
    counts = found.manifest.counts
    assert (counts.shipped, counts.duplicates) == (10 - len(pairs), len(pairs))
    kept = {row.source_path for row in found}
    assert kept.isdisjoint({row["source_path"] for row in pairs})
    assert kept >= {row["kept_path"] for row in pairs}
    sql = "SELECT max(distance) FROM duplicates"
    assert query(str(tmp_path / "a" / "new"), sql).fetchall()[0][0] <= 0.03
    selection = found.manifest.selection.more
    assert selection["distinct"] == 0.97 and selection["model"] == "mini-matcher"
    assert len(selection["model_sha256"]) == 64
    glit.select(dataset, tmp_path / "b" / "new", distinct=0.97, model="mini-matcher")
    assert files(tmp_path / "a" / "new") == files(tmp_path / "b" / "new")


def test_without_measures_the_largest_stays(copied, tmp_path):
    run_build(copied / "images", tmp_path / "plain", captions=copied / "captions.jsonl")
    found = glit.select(tmp_path / "plain", tmp_path / "new", distinct=0.97, model="mini-matcher")
    pairs = {row["source_path"]: row["kept_path"] for row in found.duplicates().to_pylist()}
    assert pairs["a-smaller.png"] == "000000.png"


def test_a_labelled_one_stays_then_the_largest_then_the_sharpest(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    first, second = (Image.open(scenes / "images" / f"{number:06d}.png") for number in range(2))
    blur = ImageFilter.GaussianBlur(0.5)
    first.save(images / "sharp.png")
    first.resize((first.width - 8, first.height - 8)).filter(blur).save(images / "labelled.png")
    second.resize((second.width + 8, second.height + 8)).filter(blur).save(images / "large.png")
    second.save(images / "small.png")
    lines = [{"path": path.name, "caption": "A scene."} for path in sorted(images.iterdir())]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run_build(
        images, tmp_path / "dataset", captions=tmp_path / "captions.jsonl", recipe="captions-only",
        overrides=["quality.enabled=true", "pack.min_files=1"],
    )  # fmt: skip

    def with_a_box(rows):
        by_name = {row["source_path"]: row for row in rows}
        sharpness = {name: row["quality"]["sharpness"] for name, row in by_name.items()}
        assert sharpness["sharp.png"] > sharpness["labelled.png"]
        assert sharpness["small.png"] > sharpness["large.png"]
        box = {"x0": 8.0, "y0": 8.0, "x1": 40.0, "y1": 40.0}
        region = {**box, "score": 1.0, "label": "", "source": "file"}
        scores = {"similarity": [0.5], "image_similarity": [0.4]}
        by_name["labelled.png"] |= {"regions": [region], **scores}

    rewrite(tmp_path / "dataset", with_a_box)
    found = glit.select(tmp_path / "dataset", tmp_path / "new", distinct=0.9, model="mini-matcher")
    pairs = {row["source_path"]: row["kept_path"] for row in found.duplicates().to_pylist()}
    assert pairs == {"sharp.png": "labelled.png", "small.png": "large.png"}


def test_parts_keep_the_balance_and_no_repeats(dataset, tmp_path, run_glit):
    done = run_glit(
        "select", str(dataset), "-o", str(tmp_path / "new"), "--distinct", "0.97", "--model",
        "mini-matcher", "--split", "a=0.5,b=0.5",
    )  # fmt: skip
    assert done.code == 0 and "near-duplicates left out" in done.output
    parts = [glit.open_dataset(tmp_path / "new" / part) for part in ("a", "b")]
    assert all(glit.verify(part.path) == [] for part in parts)
    total = sum(len(part) + part.manifest.counts.duplicates for part in parts)
    assert total == 10
    glit.merge([part.path for part in parts], tmp_path / "merged")
    assert glit.verify(tmp_path / "merged") == []


def test_values_that_cannot_be(dataset, tmp_path, monkeypatch):
    for cosine, model, said in (
        (0.9, "", "go together"),
        (None, "mini-matcher", "go together"),
        (float("nan"), "mini-matcher", "--distinct nan"),
        (1.5, "mini-matcher", r"--distinct 1\.5"),
    ):
        with pytest.raises(UserError, match=said):
            glit.select(dataset, tmp_path / "new", distinct=cosine, model=model)
    with pytest.raises(glit.GlitError, match="no-such-model"):
        glit.select(dataset, tmp_path / "new", distinct=0.9, model="no-such-model")

    def broken(self, pixels, **_):
        return None, torch.full((len(pixels), self.width), torch.nan)

    monkeypatch.setattr(ClipEncoder, "encode_images", broken)
    with pytest.raises(RunError, match="not finite"):
        glit.select(dataset, tmp_path / "new", distinct=0.9, model="mini-matcher")
    assert not (tmp_path / "new").exists()
