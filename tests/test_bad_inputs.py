"""Fifty real photographs among everything that can be wrong with a folder."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from building import run_build, tiny
from PIL import Image
from test_images import bad_png_chunk, bomb

from glit.api import export
from glit.dataset.verify import verify


def encoded(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def bad_files(photo: bytes) -> dict[str, tuple[bytes, str]]:
    """Name -> bytes and the reason they are dropped for."""
    tiny, tall = Image.new("RGB", (1, 1)), Image.new("RGB", (10, 4000))
    return {
        "not an image.jpg": (b"<html>404</html>", "not_an_image"),
        "zero.jpg": (b"", "empty_file"),
        "truncated.jpg": (photo[: len(photo) // 2], "corrupt"),
        "chunk.png": (bad_png_chunk(), "corrupt"),
        "bomb.png": (bomb(), "too_large"),
        "tiny.png": (encoded(tiny, "PNG"), "too_small"),
        "tall.png": (encoded(tall, "PNG"), "too_small"),
        "float.tiff": (encoded(Image.fromarray(np.ones((40, 40), np.float32)), "TIFF"), "unsupported_mode"),
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(photographs, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("bad") / "images"
    shutil.copytree(photographs, root)
    first = sorted(root.glob("*.jpg"))[0]
    photo = first.read_bytes()
    for name, (data, _) in bad_files(photo).items():
        (root / name).write_bytes(data)
    (root / "again.jpg").write_bytes(photo)
    (root / "quo\"te\nline's.jpg").write_bytes(encoded(Image.new("RGB", (64, 64), "red"), "JPEG"))
    (root / os.fsdecode(b"caf\xe9.jpg")).write_bytes(encoded(Image.new("RGB", (64, 60)), "JPEG"))
    (root / "broken.jpg").symlink_to(root / "nowhere.jpg")
    (root / "self.jpg").symlink_to(root / "self.jpg")
    (root / "loop").symlink_to(root)
    (root / "notes.txt").write_text("no image")
    captions = root.parent / "captions.jsonl"
    paths = [p.name for p in root.iterdir() if p.suffix in (".jpg", ".png", ".tiff")]
    with captions.open("w") as file:
        for path in paths:
            if "\udce9" not in path:
                text = "A photograph of something. It has colours."
                file.write(json.dumps({"path": path, "caption": text}) + "\n")
    return root


@pytest.fixture(scope="module")
def dataset(folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("bad-out") / "dataset"
    overrides = ["ingest.max_pixels=100000000", "ingest.chunk_size=16"]
    manifest = run_build(
        folder, output, captions=folder.parent / "captions.jsonl", overrides=overrides
    )
    return output, manifest


def test_the_balance_is_exact_and_every_reason_is_right(folder, dataset):
    output, manifest = dataset
    wanted = {name: reason for name, (_, reason) in bad_files(b"x" * 10).items()}
    wanted |= {"broken.jpg": "unreadable", "self.jpg": "unreadable", "caf\\xe9.jpg": "bad_name"}
    found = {
        r["source_path"]: r["reason"] for r in pq.read_table(output / "drops.parquet").to_pylist()
    }
    assert found == wanted
    counts = manifest.counts
    assert (counts.ingested, counts.shipped, counts.duplicates) == (63, 51, 1)
    assert list(verify(str(output))) == []


def test_boxes_lie_inside_every_photograph(dataset):
    output, _ = dataset
    for row in pq.read_table(output / "data", columns=["regions", "width", "height"]).to_pylist():
        for r in row["regions"]:
            assert 0 <= r["x0"] < r["x1"] <= row["width"]
            assert 0 <= r["y0"] < r["y1"] <= row["height"]


def test_the_odd_name_is_in_the_dataset_as_it_is(dataset):
    paths = pq.read_table(dataset[0] / "data", columns=["source_path"])["source_path"].to_pylist()
    assert "quo\"te\nline's.jpg" in paths


@pytest.mark.timeout(60)  # a pipe would be waited for without an end
def test_what_is_no_regular_file_or_too_large_is_a_drop(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    shutil.copy(scenes / "images" / "000000.png", images)
    for name in ("000000.txt", "pipe.txt"):
        (images / name).write_text("A red circle. A blue square.")
    os.mkfifo(images / "pipe.png")
    os.mkfifo(images / "no.txt")
    shutil.copy(scenes / "images" / "000001.png", images / "no.png")
    (images / "zero.png").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(images):
        bound.bind("socket.png")
    with (images / "sparse.png").open("wb") as sparse:
        sparse.truncate(40 << 30)
    overrides = ["caption.backend=sidecar", "propose.backend=grid"]
    manifest = run_build(images, tmp_path / "out", overrides=overrides)
    assert manifest.counts.drops == {
        "ingest/too_large": 1,
        "ingest/unreadable": 3,
        "caption/no_caption": 1,
    }
    assert manifest.counts.shipped == 1


@pytest.mark.slow
def test_files_and_folders_without_permission(photographs, tmp_path_factory):
    """As an ordinary user: an unreadable file is a drop, an unwritable output one line."""
    root = tmp_path_factory.mktemp("locked")
    for parent in root.relative_to(tempfile.gettempdir()).parents[:-1]:
        (tempfile.gettempdir() / parent).chmod(0o755)
    images = root / "images"
    images.mkdir()
    for path in sorted(photographs.glob("*.jpg"))[:2]:
        shutil.copy(path, images)
        (images / path.with_suffix(".txt").name).write_text("A thing stands there.")
    locked = sorted(images.glob("*.jpg"))[0]
    locked.chmod(0)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from building import run_build\n"
        "from glit.errors import GlitError\n"
        "for output in sys.argv[3:]:\n"
        "    try:\n"
        "        m = run_build(sys.argv[2], output, overrides=['caption.backend=sidecar', "
        "'propose.backend=grid'])\n"
        "        print(m.counts.drops)\n"
        "    except GlitError as error:\n"
        "        print(error)\n"
    )
    writable = root / "writable"
    writable.mkdir()
    writable.chmod(0o777)
    root.chmod(0o555)
    # root may read everything, so root runs it without that right; as another user it might not
    # even be able to start a Python that lies in a home folder
    rights = "-dac_override,-dac_read_search"
    without = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]
    as_user = without if os.geteuid() == 0 else []
    environment = {**os.environ, "HOME": str(writable)}
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [*as_user, sys.executable, "-c", code, here, images, writable / "out", root / "out"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    built, refused = done.stdout.splitlines()
    assert "'ingest/unreadable': 1" in built and "cannot write there" in refused


@pytest.mark.slow
def test_a_disk_that_fills_up(scenes, tmp_path, warm_glit):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", small]).returncode:
        pytest.skip("mount refuses a tmpfs of 600 kB; wants root")
    try:
        arguments = [
            "build", scenes / "images", "-o", small / "out", "-r", "mini", "--executor", "local",
            "--captions", scenes / "captions.jsonl",
            *(word for override in tiny() for word in ("--set", override)),
        ]  # fmt: skip
        words = [str(word) for word in arguments]  # in another process, which keeps no file open
        said = warm_glit.said(words, tmp_path, code=1)
        assert said.strip().splitlines()[-1].startswith("glit: ")
        assert "the disk is full" in said
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        warm_glit.said(words, tmp_path)
        assert list(verify(str(small / "out"))) == []
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.slow
def test_ten_thousand_files_with_names_as_long_as_they_may_be(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number in range(10_000):
        (images / f"{number:05d}{'ä' * 120}x.png").write_bytes(b"no image")
    for number in range(2):
        name = f"{number:05d}{'b' * 241}.png"
        shutil.copy(scenes / "images" / f"{number:06d}.png", images / name)
        (images / name).with_suffix(".txt").write_text("A red circle. A blue square.")
    out = tmp_path / "out"
    overrides = ["caption.backend=sidecar", "propose.backend=grid"]
    manifest = run_build(images, out, overrides=overrides)
    assert manifest.counts.drops == {"ingest/not_an_image": 10_000}
    assert manifest.counts.shipped == 2
    assert list(verify(str(out))) == []
    for to in ("coco", "webdataset", "goal"):
        export(str(out), to=to, output=tmp_path / to)
