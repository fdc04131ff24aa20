"""Search of all samples' pictures among a user's files: by bytes, by pixels, by looks.

What the comparison of looks finds is kept in the work folder, a table for each part of the files.
"""

from __future__ import annotations

import dataclasses
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from glit.curate.attaching.align import Aligned, Looks, align, looks_of
from glit.curate.attaching.choice import choose, number_of_same
from glit.curate.attaching.found import FoundPictures
from glit.curate.attaching.published import PublishedPictures, PublishedSamples, stem
from glit.curate.attaching.user_pictures import Part, UserPictures, described
from glit.curate.attaching.work_tables import GrowingTable, read_whole, write_whole
from glit.dataset.reader import Dataset
from glit.errors import RunError
from glit.images import ImageError, decode
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead
from glit.runtime.progress import StageProgress

_VERSION = 2
"""Version of what is kept of a comparison."""
_PUBLISHED_AT_ONCE = 65_536
_SNAP = 0.01
"""Share of the longer side within which a placement is that of the whole picture."""
_HASHES = pa.schema([("file", pa.int64()), ("sha256", pa.string()), ("pixels_sha256", pa.string())])
_LOOKS = pa.schema(
    [
        ("sample", pa.int64()), ("file", pa.int64()), ("sha256", pa.string()),
        ("width", pa.int64()), ("height", pa.int64()),
        ("mirrored", pa.bool_()), ("turned", pa.int32()),
        ("left", pa.float64()), ("top", pa.float64()),
        ("right", pa.float64()), ("bottom", pa.float64()),
        ("shown", pa.float64()), ("apart", pa.float64()), ("colours", pa.string()),
    ]
)  # fmt: skip
_ROW = _LOOKS.get_field_index("file")


class PictureSearch:
    """Finds the pictures of all samples.

    Args:
        dataset: the published dataset.
        published: its hashes and thumbnails.
        pictures: the user's pictures, listed.
        work: folder in which parts of the search are kept until it is complete.
        progress: counts files and rounds.
    """

    def __init__(
        self, dataset: Dataset, published: PublishedPictures, pictures: UserPictures, work: Path,
        progress: StageProgress,
    ) -> None:  # fmt: skip
        self._dataset, self._published, self._pictures = dataset, published, pictures
        self._work, self._progress = work, progress
        self.unreadable = 0
        """Number of files that no decoder reads."""

    def run(self) -> FoundPictures:
        """Return what is found."""
        key = hashlib.sha256(self._dataset.manifest.as_bytes()).hexdigest()
        parts = self._by_hashes(key)
        looks = GrowingTable(self._work / "looks.parquet", _LOOKS)
        if self._published.has_thumbnails and number_of_same(self._work) < len(self._dataset):
            self._by_looks(parts, key, looks)
        looks.close()
        return choose(self._work)

    def _by_hashes(self, key: str) -> list[Part]:
        """Look at all files, and keep the hashes of those that may be published."""
        of_bytes, of_pixels = self._published.bytes, self._published.pixels
        hashes = GrowingTable(self._work / "hashes.parquet", _HASHES)
        parts: list[Part] = []
        looked_at = self._pictures.parts(self._work, of_bytes, of_pixels, key, self._progress)
        for part, table in looked_at:
            parts.append(part)
            self.unreadable += len(table) - table["fault"].null_count
            told = table.select(["sha256", "pixels_sha256"]).to_pylist()
            hashes.append(
                pa.Table.from_pylist(
                    [
                        {"file": file, **row}
                        for file, row in enumerate(told, start=part.first)
                        if row["sha256"] in of_bytes or row["pixels_sha256"] in of_pixels
                    ],
                    schema=_HASHES,
                )
            )
        hashes.close()
        return parts

    def _by_looks(self, parts: list[Part], key: str, looks: GrowingTable) -> None:
        """Compare all samples with the files that are nobody's: a part that two samples share may
        be of one that was found."""
        total = len(self._dataset)
        rounds = range(0, total, _PUBLISHED_AT_ONCE)
        self._progress.begin(
            "compare pictures", total=len(rounds) * len(parts), done=0, drops=False
        )
        for first in rounds:
            numbers = range(first, min(total, first + _PUBLISHED_AT_ONCE))
            name = hashlib.sha256(f"{_VERSION} {key} {numbers}".encode()).hexdigest()[:16]
            compare = None
            for part in parts:
                path = self._work / f"found-{name}-{part.name.removeprefix('files-')}"
                table = read_whole(path)
                if table is None:
                    compare = compare or Comparison(self._published.samples(numbers), numbers)
                    table = compare.part(part, self._pictures, self._work)
                    write_whole(table, path)
                # a file's number changes as others come and go, so tables of parts hold its row
                file = pa.array(table["file"].to_numpy() + part.first)
                looks.append(table.set_column(_ROW, _LOOKS.field(_ROW), file))
                self._progress.advance(1)


class Comparison:
    """Compares files with some of the samples.

    Args:
        samples: the samples.
        numbers: of them in the dataset.
    """

    def __init__(self, samples: PublishedSamples, numbers: range) -> None:
        self._samples, self._numbers = samples, numbers
        self._index, self._stems = samples.index(), samples.stems()

    def part(self, part: Part, pictures: UserPictures, work: Path) -> pa.Table:
        """Compare the files of a part with the samples; return a row for each two that look alike,
        in which ``file`` is the number of the file in the part.

        Raises:
            RunError: a file was changed since it was looked at.
        """
        table = read_whole(work / part.name)
        assert table is not None, "it was written or read before"
        listed = pictures.listed(part)
        rows = [row for row in enumerate(table.to_pylist()) if row[1]["signatures"] is not None]

        def compared(numbered: tuple[int, dict[str, Any]]) -> list[dict[str, Any]]:
            number, row = numbered
            source, path = listed[number]
            proposed = self._index.propose(described(row))
            proposed = [*dict.fromkeys([*self._stems.get(stem(path), ()), *proposed])]
            if not proposed:
                return []
            try:
                looks = looks_of(decode(pictures.read(source, path)))
            except (OSError, ImageError) as error:
                raise RunError(f"{path}: changed since it was looked at") from error
            told = {"file": number, "sha256": row["sha256"]}
            results = []
            for place in proposed:
                aligned = align(self._samples.looks(place), looks)
                if aligned is not None:
                    own = _as_row(self._samples.size(place), looks, aligned)
                    results.append({"sample": self._numbers[place], **told, **own})
            return results

        with ThreadPoolExecutor(usable_cores()) as pool:
            found = map_ahead(pool, compared, rows, most=2 * usable_cores())
            return pa.Table.from_pylist([r for own in found for r in own], schema=_LOOKS)


def _as_row(size: tuple[int, int], looks: Looks, aligned: Aligned) -> dict[str, Any]:
    undone = aligned.placement.undone_size(*looks.size)
    placement = aligned.placement.snapped(size, undone, _SNAP * max(size))
    return {
        "width": looks.size[0], "height": looks.size[1], **dataclasses.asdict(placement),
        "shown": 1.0 if placement.shows_all(*size) else aligned.shown,
        "apart": aligned.apart, "colours": aligned.colours,
    }  # fmt: skip
