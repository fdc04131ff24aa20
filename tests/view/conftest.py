"""A dataset whose captions and file names want to run, with drops and a duplicate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from browser import serving
from building import run_build

from glit.dataset.reader import Dataset
from glit.view.report import write_report

HOSTILE = (
    'A dog 🐕 sits here. <script>window.hacked=1</script> It barks "><img src=x '
    'onerror="window.hacked=1"> loudly. </script> The end &amp; more.'
)
HOSTILE_NAME = "<img src=x onerror=window.hacked=1>.png"


@pytest.fixture(scope="session")
def hostile(scenes, tmp_path_factory) -> Path:
    """Seven scenes of which one has a hostile caption, a copy, an empty file; glit-mini's pairs."""
    folder = tmp_path_factory.mktemp("hostile")
    images = folder / "images"
    images.mkdir()
    lines = (scenes / "captions.jsonl").read_text().splitlines()[:7]
    captions = [json.loads(line) for line in lines]
    for row in captions:
        shutil.copy(scenes / "images" / Path(row["path"]).name, images)
        row["path"] = Path(row["path"]).name
    captions[0]["caption"] = HOSTILE
    shutil.copy(images / captions[1]["path"], images / "zz-copy.png")
    (images / HOSTILE_NAME).write_bytes(b"")
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, captions)))
    run_build(images, folder / "dataset", captions=folder / "captions.jsonl", recipe="glit-mini")
    return folder / "dataset"


@pytest.fixture
def opened(hostile) -> Dataset:
    return Dataset(hostile)


@pytest.fixture(scope="module")
def server(hostile):
    """The page over all of the hostile dataset."""
    with serving(Dataset(hostile)) as running:
        yield running


@pytest.fixture(scope="module", params=["written", "served"])
def address(request, hostile, tmp_path_factory) -> str:
    """A report of the hostile dataset, as a file and as a server's page."""
    if request.param == "served":
        return request.getfixturevalue("server").address
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(Dataset(hostile), path)
    return path.as_uri()
