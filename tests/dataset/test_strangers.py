"""Datasets of somebody else: nothing is written or read outside, and nothing fills the memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed import edit_manifest, first_file, rewrite

import glit
import glit.dataset.verify as verify_module
from glit.data.schema import (
    DATASET_SCHEMA,
    DROPS_SCHEMA,
    MASK,
    META_HUGGINGFACE,
    META_SCHEMA_VERSION,
    META_TOKENIZER,
)
from glit.dataset.manifest import describe_file
from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.dataset.row_checks import row_faults
from glit.dataset.verify import verify
from glit.errors import DatasetError, GlitError
from glit.exporters import EXPORTERS
from glit.plain import as_plain
from glit.view.report import write_report
from tools.fuzz.strangers import png_bomb


@pytest.fixture
def deep(built, tmp_path):
    """A copy of a dataset some folders below ``tmp_path``."""
    import shutil

    return Path(shutil.copytree(built, tmp_path / "a" / "b" / "dataset"))


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "dataset" not in path.parts}


@pytest.mark.parametrize("to", sorted(EXPORTERS))
@pytest.mark.parametrize(
    "name", ["../../escaped", "/tmp/glit-escaped", "a/b", "", "f" * 63, "F" * 64]
)
def test_no_format_takes_a_sample_id_that_is_not_a_hash(deep, tmp_path, to, name):
    rewrite(deep, lambda rows: rows[0].update(sample_id=name))
    with pytest.raises(DatasetError, match="its sample_id is not a SHA-256 in 64 hex digits"):
        glit.export(deep, to=to, output=tmp_path / "a" / "b" / "out")
    assert not [path for path in files_below(tmp_path) if path.is_file()]
    assert not Path("/tmp/glit-escaped").exists()
    assert any("sample_id" in line for line in verify(str(deep)))


@pytest.mark.parametrize(
    "path",
    [
        "../../secret.png",
        "/proc/self/environ",
        "../../../../../../../../dev/zero",
        "a/../../x",
        "\0",
    ],
)
def test_images_by_path_stay_below_the_root(deep, tmp_path, path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    root = tmp_path / "a" / "images"
    root.mkdir()

    def by_path(rows):
        rows[0].update(source_path=path, image={"bytes": None, "path": path})

    rewrite(deep, by_path)
    opened = Dataset(deep, image_root=str(root))
    with pytest.raises(DatasetError, match="is stored by path and cannot be read below"):
        opened[0]
    with pytest.raises(GlitError):
        glit.export(deep, to="coco", output=tmp_path / "out", image_root=root)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_an_image_by_path_is_a_regular_file(deep, tmp_path, kind):
    path = tmp_path / "x.png"
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda at: os.symlink("/dev/zero", at)}
    make[kind](path)
    rewrite(
        deep, lambda rows: rows[0].update(source_path="x.png", image={"bytes": None, "path": ""})
    )
    with pytest.raises(DatasetError, match=r"x\.png is stored by path and cannot be read below"):
        Dataset(deep, image_root=str(tmp_path))[0]


def test_an_image_of_too_many_pixels_is_refused_wherever_it_is_decoded(deep, tmp_path, monkeypatch):
    bomb = png_bomb(13_000, 13_000)
    assert len(bomb) < 30_000
    rewrite(deep, lambda rows: rows[0].update(image={"bytes": bomb, "path": "x.png"}))
    assert any(
        "13000x13000 pixels, at most 150000000 allowed" in line for line in verify(str(deep))
    )
    opened = Dataset(deep)
    with pytest.raises(GlitError, match="13000x13000 pixels"):
        opened[0].pixels()
    write_report(opened, tmp_path / "report.html")  # shows a placeholder
    with pytest.raises(GlitError, match="13000x13000 pixels"):
        glit.export(deep, to="goal", output=tmp_path / "out")
    with pytest.raises(GlitError, match="13000x13000 pixels"):
        opened.row_group(0).pixels(0)


def test_the_limit_of_the_build_is_the_most_that_verify_lets_through(deep):
    edit_manifest(deep, lambda manifest: manifest["recipe"]["ingest"].update(max_pixels=1000))
    assert any("at most 1000 allowed" in line for line in verify(str(deep)))


def test_an_image_of_another_size_than_its_row_is_refused(deep):
    rewrite(deep, lambda rows: rows[0].update(width=rows[0]["width"] + 40))
    with pytest.raises(DatasetError, match=r"has \d+x\d+ pixels, its row says \d+x\d+"):
        Dataset(deep)[0].pixels()


CHANGES = {
    "a list is null": ("regions", None, "regions is null"),
    "no image": ("image", None, "image is null"),
    "an empty size": ("width", 0, "its width is not positive"),
    "a box of no size": ("regions", {"x1": -1.0}, "a region's box is empty or leaves the image (regions[1])"),
    "a box that is no number": ("regions", {"y0": float("nan")}, "a region's box is empty or leaves"),
    "a box that leaves": ("regions", {"x1": 1e6}, "a region's box is empty or leaves the image"),
    "a score": ("regions", {"score": float("inf")}, "a region's score is not finite (regions[1])"),
    "no label": ("regions", {"label": None}, "regions.label holds a null"),
    "no sentence": ("sentences", [], "it has no sentence, at least one is due"),
    "characters": ("sentences", {"char_end": 10**6}, "a sentence's character span leaves the caption"),
    "overlap": ("sentences", {"char_start": 0}, "a sentence overlaps the one before (sentences[1])"),
    "tokens": ("sentences", {"token_end": 2**31 - 1}, "a token span is empty or impossible (sentences[1])"),
    "no token": ("sentences", {"token_start": 9, "token_end": 9}, "a token span is empty or impossible"),
    "a token before the first": ("sentences", {"token_start": 0}, "a token span is empty or impossible"),
    "a pair's region": ("pairs", {"region": 999}, "a pair names a region that the sample does not have (pairs[1])"),
    "a pair's sentence": ("pairs", {"sentence": -1}, "a pair names a sentence that the sample"),
    "a pair's cosine": ("pairs", {"similarity": float("nan")}, "a pair's similarity is not finite"),
    "a probability": ("pairs", {"probability": float("inf")}, "a probability is infinite"),
    "too few cosines": ("similarity", [0.5], "its similarity has 1 values, not "),
    "too few of the image": ("image_similarity", [0.5], "its image_similarity has 1 values, not "),
    "cosines that are no numbers": ("similarity", float("nan"), "its similarity holds values that are no cosines"),
    "a cosine above one": ("image_similarity", 1.5, "its image_similarity holds values that are no cosines"),
    "no cosines": ("image_similarity", None, "its image_similarity is null"),
}  # fmt: skip
"""What is planted in a column, and the fault: in its second value, or in the whole of it."""


@pytest.mark.parametrize("case", CHANGES)
def test_the_reader_names_the_first_impossible_row_and_verify_all(deep, case):
    column, value, message = CHANGES[case]
    paths = []

    def change(rows):
        for row in (rows[1], rows[2]):
            paths.append(row["source_path"])
            if isinstance(value, dict):
                row[column][1].update(value)
            elif isinstance(value, float):
                row[column][1] = value
            else:
                row[column] = value

    rewrite(deep, change)
    with pytest.raises(DatasetError, match=re.escape(f"row group 0 row 1: {message}")):
        list(Dataset(deep).rows(images=False) if column != "image" else Dataset(deep))
    lines = [line for line in verify(str(deep)) if message in line]
    name = f"data/{first_file(deep).name}"
    assert [line.partition(f": {message}")[0] for line in lines] == [f"{name}: {p}" for p in paths]


def test_masks_are_checked_in_rows_without_another_fault_and_all_of_them():
    rows = [(9, [(0, "~"), (0, "~")]), (0, [(0, "~")]), (9, [(7, "~")]), (9, [(0, "~")])]
    region = {"x0": 0, "y0": 0, "x1": 9, "y1": 9, "score": 1, "label": "", "source": ""}
    table = pa.table(
        {
            "width": [width for width, _ in rows],
            "height": [9] * 4,
            "regions": pa.array([[region]] * 4, DATASET_SCHEMA.field("regions").type),
            "masks": pa.array(
                [[{"region": n, "counts": text} for n, text in masks] for _, masks in rows],
                pa.list_(MASK),
            ),
        }
    )
    cut_off = "region 0 has run lengths in a string that is cut off or no such code"
    assert [*row_faults(table.slice(1))] == [
        (0, "its width is not positive"),
        (0, "a region's box is empty or leaves the image (regions[0])"),
        (1, "a mask names a region that the sample does not have (masks[0])"),
        (2, cut_off),
    ]
    assert [*row_faults(table)][-3:] == [(0, cut_off), (0, cut_off), (3, cut_off)]


def test_good_rows_have_no_fault_whatever_their_columns(built):
    table = Dataset(built).table()
    assert list(row_faults(table)) == []
    for name in table.column_names:
        assert list(row_faults(table.select([name]))) == []
    assert list(row_faults(table.slice(3, 4))) == []
    assert list(row_faults(pa.concat_tables([table, table]))) == []
    assert list(row_faults(table.slice(0, 0))) == []


@pytest.mark.parametrize(
    "name", ["../../../dev/zero", "data/../x.parquet", "/etc/passwd", "data/a/b"]
)
def test_a_manifest_names_files_of_its_own_alone(deep, name):
    described = {"rows": 0, "bytes": 0, "sha256": ""}
    edit_manifest(deep, lambda manifest: manifest["files"].update({name: described}))
    for command in (
        Dataset,
        lambda path: list(verify(str(path))),
        lambda path: query(path, "SELECT 1"),
    ):
        with pytest.raises(DatasetError, match="'files': .*: is no name of a dataset's file"):
            command(deep)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_manifest_holds_finite_numbers(deep, number):
    path = deep / "manifest.json"
    path.write_text(path.read_text().replace('"context": 248', f'"context": {number}'))
    with pytest.raises(DatasetError, match=f"not valid JSON .{number} is no finite number"):
        Dataset(deep)


@pytest.mark.parametrize("name", ["manifest.json", "drops.parquet", "data"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_pipe_in_the_place_of_a_file_makes_nobody_wait(deep, tmp_path, name, kind):
    path = first_file(deep) if name == "data" else deep / name
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(GlitError):
        query(deep, "SELECT * FROM drops")
    with pytest.raises(GlitError):
        write_report(Dataset(deep), tmp_path / "report.html")
    try:
        assert list(verify(str(deep)))
    except GlitError:
        assert name == "manifest.json"


def test_a_row_group_that_memory_does_not_hold_is_refused(deep, monkeypatch):
    monkeypatch.setattr("glit.dataset.row_checks.MOST_ROWS", 3)
    with pytest.raises(DatasetError, match="row group 0 has .* rows and .* at most 3 rows"):
        Dataset(deep)
    assert any("at most 3 rows" in line for line in verify(str(deep)))


def test_values_that_sql_cannot_count_are_one_line(deep, tmp_path):
    rewrite(deep, lambda rows: rows[0]["regions"][0].update(x1=3e38))
    with pytest.raises(DatasetError):
        write_report(Dataset(deep), tmp_path / "report.html")


def test_a_box_leaves_by_rounding_alone(built):
    table = Dataset(built).table()
    rows = table.to_pylist()
    rows[0]["regions"][0]["x1"] = float(np.float32(rows[0]["width"])) * 1.0005
    assert list(row_faults(pa.Table.from_pylist(rows, schema=table.schema))) == []


def replace_file(dataset: Path, change) -> None:
    """Change the first file as a table, and all that the manifest says of it but its rows."""
    path = first_file(dataset)
    pq.write_table(change(pq.read_table(path)), path)
    described = as_plain(describe_file(path, 0))

    def edit(manifest):
        entry = manifest["files"][f"data/{path.name}"]
        entry.update(bytes=described["bytes"], sha256=described["sha256"])

    edit_manifest(dataset, edit)


def with_metadata(table: pa.Table, key: bytes, value: bytes) -> pa.Table:
    return table.replace_schema_metadata({**table.schema.metadata, key: value})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: pa.concat_tables([t, t]), "rows, the manifest says"),
        (lambda t: t.slice(0, 1), "1 rows, the manifest says"),
        (lambda t: t.slice(0, 0), "0 rows, the manifest says"),
        (lambda t: t.append_column("zz", pa.array([1] * len(t))), r"not the manifest's \(zz\)"),
        (lambda t: t.append_column("caption", t["caption"]), "column caption is there more than once"),
        (lambda t: with_metadata(t, META_HUGGINGFACE, b'{"info": {'), "huggingface is damaged"),
        (lambda t: with_metadata(t, META_HUGGINGFACE, b"[" * 9000), "huggingface is damaged"),
        (lambda t: with_metadata(t, META_HUGGINGFACE, b"[]"), "does not name the columns"),
        (lambda t: with_metadata(t, META_TOKENIZER, b"\xff"), "glit.tokenizer is damaged"),
        (lambda t: with_metadata(t, META_SCHEMA_VERSION, b"9"), "its schema version is not"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_what_the_manifest_says_is_named_by_all(
    built_copy, run_glit, change, said
):
    replace_file(built_copy, change)
    lines = [line for line in verify(str(built_copy)) if re.search(said, line)]
    assert len(lines) == 1 and lines[0].startswith(f"data/{first_file(built_copy).name}: ")
    for words in (
        ("stats", built_copy),
        ("select", built_copy, "-o", built_copy / "new", "--sample", "2"),
        ("pair", built_copy, "--set", "pair.rule=argmax", "-o", built_copy / "new"),
        ("query", built_copy, "SELECT 1"),
        ("view", built_copy, "-o", built_copy / "page.html"),
    ):
        done = run_glit(*words)
        assert done.code == 1 and done.errors.count("\n") == 1, (words, done)
        assert re.search(said, done.errors), (words, done)


def hostile_drops(dataset: Path, text: str) -> None:
    table = pa.Table.from_pylist(
        [dict.fromkeys(DROPS_SCHEMA.names[:5], text) | {"attempt": 0}] * 3, schema=DROPS_SCHEMA
    )
    pq.write_table(table, dataset / "drops.parquet")
    entry = as_plain(describe_file(dataset / "drops.parquet", 3))
    edit_manifest(dataset, lambda m: m["files"].update({"drops.parquet": entry}))


def test_long_texts_of_drops_are_cut_on_pages_and_in_messages(built_copy, tmp_path, run_glit):
    hostile_drops(built_copy, "long" * 500_000)
    done = run_glit("verify", built_copy, "-q")
    assert done.code == 1 and len(done.output) < 2000 and "unknown reasons long" in done.output
    write_report(Dataset(built_copy), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count("long") < 20_000
    assert run_glit("explain", built_copy, "000000.png").code == 0


def test_a_text_of_several_lines_is_one_breach_on_one_line(built_copy, run_glit):
    hostile_drops(built_copy, "<b>\x1b[2J\nall well\u202e")
    said = run_glit("verify", built_copy, "-q").output
    assert "\nall well" not in said and r"\x0aall well\u202e" in said
    shown = run_glit("query", built_copy, "SELECT message FROM drops").output
    assert "\u202e" not in shown and r"\u202e" in shown


@pytest.mark.parametrize("scale", [-40.3, 0, 0.0])
def test_a_scale_that_no_rule_takes_is_refused_with_the_manifest(built_copy, scale):
    edit_manifest(built_copy, lambda m: m.update(logit_scale=scale))
    with pytest.raises(DatasetError, match=r"'logit_scale': found .*, want above 0"):
        glit.verify(built_copy)


def test_a_key_that_stands_twice_is_refused(built_copy):
    path = built_copy / "manifest.json"
    path.write_text(path.read_text().replace('"shipped":', '"shipped": 1, "shipped":', 1))
    with pytest.raises(DatasetError, match="the key 'shipped' stands twice"):
        glit.open_dataset(built_copy)


@pytest.mark.parametrize("error", [MemoryError(), OSError("Failed to launch worker thread: x"),
                                   RuntimeError("can't start new thread")])  # fmt: skip
def test_a_lack_of_memory_or_threads_is_no_breach(built_copy, monkeypatch, run_glit, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(verify_module, "_check_rows", fails)
    done = run_glit("verify", built_copy, "-q")
    assert (done.code, done.output) == (1, "")
    assert done.errors.startswith("glit: not enough memory or threads to check the dataset")


def test_a_data_file_of_no_rows_is_paired_anew_and_published(built_copy, tmp_path):
    """As one is whose samples were all dropped by corrections."""
    name = first_file(built_copy).name
    rewrite(built_copy, list.clear)

    def without(manifest):
        lost = manifest["counts"]["shipped"] - sum(
            each["rows"] for n, each in manifest["files"].items() if n.startswith("data/")
        )
        manifest["files"][f"data/{name}"]["without_pair"] = 0
        for key in ("shipped", "ingested"):
            manifest["counts"][key] -= lost

    edit_manifest(built_copy, without)
    whole = len(glit.open_dataset(built_copy))
    glit.pair(built_copy, tmp_path / "paired", settings=["pair.rule=argmax"])
    glit.export(built_copy, to="annotations", output=tmp_path / "published")
    for made in ("paired", "published"):
        assert len(glit.open_dataset(tmp_path / made)) == whole
        assert glit.verify(tmp_path / made) == []
