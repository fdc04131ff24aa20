"""Which files of a folder, a glob, a list or a shard go in."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import png

from glit.inputs.source import entries, find_source

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
HIDDEN = (
    ".ipynb_checkpoints/a-checkpoint.png", "sub/.Trash-1000/files/a.png", "@eaDir/a.jpg/T.png",
    "$RECYCLE.BIN/x.png", "__MACOSX/._a.png", "._a.png", "System Volume Information/a.png",
)  # fmt: skip
SHOWN = ("a.png", "thumbs/a.png", "sub/.b.png")


def folder_of(root: Path) -> Path:
    for name in (*SHOWN, *HIDDEN):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(png())
    return root


def zip_of(root: Path) -> Path:
    with zipfile.ZipFile(root / "a.zip", "w") as archive:
        for name in (*SHOWN, *HIDDEN):
            archive.writestr(name, png())
    return root


def tar_of(root: Path) -> Path:
    with tarfile.open(root / "a.tar", "w") as archive:
        for name in (*SHOWN, *HIDDEN):
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(png())
            archive.addfile(info, io.BytesIO(png()))
    return root


@pytest.mark.parametrize("write", [folder_of, zip_of, tar_of])
def test_hidden_and_system_folders_are_passed_over_and_counted(tmp_path, write):
    hidden = Counter[str]()
    found = entries(find_source(str(write(tmp_path))), hidden=hidden)
    assert sorted(entry.path.rpartition("::")[2] for entry in found) == sorted(SHOWN)
    assert hidden.total() == len(HIDDEN) and hidden["@eaDir"] == 1
    with pytest.warns(UserWarning, match=f"{len(HIDDEN)} images in hidden or system folders"):
        list(entries(find_source(str(tmp_path))))


def test_a_glob_or_a_list_takes_the_hidden_files_that_it_names(tmp_path):
    folder_of(tmp_path)
    found = entries(find_source(f"{tmp_path}/.ipynb_checkpoints/*.png"))
    assert [entry.path for entry in found] == ["a-checkpoint.png"]
    shown = entries(find_source(f"{tmp_path}/**/*.png"), hidden=Counter())
    assert {entry.path for entry in shown} == {*SHOWN}
    (tmp_path / "list.txt").write_text("\n".join(HIDDEN[:3]))
    found = entries(find_source(str(tmp_path / "list.txt")))
    assert [entry.path for entry in found] == [*HIDDEN[:3]]


def test_a_dataset_gives_the_images_of_its_data_files_and_no_tables_of_its_work(tmp_path) -> None:
    for name in ("data/train-0.parquet", "work/ingest-1/0.parquet", "drops.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        image = {"bytes": png(), "path": None} if name.startswith("data") else None
        pq.write_table(pa.table({"image": pa.array([image], IMAGE), "n": [1]}), tmp_path / name)

    def listed() -> list[str]:
        return sorted(
            entry.path.partition("::")[0] for entry in entries(find_source(str(tmp_path)))
        )

    every = ["data/train-0.parquet", "drops.parquet", "work/ingest-1/0.parquet"]
    for text in ("{}", "no JSON", '["glit"]', '{"format": "of another program"}'):
        (tmp_path / "manifest.json").write_text(text)
        assert listed() == every
    (tmp_path / "manifest.json").write_text('{"format": "glit"}')
    assert listed() == ["data/train-0.parquet"]
