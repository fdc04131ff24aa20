"""Search of all samples' pictures among a user's files: by bytes, by pixels, by looks.

What the comparison of looks finds is kept in the work folder, a table for each part of the files.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from glit.attaching.align import Aligned, Looks, align, looks_of
from glit.attaching.found import Found, FoundPictures
from glit.attaching.lookup import Index
from glit.attaching.placement import Placement
from glit.attaching.published import PublishedPictures, stem
from glit.attaching.user_pictures import Part, UserPictures, described, read_whole, write_whole
from glit.dataset.reader import Dataset
from glit.errors import RunError
from glit.images import ImageError, decode
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead
from glit.runtime.progress import StageProgress

_PUBLISHED_AT_ONCE = 65_536
_SNAP = 0.01
"""Share of the longer side within which a placement is that of the whole picture."""
_PLACE = [each.name for each in dataclasses.fields(Placement)]
_FOUND = pa.schema(
    [
        ("sample", pa.int64()), ("row", pa.int32()), ("sha256", pa.string()),
        ("width", pa.int32()), ("height", pa.int32()),
        ("mirrored", pa.bool_()), ("turned", pa.int32()),
        ("left", pa.float64()), ("top", pa.float64()),
        ("right", pa.float64()), ("bottom", pa.float64()),
        ("shown", pa.float64()), ("apart", pa.float64()), ("colours", pa.string()),
    ]
)  # fmt: skip


class PictureSearch:
    """Finds the pictures of all samples.

    Args:
        dataset: the published dataset.
        published: its hashes and thumbnails.
        pictures: the user's pictures.
        work: folder in which parts of the search are kept until it is complete.
        progress: counts files and rounds.
    """

    def __init__(
        self, dataset: Dataset, published: PublishedPictures, pictures: UserPictures, work: Path,
        progress: StageProgress,
    ) -> None:  # fmt: skip
        self._dataset, self._published, self._pictures = dataset, published, pictures
        self._work, self._progress = work, progress
        self.found = FoundPictures(len(dataset))
        self.ambiguous: dict[int, int] = {}
        """By sample the file that may as well be another sample's picture."""
        self.unreadable = 0
        """Number of files that no decoder reads."""

    def run(self) -> FoundPictures:
        """Return what is found."""
        of_bytes, of_pixels = self._published.by_bytes, self._published.by_pixels
        key = hashlib.sha256(self._dataset.manifest.as_bytes()).hexdigest()
        parts: list[Part] = []
        looked_at = self._pictures.parts(self._work, of_bytes, of_pixels, key, self._progress)
        for part, table in looked_at:
            parts.append(part)
            self.unreadable += len(table) - table["fault"].null_count
            for file, row in enumerate(_rows(table, "sha256", "pixels_sha256"), start=part.first):
                for how, known, value in (
                    ("bytes", of_bytes, row["sha256"]), ("pixels", of_pixels, row["pixels_sha256"]),
                ):  # fmt: skip
                    for sample in known.get(value):
                        self.found.offer(sample, Found(how=how, file=file, sha256=row["sha256"]))
        if len(self.found) < len(self._dataset) and self._published.has_thumbnails:
            self._by_looks(parts, key)
        return self.found

    def _by_looks(self, parts: list[Part], key: str) -> None:
        """Find the samples that are missing among the files that are nobody's.

        All samples are compared: a part that two of them share may be of one that was found.
        """
        total = len(self._dataset)
        rounds = range(0, total, _PUBLISHED_AT_ONCE)
        self._progress.begin(
            "compare pictures", total=len(rounds) * len(parts), done=0, drops=False
        )
        compared: list[tuple[Path, Part]] = []
        for first in rounds:
            samples = range(first, min(total, first + _PUBLISHED_AT_ONCE))
            name = hashlib.sha256(f"{key} {samples}".encode()).hexdigest()[:16]
            index = None
            for part in parts:
                path = self._work / f"found-{name}-{part.name.removeprefix('files-')}"
                if read_whole(path) is None:
                    index = index or self._published.index(samples)
                    write_whole(self._compare(samples, index, part), path)
                compared.append((path, part))
                self._progress.advance(1)
        self._choose(compared)

    def _choose(self, compared: Sequence[tuple[Path, Part]]) -> None:
        """Choose a picture for each missing sample, of the files that match no other sample, or
        show the whole picture, unchanged in tones, of each that they match."""
        number = np.zeros(len(self._pictures), np.int64)
        all_whole = np.ones(len(self._pictures), bool)
        for path, part in compared:
            for _, each in _found_in(path, part):
                number[each.file] += 1
                all_whole[each.file] &= each.is_whole
        sure = (number == 1) | all_whole
        missing = np.array([sample not in self.found for sample in range(len(self._dataset))])
        for path, part in compared:
            for sample, each in _found_in(path, part):
                if not missing[sample]:
                    continue
                if sure[each.file]:
                    self.found.offer(sample, each)
                else:
                    self.ambiguous.setdefault(sample, each.file)
        for sample in [each for each in self.ambiguous if each in self.found]:
            del self.ambiguous[sample]

    def _compare(self, samples: Sequence[int], index: Index, part: Part) -> pa.Table:
        table = read_whole(self._work / part.name)
        assert table is not None, "it was written or read before"
        rows = [row for row in enumerate(table.to_pylist()) if row[1]["signatures"] is not None]
        stems = self._published.stems(samples)

        def compared(numbered: tuple[int, dict[str, Any]]) -> list[dict[str, Any]]:
            number, row = numbered
            path = self._pictures.path(part.first + number)
            proposed = index.propose(described(row))
            proposed = [*dict.fromkeys([*stems.get(stem(path), ()), *proposed])]
            if not proposed:
                return []
            try:
                pixels = decode(self._pictures.read(part.first + number))
            except (OSError, ImageError) as error:
                raise RunError(f"{path}: changed since it was looked at") from error
            looks = looks_of(pixels)
            told = {"row": number, "sha256": row["sha256"]}
            results = []
            for place in proposed:
                sample = samples[place]
                aligned = align(self._published.looks(sample), looks)
                if aligned is not None:
                    own = _as_row(self._published.size(sample), looks, aligned)
                    results.append({"sample": sample, **told, **own})
            return results

        with ThreadPoolExecutor(usable_cores()) as pool:
            found = map_ahead(pool, compared, rows, most=2 * usable_cores())
            return pa.Table.from_pylist([r for own in found for r in own], schema=_FOUND)


def _rows(table: pa.Table, *names: str) -> list[dict[str, Any]]:
    return table.select(names).to_pylist()


def _found_in(path: Path, part: Part) -> Iterator[tuple[int, Found]]:
    """Samples and their pictures, of a part that was compared."""
    table = read_whole(path)
    if table is None:
        raise RunError(f"{path}: changed while pictures were compared; run again")
    for row in table.to_pylist():
        yield (
            row["sample"],
            Found(
                how="looks",
                file=part.first + row["row"],
                sha256=row["sha256"],
                placement=Placement(**{name: row[name] for name in _PLACE}),
                pixels=row["width"] * row["height"],
                **{name: row[name] for name in ("shown", "apart", "colours")},
            ),
        )


def _as_row(size: tuple[int, int], looks: Looks, aligned: Aligned) -> dict[str, Any]:
    undone = aligned.placement.undone_size(*looks.size)
    placement = aligned.placement.snapped(size, undone, _SNAP * max(size))
    return {
        "width": looks.size[0], "height": looks.size[1], **dataclasses.asdict(placement),
        "shown": 1.0 if placement.shows_all(*size) else aligned.shown,
        "apart": aligned.apart, "colours": aligned.colours,
    }  # fmt: skip
