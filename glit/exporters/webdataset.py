"""``webdataset``: tar files with an image, its caption and a JSON file per sample.

    train-00000.tar, train-00001.tar, ...    SAMPLE_ID.jpg, SAMPLE_ID.txt, SAMPLE_ID.json

The JSON has ``width``, ``height``, ``source_path``, ``sentences``, ``regions`` and ``pairs`` as the
dataset's columns, and ``captions`` where images have several; boxes as ``bbox`` [x0, y0, x1, y1]
in pixels.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.dataset.row import captions_of
from glit.exporters.parts import FILE_BYTES

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.dataset.row import Row
    from glit.exporters import Report

_MOST_SAMPLES = 10_000
"""Most samples of a tar file."""


def export_webdataset(dataset: Dataset, folder: Path, report: Report) -> None:
    """Write the dataset as WebDataset tars."""
    rows = iter(dataset)
    number, left = 0, len(dataset)
    while left:
        with tarfile.open(
            folder / f"train-{number:05d}.tar", "w", format=tarfile.USTAR_FORMAT
        ) as tar:
            left -= _fill(tar, rows, left, report)
        number += 1


def _fill(tar: tarfile.TarFile, rows: Iterator[Row], most: int, report: Report) -> int:
    """Put samples into a tar file until it is full; how many."""
    from glit.images import upright_file

    done = 0
    while done < min(most, _MOST_SAMPLES) and tar.offset < FILE_BYTES:
        row = next(rows)
        data, suffix = upright_file(row.encoded())
        _add(tar, f"{row.sample_id}{suffix}", data)
        _add(tar, f"{row.sample_id}.txt", row.caption.text.encode())
        about = json.dumps(_about(row), ensure_ascii=False, allow_nan=False)
        _add(tar, f"{row.sample_id}.json", about.encode())
        done += 1
        report(1)
    return done


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """A member without a clock or an owner in it, so that equal exports are equal files."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _about(row: Row) -> dict[str, Any]:
    from glit.data.rows import pair_row, sentence_row

    return {
        "source_path": row.source_path,
        "width": row.width,
        "height": row.height,
        "sentences": [sentence_row(each) for each in row.sentences],
        "regions": [
            {"bbox": list(each.box.xyxy), "score": each.score, "label": each.label,
             "source": each.source}
            for each in row.regions
        ],
        "pairs": [pair_row(each) for each in row.pairs],
        **({"captions": several} if (several := captions_of(row)) else {}),
    }  # fmt: skip
