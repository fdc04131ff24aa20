"""Builds from tars and Parquet files end as those from the files in them."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import counts, png, run_build

from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import InputError
from glit.inputs.files import ImageFiles
from glit.inputs.source import entries, find_source
from glit.storage.store import Store

NUM = 4
OVERRIDES = ["caption.backend=sidecar", "ingest.chunk_size=2"]


@pytest.fixture(scope="module")
def images(scenes) -> list[tuple[str, bytes, str]]:
    """Name, bytes and caption of some scenes."""
    rows = map(json.loads, (scenes / "captions.jsonl").read_text().splitlines()[:NUM])
    return [
        (Path(row["path"]).name, (scenes / "images" / Path(row["path"]).name).read_bytes(),
         row["caption"])
        for row in rows
    ]  # fmt: skip


def write_tar(path: Path, members) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.fixture(scope="module")
def shards(images, tmp_path_factory) -> Path:
    """The same in two tars, one with captions as text and one as JSON, and in a table."""
    folder = tmp_path_factory.mktemp("shards")
    for number, form in enumerate(("txt", "json")):
        members = []
        for name, data, caption in images[2 * number : 2 * number + 2]:
            text = caption if form == "txt" else json.dumps({"caption": caption})
            members += [(name, data), (f"{Path(name).stem}.{form}", text.encode())]
        write_tar(folder / f"{number}.tar", members)
    with zipfile.ZipFile(folder / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, caption in images:
            archive.writestr(f"scenes/{name}", data)
            archive.writestr(f"scenes/{Path(name).stem}.txt", caption)
    (folder / "tables").mkdir()
    column = [{"bytes": data, "path": name} for name, data, _ in images]
    table = pa.table({"image": column, "caption": [caption for *_, caption in images]})
    pq.write_table(table, folder / "tables" / "train.parquet", row_group_size=3)
    return folder


@pytest.fixture(scope="module")
def from_files(images, tmp_path_factory) -> list[dict]:
    """Rows of a dataset that is built from plain files."""
    folder = tmp_path_factory.mktemp("plain")
    for name, data, caption in images:
        (folder / name).write_bytes(data)
        (folder / name).with_suffix(".txt").write_text(caption)
    run_build(folder, folder / "out", overrides=OVERRIDES)
    return rows_of(folder / "out")


def rows_of(dataset) -> list[dict]:
    """Without what names the places that images came from."""
    table = Dataset(dataset).table().drop_columns(["source_path"])
    rows = [{**row, "image": row["image"]["bytes"]} for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row["sample_id"])


@pytest.mark.parametrize(
    ("named", "first"),
    [
        ("*.tar", "0.tar::000000.png"),
        ("all.zip", "all.zip::scenes/000000.png"),
        ("tables/train.parquet", "train.parquet::000000000"),
    ],
)
def test_a_build_from_shards_has_the_samples_of_the_files(
    shards, from_files, tmp_path, named, first
):
    manifest = run_build(f"{shards}/{named}", tmp_path / "out", overrides=OVERRIDES)
    assert counts(manifest) == (NUM, NUM, 0, 0)
    assert rows_of(tmp_path / "out") == from_files
    assert Dataset(tmp_path / "out")[0].source_path == first
    assert list(verify(str(tmp_path / "out"))) == []


def test_shards_on_a_store_are_read_where_they_are(shards, from_files, tmp_path, s3, monkeypatch):
    store = Store(s3.url("shards"))
    for name in ("0.tar", "1.tar", "all.zip", "tables/train.parquet"):
        store.write(name, (shards / name).read_bytes())
    monkeypatch.setattr(Store, "local_copy", None)
    for named, number in (
        ("*.tar", NUM),
        ("*.zip", NUM),
        ("tables/*.parquet", NUM),
        ("1.tar", NUM // 2),
    ):
        found = sorted(entries(find_source(f"{store.root}/{named}")), key=lambda each: each.path)
        assert len(found) == number
        root = find_source(f"{store.root}/{named}").root
        files = ImageFiles(root)
        whole = [row["image"] for row in from_files]
        assert all(files.read(entry.path) in whole for entry in found)
    ranges = [path for method, path in s3.requests if method == "GET" and "list-type" not in path]
    assert len(ranges) < 40


def test_the_index_of_a_tar_is_written_once(shards, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    index = str(tmp_path / "work")
    before = list(entries(find_source(f"{shards}/*.tar"), work=Store(index)))
    assert len(list((tmp_path / "work" / "shards").iterdir())) == 2

    def refuses(*_):
        raise AssertionError("the archive was read again")

    monkeypatch.setattr("glit.inputs.files.scan", refuses)
    assert list(entries(find_source(f"{shards}/*.tar"), work=Store(index))) == before
    assert ImageFiles(shards, index=index).read(before[0].path)
    kept = next((tmp_path / "work" / "shards").iterdir())
    kept.write_bytes(kept.read_bytes()[:-40])
    with pytest.raises(AssertionError):
        list(entries(find_source(f"{shards}/*.tar"), work=Store(index)))


def test_damaged_shards_and_members_are_drops(images, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (name, data, _), *_ = images
    write_tar(folder / "a.tar", [(name, data), ("b.png", b"no image"), ("../c.png", png())])
    whole = (folder / "a.tar").read_bytes()
    (folder / "b.tar").write_bytes(b"\x01" * 600)
    (folder / "cut.tar").write_bytes(whole[: 512 + len(data) // 2])
    (folder / "d.parquet").write_bytes(b"PAR1")
    manifest = run_build(
        folder, tmp_path / "out", captions=captions(tmp_path, "a.tar::" + name, images[0][2])
    )
    assert manifest.counts.drops == {
        "ingest/bad_name": 1, "ingest/not_an_image": 1, "ingest/unreadable": 3,
    }  # fmt: skip
    drops = {
        row["source_path"]: row["message"] for row in Dataset(tmp_path / "out").drops().to_pylist()
    }
    assert "leads out of its archive" in drops["a.tar::../c.png"]
    assert "damaged or cut short" in drops[f"cut.tar::{name}"]
    assert drops.keys() >= {"b.tar", "d.parquet"}


def captions(folder: Path, path: str, caption: str) -> Path:
    file = folder / "captions.jsonl"
    file.write_text(json.dumps({"path": path, "caption": caption}))
    return file


def test_image_files_go_before_shards_that_are_not_named(shards, tmp_path):
    shutil.copy(shards / "0.tar", tmp_path / "0.tar")
    assert {entry.path.partition("::")[0] for entry in entries(find_source(str(tmp_path)))} == {
        "0.tar"
    }
    (tmp_path / "x.png").write_bytes(png())
    assert [entry.path for entry in entries(find_source(str(tmp_path)))] == ["x.png"]
    named = [entry.path for entry in entries(find_source(f"{tmp_path}/*"))]
    assert sorted(named)[-1] == "x.png" and len(named) == 3
    (tmp_path / "list.txt").write_text("x.png\n0.tar\n")
    assert len(list(entries(find_source(f"{tmp_path}/list.txt")))) == 3


def test_a_compressed_archive_is_refused_by_name(tmp_path):
    (tmp_path / "x.tar.gz").write_bytes(b"")
    with pytest.raises(InputError, match="x.tar.gz: a compressed archive, .* want a plain .tar"):
        find_source(f"{tmp_path}/x.tar.gz")


def test_lists_and_globs_at_an_address(s3):
    store = Store(s3.url("lists"))
    for name in ("a/1.png", "a/2.jpg", "b/3.png"):
        store.write(name, b"x")
    store.write("list.txt", f"a/1.png\n{store.root}/b/3.png\n".encode())
    store.write("out.txt", b"s3://other/1.png\n")

    def paths(images: str) -> list[str]:
        return sorted(entry.path for entry in entries(find_source(images)))

    assert paths(store.root) == ["a/1.png", "a/2.jpg", "b/3.png"]
    assert paths(f"{store.root}/*/*.png") == ["a/1.png", "b/3.png"]
    assert paths(f"{store.root}/a/*") == ["1.png", "2.jpg"]
    assert paths(f"{store.root}/list.txt") == ["a/1.png", "b/3.png"]
    with pytest.raises(InputError, match="line 1 names 's3://other/1.png', outside"):
        paths(f"{store.root}/out.txt")


def test_files_beside_are_listed_and_not_asked_for(s3):
    store = Store(s3.url("beside"))
    for name in ("a.png", "a.txt", "b.png", "b-2.txt", "deep/c.png", "deep/c.txt"):
        store.write(name, b"x")
    s3.requests.clear()
    found = {
        entry.path: entry.role for entry in entries(find_source(store.root), sidecars=(".txt",))
    }
    assert found == {
        "a.png": 0, "a.txt": 1, "b.png": 0, "b-2.txt": 1, "deep/c.png": 0, "deep/c.txt": 1,
    }  # fmt: skip
    assert len(s3.requests) == 1
