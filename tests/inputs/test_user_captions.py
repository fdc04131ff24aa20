"""Captions that a user brings, in a file or beside the images."""

from __future__ import annotations

import io
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import counts, json_lines, png, run_build
from rich.console import Console

from glit.dataset.reader import Dataset
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
        ({"path": "a.png", "caption": ["A cat.", 7]}, "a list of captions with 7, want one text"),
        ({"path": "a.png", "caption": {"en": "A cat."}}, "caption = .* .dict., want one text"),
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


BLIP = [
    {"image": "val2014/a.png", "caption": ["A cat.", "It sleeps."], "image_id": 7},
    {"image": "b.png", "caption": ["A dog."]},
    {"image": "c.png", "caption": []},
]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_lists_of_captions_as_blip_has_them(tmp_path, suffix):
    """The annotation files of BLIP (github.com/salesforce/BLIP, data/coco_karpathy_dataset.py)."""
    file = tmp_path / f"captions{suffix}"
    if suffix == ".json":
        file.write_text("\ufeff \n" + json.dumps(BLIP), encoding="utf-8")
    elif suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in BLIP))
    else:
        pq.write_table(pa.Table.from_pylist(BLIP), file)
    assert list(read_captions(file, str(tmp_path))) == [
        ("val2014/a.png", "A cat.", 1, "caption-1"),
        ("val2014/a.png", "It sleeps.", 1, "caption-2"),
        ("b.png", "A dog.", 2, "caption-1"),
        ("c.png", "", 3, "caption-1"),
    ]


def test_one_caption_a_picture_in_a_list_of_json(tmp_path):
    """As BLIP's files for training have them."""
    file = tmp_path / "train.json"
    file.write_text(json.dumps([{"image": "a.png", "caption": "A cat.", "image_id": "coco_1"}]))
    assert list(read_captions(file, str(tmp_path))) == [("a.png", "A cat.", 1, None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"image": "a.png", "caption": "A."}, 7]', "row 2 is 7, want an object"),
        ('[{"image": "a.png", "caption": "A."}, {', "after row 1"),
        ('[{"image": "a.png", "x": ' + "[" * 100_000, "after row 0 .*nested too deep"),
        ('[{"image": "a.png", "text": NaN}]', "text = 'nan' .float."),
        ('[{"picture": "a.png"}]', "row 1 has the keys picture; want one of path, "),
    ],
)
def test_a_damaged_list_of_json_is_named_with_its_row(tmp_path, text, message):
    file = tmp_path / "captions.json"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_captions(file, str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "header"),
    [("c.tsv", "image\tcaption"), ("c.csv", "image;caption"), ("c.csv", "caption;path")],
)
def test_tabs_and_semicolons_are_told_by_the_header(tmp_path, name, header):
    mark = header.strip("abceghimnopt")
    row = {"image": "a.png", "path": "a.png", "caption": "A cat, a dog."}
    cells = mark.join(row[column] for column in header.split(mark))
    (tmp_path / name).write_text(f"{header}\n{cells}\n")
    assert next(read_captions(tmp_path / name, str(tmp_path)))[:2] == ("a.png", "A cat, a dog.")


def test_a_table_without_header_is_refused(tmp_path):
    (tmp_path / "c.tsv").write_text("a.png\tA cat.\nb.png\tA dog.\n")
    with pytest.raises(InputError, match=r"has the columns a.png.A cat\.; want one of path"):
        list(read_captions(tmp_path / "c.tsv", str(tmp_path)))


def test_a_caption_file_beside_an_image_counts_if_there_is_no_text_file(tmp_path):
    """And a build notices that it was changed."""
    images = tmp_path / "images"
    images.mkdir()
    for number, name in enumerate("abc"):
        (images / f"{name}.png").write_bytes(png(seed=number))
    (images / "a.caption").write_text("A red cup.")
    (images / "b.caption").write_text("Not this one.")
    (images / "b.txt").write_text("A blue bowl.")

    def texts() -> list[str]:
        manifest = run_build(
            images, tmp_path / "out", overrides=["caption.backend=sidecar"], replace=True
        )
        assert manifest.counts.drops == {"caption/no_caption": 1}
        return sorted(row.caption.text for row in Dataset(str(tmp_path / "out")))

    assert texts() == ["A blue bowl.", "A red cup."]
    (images / "a.caption").write_text("A green plate.")
    assert texts() == ["A blue bowl.", "A green plate."]
