"""Captions that a user brings, in a file or beside the images."""

from __future__ import annotations

import io
import json
import shutil

import pyarrow.parquet as pq
import pytest
from building import counts, json_lines, png, run_build
from rich.console import Console

from glit.dataset.verify import verify
from glit.errors import InputError
from glit.inputs.user_captions import read_captions
from glit.runtime.progress import StageProgress


def test_captions_of_every_kind(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    names = ["a.png", "b.png", "c.png", "d.png", "e.png", "f.png", "g.png"]
    for number, name in enumerate(names):
        (images / name).write_bytes(png(seed=number))
    rows = [
        {"path": "a.png", "caption": "一只猫坐在垫子上。旁边有一只狗。"},
        {"path": "b.png", "caption": ""},
        {"path": "c.png", "caption": "One thing. <|endoftext|> Another thing."},
        {"path": "d.png", "caption": "First text."},
        {"path": "d.png", "caption": "Second text."},
        {"path": "e.png", "caption": "Same text."},
        {"path": "e.png", "caption": "Same text."},
        {"path": "nobody.png", "caption": "Extra."},
        {"path": "g.png", "caption": "Many words here. " * 1700},
    ]
    file = tmp_path / "captions.jsonl"
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    said = io.StringIO()
    progress = StageProgress(Console(file=said, width=400))
    manifest = run_build(images, tmp_path / "out", captions=file, progress=progress)
    assert "glit: captions.jsonl: no image here for 1 of its paths: nobody.png\n" in said.getvalue()
    assert manifest.counts.drops == {
        "caption/ambiguous_caption": 1,
        "caption/empty_caption": 1,
        "caption/no_caption": 1,
    }
    assert counts(manifest) == (7, 4, 3, 0)
    assert list(verify(str(tmp_path / "out"))) == []


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_caption_files_of_other_kinds_give_the_same(scenes, built, tmp_path, suffix):
    import duckdb

    target = tmp_path / f"captions{suffix}"
    with duckdb.connect() as connection:
        relation = connection.read_json(str(scenes / "captions.jsonl"))
        (relation.write_csv if suffix == ".csv" else relation.write_parquet)(str(target))
    run_build(scenes / "images", tmp_path / "out", captions=target)
    a, b = (
        pq.read_table(folder / "data", columns=["caption", "pairs"]).to_pylist()
        for folder in (tmp_path / "out", built)
    )
    assert a == b


def test_sidecar_captions(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.png").write_bytes(png(seed=ord(name)))
    (tmp_path / "in" / "a.txt").write_text("A red square.\n")
    manifest = run_build(tmp_path / "in", tmp_path / "out", overrides=["caption.backend=sidecar"])
    assert manifest.counts.drops == {"caption/no_caption": 1}
    row = pq.read_table(tmp_path / "out" / "data").to_pylist()[0]
    assert row["caption"] == "A red square."
    assert row["caption_source"]["kind"] == "provided"


def test_captions_named_relative_to_their_own_file(scenes, tmp_path):
    shutil.copytree(scenes / "images", tmp_path / "d" / "images")
    rows = json_lines(scenes / "captions.jsonl")
    file = tmp_path / "d" / "captions.jsonl"
    lines = [json.dumps({**row, "path": f"images/{row['path']}"}) for row in rows]
    lines.append(json.dumps({"path": "x" * 300, "caption": "\ud83d half an emoji"}))
    file.write_text("\n".join(lines))
    manifest = run_build(tmp_path / "d" / "images", tmp_path / "caption=1" / "out", captions=file)
    assert counts(manifest) == (24, 24, 0, 0)
    assert list(verify(str(tmp_path / "caption=1" / "out"))) == []


def test_half_a_character_drops_the_image_and_names_no_other(tmp_path):
    images = tmp_path / "in"
    images.mkdir()
    for name in ("a", "b", "c?"):
        (images / f"{name}.png").write_bytes(png(seed=ord(name[0])))
    rows = [
        {"path": "a.png", "caption": "A red circle \ud83d."},
        {"path": "b.png", "caption": "A blue square."},
        {"path": "c\ud83d.png", "caption": "Of a file that cannot be."},
    ]
    file = tmp_path / "captions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    manifest = run_build(images, tmp_path / "out", captions=file)
    assert manifest.counts.drops == {"caption/no_caption": 2}
    drops = pq.read_table(tmp_path / "out" / "drops.parquet").to_pylist()
    assert [drop["message"] for drop in drops] == [
        "captions.jsonl: row 1 holds half a character (a lone surrogate), which no UTF-8 text can; "
        "write it again",
        "captions.jsonl has no row for c?.png",
    ]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"path": "a.png", "caption": ["A cat.", "A dog."]}, "caption = .* .list., want one text"),
        ({"path": "a.png", "caption": 7}, "caption = '7' .int."),
        ({"image": {"bytes": "x"}, "caption": "A cat."}, "image = .* .dict."),
        ({"path": None, "caption": "A cat."}, "path = 'None' .NoneType."),
    ],
)
def test_what_is_no_text_never_becomes_one(tmp_path, row, found):
    file = tmp_path / "captions.jsonl"
    file.write_text(json.dumps({"path": "b.png", "caption": None}) + "\n" + json.dumps(row))
    with pytest.raises(InputError, match=f"captions.jsonl: row 2 has {found}"):
        list(read_captions(file, str(tmp_path)))
