"""Pictures that readers of an export do not decode: told, or written as PNG."""

from __future__ import annotations

import io
import tarfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.exporters import export

LOSSLESS = ("TIFF", "GIF", "BMP", "PNG", "WEBP")


class OfFormats(Dataset):
    """A dataset whose pictures are of these formats, one after the other."""

    def __init__(self, path: Path, formats: tuple[str, ...]) -> None:
        super().__init__(path)
        self.formats = formats

    def rows(self, *, images=True):
        return (self._with(number, row) for number, row in enumerate(super().rows(images=images)))

    def _with(self, number, row):
        buffer = io.BytesIO()
        pixels = np.full((row.height, row.width, 3), 40 + number % 3, np.uint8)
        name = self.formats[number % len(self.formats)]
        Image.fromarray(pixels).save(buffer, name, **({"lossless": True} if name == "WEBP" else {}))
        return replace(row, image=buffer.getvalue())


def _members(folder: Path) -> dict[str, bytes]:
    with tarfile.open(folder / "train-00000.tar") as tar:
        return {m.name: tar.extractfile(m).read() for m in tar if "." in m.name}


def test_open_clip_takes_every_picture_of_an_export_with_reencode(built, tmp_path):
    dataset = OfFormats(built, LOSSLESS)
    export(dataset, to="webdataset", output=tmp_path / "out", reencode=True)
    found = _members(tmp_path / "out")
    pictures = {n: d for n, d in found.items() if not n.endswith((".txt", ".json"))}
    assert len(pictures) == len(dataset)
    assert {name.rpartition(".")[2] for name in pictures} <= {"png", "webp"}
    for number, row in enumerate(Dataset(built)):
        data = next(d for n, d in pictures.items() if n.startswith(row.sample_id))
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert (pixels == 40 + number % 3).all()


def test_without_it_a_warning_counts_them(built, tmp_path):
    dataset = OfFormats(built, ("TIFF",))
    with pytest.warns(UserWarning, match=rf"{len(dataset)} tiff? pictures.*--reencode"):
        export(dataset, to="webdataset", output=tmp_path / "w")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export(dataset, to="coco", output=tmp_path / "c")
    with pytest.warns(UserWarning, match=rf"{len(dataset)} avif pictures"):
        export(OfFormats(built, ("AVIF",)), to="coco", output=tmp_path / "a")
    with pytest.raises(InputError, match="--reencode: --to lance"):
        export(dataset, to="lance", output=tmp_path / "l", reencode=True)
