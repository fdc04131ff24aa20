"""``glit select``: some rows of a finished dataset as a new one, or in parts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import data_bytes, run_build
from PIL import Image

import glit
from glit.curate import row_writer
from glit.dataset.query import query
from glit.errors import DatasetError, InputError, UserError
from glit.plain import as_plain
from glit.storage.folder_lock import folder_lock


def tables(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(p) for p in sorted((folder / "data").iterdir())])


def names(dataset) -> list[str]:
    return [row.source_path for row in dataset.rows(images=False)]


def everything(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_rows_of_a_condition_are_the_old_rows_and_the_rest_is_dropped(built, tmp_path):
    found = glit.select(built, tmp_path / "new", where="source_path < '000010'")
    assert names(found) == [f"{number:06d}.png" for number in range(10)]
    assert tables(tmp_path / "new").equals(tables(built).slice(0, 10), check_metadata=True)
    assert glit.verify(tmp_path / "new") == []
    assert as_plain(found.manifest.counts) == {
        "ingested": 24, "shipped": 10, "dropped": 14, "duplicates": 0,
        "drops": {"select/not_selected": 14},
        "without_pair": found.manifest.counts.without_pair,
    }  # fmt: skip
    left = found.drops().to_pylist()
    assert [row["source_path"] for row in left] == [f"{n:06d}.png" for n in range(10, 24)]
    assert {(row["stage"], row["reason"]) for row in left} == {("select", "not_selected")}
    old = glit.open_dataset(built).manifest
    for key in ("recipe", "models", "fingerprints", "packages", "tokenizer", "calibration"):
        assert getattr(found.manifest, key) == getattr(old, key)
    selection = as_plain(found.manifest.selection)
    assert selection.pop("manifest_sha256")
    assert str(tmp_path) not in json.dumps(found.manifest.as_dict())
    assert selection == {
        "name": "dataset", "rows": 24, "seed": 0, "where": "source_path < '000010'"
    }  # fmt: skip
    card = (tmp_path / "new" / "README.md").read_text()
    assert "Selected from the 24 samples of dataset by glit select" in " ".join(card.split())
    assert "not_selected" in (tmp_path / "new" / "croissant.json").read_text()


def test_all_rows_are_the_rows_of_the_build(built, tmp_path):
    found = glit.select(built, tmp_path / "new")
    assert tables(tmp_path / "new").equals(tables(built), check_metadata=True)
    assert data_bytes(tmp_path / "new") == data_bytes(built)
    assert found.manifest.counts.drops == {} and glit.verify(found.path) == []


def test_twice_gives_the_same_bytes_and_a_part_of_a_part_knows_both(built, tmp_path):
    for name in "ab":
        once = glit.select(built, tmp_path / name / "new", sample=9, seed=3)
    assert everything(tmp_path / "a") == everything(tmp_path / "b")
    again = glit.select(once.path, tmp_path / "again", sample=4)
    assert again.manifest.selection.more["before"] == as_plain(once.manifest.selection)
    assert glit.verify(again.path) == [] and set(names(again)) < set(names(once))


def test_a_sample_is_chosen_by_seed_and_not_by_place(built, tmp_path):
    chosen = [
        names(glit.select(built, tmp_path / str(n), sample=6, seed=n, where="width > 0"))
        for n in range(4)
    ]
    assert all(len(each) == 6 and each == sorted(each) for each in chosen)
    assert len(set(map(tuple, chosen))) > 1 and chosen[0] != names(glit.open_dataset(built))[:6]
    assert len(glit.select(built, tmp_path / "more", sample=100)) == 24


@pytest.mark.parametrize(("sample", "wanted"), [(6, [2, 2, 2]), (8, [2, 3, 3]), (17, [3, 7, 7])])
def test_a_balanced_sample(built, tmp_path, sample, wanted):
    """Values of 3, 9 and 12 samples: equally many of each as far as they go."""
    kind = """CASE WHEN source_path < '000003' THEN 'a' WHEN source_path < '000012' THEN NULL
              ELSE 'c' END -- a remark"""
    found = glit.select(built, tmp_path / "new", sample=sample, by=kind)
    numbers = [int(name[:6]) for name in names(found)]
    counts = Counter("a" if n < 3 else "b" if n < 12 else "c" for n in numbers)
    assert sorted(counts.values()) == wanted and glit.verify(found.path) == []


def test_parts_are_whole_and_share_nothing(built, tmp_path):
    parts = glit.split(built, tmp_path / "new", {"train": 0.7, "val": 0.2, "test": 0.1}, seed=1)
    assert {name: len(part) for name, part in parts.items()} == {"train": 17, "val": 5, "test": 2}
    together = [name for part in parts.values() for name in names(part)]
    assert sorted(together) == names(glit.open_dataset(built))
    for name, part in parts.items():
        assert glit.verify(part.path) == [] and Path(part.path) == tmp_path / "new" / name
        assert part.manifest.selection.more["part"] == name
        assert part.manifest.counts.dropped == 24 - len(part)
    other = glit.split(built, tmp_path / "other", {"train": 0.7, "val": 0.3}, seed=2)
    assert set(names(other["train"])) != set(names(parts["train"]))


def test_samples_with_the_same_value_share_a_part(built, tmp_path):
    key = "substr(source_path, 5, 2)::INT % 8"
    parts = glit.split(built, tmp_path / "new", {"a": 0.5, "b": 0.5}, together=key, sample=20)
    values = {name: {int(each[4:6]) % 8 for each in names(p)} for name, p in parts.items()}
    assert values["a"] | values["b"] == set(range(8)) and not values["a"] & values["b"]
    assert sum(map(len, parts.values())) == 20 and abs(len(parts["a"]) - 10) < 3


def test_images_that_look_alike_share_a_part(scenes, tmp_path):
    """Each of eight scenes in four qualities: 32 images, eight groups."""
    (folder := tmp_path / "images").mkdir()
    for file in sorted((scenes / "images").glob("*.png"))[:8]:
        for quality in (98, 97, 96, 95):
            Image.open(file).save(folder / f"{file.stem}-{quality}.jpg", quality=quality)
    captions = [f"{path.name},A red thing." for path in sorted(folder.iterdir())]
    (tmp_path / "c.csv").write_text("\n".join(["image,caption", *captions]))
    run_build(folder, built := tmp_path / "dataset", captions=tmp_path / "c.csv")
    shares = {"a": 0.5, "b": 0.5}
    for near, shared in ((None, True), (7, False)):
        parts = glit.split(built, tmp_path / str(near), shares, near=near)
        a, b = ({name[:6] for name in names(part)} for part in parts.values())
        assert len(a | b) == 8 and bool(a & b) == shared
        assert sum(map(len, parts.values())) == 32
        assert all(glit.verify(part.path) == [] for part in parts.values())
    assert parts["a"].manifest.selection.more["near"] == 7


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"where": "width < 0"}, "--where width < 0: none of 24 samples"),
        ({"where": "true); DROP VIEW samples; SELECT (1"}, "want one SELECT"),
        ({"where": "widht > 3"}, "did you mean 'width'"),
        ({"by": "width"}, "add --sample N"),
        ({"by": "widht", "sample": 3}, "--by: no column 'widht', did you mean 'width'"),
        ({"by": "count(*)", "sample": 3}, "--by: "),
        ({"by": "caption::INT", "sample": 3}, "--by: "),
        ({"sample": 0}, "--sample 0: want 1 or more"),
        ({"split": {"a": 0.5, "b": 0.6}}, "sum to 1.1, want 1"),
        ({"split": {"a": 1.5, "b": -0.5}}, "--split a=1.5: want a share above 0"),
        ({"split": {"../a": 1}}, "names no folder"),
        ({"split": {"a": 0.999, "b": 0.001}}, "no sample of 24 is left for 'b'"),
        ({"split": {"a": 1}, "together": "nothing"}, "--together: no column 'nothing'"),
        ({"split": {"a": 1}, "together": "caption::INT"}, "--together: "),
        ({"split": {}}, "no parts"),
        ({"split": {"a": 1}, "near": 8}, "--near 8: want 0 to 7 of 64 bits"),
        ({"split": {"a": 1}, "near": 3, "together": "width"}, "in the place of --together"),
    ],
)
def test_what_cannot_be_selected_is_one_line_and_writes_nothing(built, tmp_path, call, said):
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        if "split" in call:
            glit.split(built, tmp_path / "new", call.pop("split"), **call)
        else:
            glit.select(built, tmp_path / "new", **call)
    assert "\n" not in str(caught.value) and [*tmp_path.iterdir()] == []


def test_a_folder_that_is_there_stays(built, tmp_path):
    with pytest.raises(InputError, match="exists already"):
        glit.select(built, tmp_path)


def test_two_at_once(built, tmp_path):
    refused = pytest.raises(UserError, match="another glit is writing here")
    with folder_lock(tmp_path / "new", beside=True), refused:
        glit.select(built, tmp_path / "new")


def test_large_and_small_row_groups_are_cut_as_the_packer_cuts(scenes, tmp_path, monkeypatch):
    """Three rows a group; and by bytes, as if 64 MB were little."""
    run_build(scenes / "images", tmp_path / "old", captions=scenes / "captions.jsonl", limit=11,
              overrides=["pack.row_group_rows=3", "pack.min_files=1"])  # fmt: skip
    found = glit.select(tmp_path / "old", tmp_path / "new", where="source_path != '000004.png'")
    assert [place.num_rows for place in found.places] == [3, 3, 3, 1]
    assert data_bytes(tmp_path / "old") == data_bytes(
        Path(glit.select(tmp_path / "old", tmp_path / "all").path)
    )
    monkeypatch.setattr(row_writer, "ROW_GROUP_BYTES", 2 * row_writer.ROW_OVERHEAD_BYTES)
    small = glit.select(tmp_path / "old", tmp_path / "small")
    assert max(place.num_rows for place in small.places) <= 2
    assert tables(tmp_path / "small").equals(tables(tmp_path / "old"))


def test_further_columns_images_by_path_and_additions(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number in range(9):
        os.link(scenes / "images" / f"{number:06d}.png", images / f"{number:06d}.png")
    run_build(images, tmp_path / "old", captions=scenes / "captions.jsonl",
              overrides=["negatives.enabled=true", "pack.image_store=path"])  # fmt: skip
    for number in range(9, 12):
        os.link(scenes / "images" / f"{number:06d}.png", images / f"{number:06d}.png")
    glit.add(tmp_path / "old", executor="local", quiet=True)
    found = glit.select(tmp_path / "old", tmp_path / "new", where="source_path > '000004'")
    assert tables(tmp_path / "new").equals(tables(tmp_path / "old").slice(4), check_metadata=True)
    assert "negatives" in found.schema.names and not found.manifest.additions
    assert glit.verify(found.path) == []


def test_a_damaged_dataset_is_one_line(built_copy, tmp_path):
    file = sorted((built_copy / "data").iterdir())[3]
    content = bytearray(file.read_bytes())
    content[100:400] = bytes(300)
    file.write_bytes(content)
    with pytest.raises(DatasetError, match="run 'glit verify'"):
        glit.select(built_copy, tmp_path / "new")
    assert not (tmp_path / "new").exists() and not (tmp_path / ".new.partial").exists()


def test_ctrl_c_leaves_nothing(built, tmp_path, monkeypatch):
    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(row_writer, "describe_data_file", stops)
    with pytest.raises(KeyboardInterrupt):
        glit.select(built, tmp_path / "new", sample=3)
    assert [*tmp_path.iterdir()] == []


KILLED = """
import os, signal, sys
import glit
from glit.curate import derive
from glit.storage.folder_lock import folder_lock
derive.finish = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
from glit.curate import select_rows
select_rows.finish = derive.finish
glit.split(sys.argv[1], sys.argv[2], {"a": 0.5, "b": 0.5})
"""


def test_one_that_was_killed_is_replaced(built, tmp_path):
    out = tmp_path / "new"
    done = subprocess.run([sys.executable, "-c", KILLED, built, out], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not out.exists() and (tmp_path / ".new.partial").exists()
    parts = glit.split(built, out, {"a": 0.5, "b": 0.5})
    assert sum(map(len, parts.values())) == 24
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]


def test_left_out_images_are_found_by_query_explain_and_page(built, tmp_path, run_glit):
    new = tmp_path / "new"
    glit.select(built, new, where="source_path < '000010'")
    assert query(str(new), "SELECT count(*) FROM drops").fetchall() == [(14,)]
    told = run_glit("explain", new, "000020.png")
    assert "not_selected (glit select left it out)" in told.output
    assert "glit retry" not in told.output
    assert run_glit("view", new, "-o", tmp_path / "page.html").code == 0


def test_what_tells_pictures_apart_goes_along(built, tmp_path, run_glit):
    """A dataset without its pictures is selected from and paired anew."""
    published = tmp_path / "published"
    glit.export(built, to="annotations", output=published)
    some = {row.sample_id for row in glit.open_dataset(built).rows(images=False) if row.width}
    glit.select(published, tmp_path / "five", sample=5)
    glit.select(published, tmp_path / "rest", where="source_path < '000004'")
    glit.pair(published, tmp_path / "paired", settings=["pair.rule=argmax"])
    for name, number in (("five", 5), ("rest", 4), ("paired", len(some))):
        found = glit.open_dataset(tmp_path / name)
        ids = {row.sample_id for row in found.rows(images=False)}
        told = pq.read_table(tmp_path / name / "pictures.parquet")["sample_id"].to_pylist()
        assert sorted(told) == sorted(ids) and len(ids) == number
        assert glit.verify(tmp_path / name) == []
