"""Search of all samples' pictures among a user's files: by bytes, by pixels, by looks.

What the comparison of looks finds is kept in the work folder, a table for each part of the files.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from glit.attaching.align import Aligned, Looks, align, looks_of
from glit.attaching.lookup import Index
from glit.attaching.placement import Placement
from glit.attaching.published import PublishedPictures, stem
from glit.attaching.user_pictures import (
    Part,
    UserFile,
    UserPictures,
    described,
    read_whole,
    write_whole,
)
from glit.dataset.reader import Dataset
from glit.errors import RunError
from glit.images import ImageError, decode
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead
from glit.runtime.progress import StageProgress

WAYS = {
    "bytes": "the same file",
    "pixels": "another file of the same pixels",
    "looks": "encoded again, resized, cut, padded, mirrored, turned or in other tones",
}
"""How a picture is found."""
_PUBLISHED_AT_ONCE = 65_536
_WHOLE = 0.98
"""Share of a published picture from which a found one shows all of it."""
_SNAP = 0.01
"""Share of the longer side within which a placement is that of the whole picture."""
_FOUND = pa.schema(
    [
        ("sample", pa.int64()), ("source", pa.int32()), ("path", pa.string()),
        ("sha256", pa.string()), ("width", pa.int32()), ("height", pa.int32()),
        ("mirrored", pa.bool_()), ("turned", pa.int32()),
        ("left", pa.float64()), ("top", pa.float64()),
        ("right", pa.float64()), ("bottom", pa.float64()),
        ("shown", pa.float64()), ("apart", pa.float64()), ("colours", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A user's picture for a sample."""

    how: str
    """A key of :data:`WAYS`."""
    file: UserFile
    sha256: str
    placement: Placement | None = None
    """None for the same pixels."""
    shown: float = 1.0
    """Share of the published picture that it shows."""
    colours: str = "same"
    apart: float = 0.0
    pixels: int = 0

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts the best of several pictures first."""
        way = [*WAYS].index(self.how)
        upright = self.placement is None or self.placement.is_upright
        return (
            way, self.shown < _WHOLE, not upright, self.colours != "same", -self.pixels,
            self.apart, self.file.source, self.file.path,
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
        self.ambiguous: dict[int, str] = {}
        """By sample the file that may as well be another sample's picture."""

    def run(self) -> tuple[dict[int, Found], int, int]:
        """Return what is found by number of the sample, the number of files, and of bad ones."""
        of_bytes, of_pixels = self._published.by_bytes, self._published.by_pixels
        key = hashlib.sha256(self._dataset.manifest.as_bytes()).hexdigest()
        found: dict[int, Found] = {}
        parts: list[str] = []
        files = unreadable = 0
        for part in self._pictures.parts(self._work, of_bytes, of_pixels, key, self._progress):
            parts.append(part.name)
            files += len(part.table)
            unreadable += len(part.table) - part.table["fault"].null_count
            for row in part.table.select(["source", "path", "sha256", "pixels_sha256"]).to_pylist():
                file = UserFile(source=row["source"], path=row["path"])
                for how, known, value in (
                    ("bytes", of_bytes, row["sha256"]), ("pixels", of_pixels, row["pixels_sha256"]),
                ):  # fmt: skip
                    for sample in known.get(value):
                        new = Found(how=how, file=file, sha256=row["sha256"])
                        if sample not in found or new.rank < found[sample].rank:
                            found[sample] = new
        if len(found) < len(self._dataset) and self._published.has_thumbnails:
            self._by_looks(parts, key, found)
        return found, files, unreadable

    def _by_looks(self, parts: list[str], key: str, found: dict[int, Found]) -> None:
        """Find the samples that are missing among the files that are nobody's.

        All samples are compared: a part that two of them share may be of one that was found.
        """
        total = len(self._dataset)
        rounds = range(0, total, _PUBLISHED_AT_ONCE)
        self._progress.begin(
            "compare pictures", total=len(rounds) * len(parts), done=0, drops=False
        )
        candidates: dict[int, list[Found]] = defaultdict(list)
        for first in rounds:
            samples = range(first, min(total, first + _PUBLISHED_AT_ONCE))
            name = hashlib.sha256(f"{key} {samples}".encode()).hexdigest()[:16]
            index = None
            for part in parts:
                path = self._work / f"found-{name}-{part.removeprefix('files-')}"
                table = read_whole(path)
                if table is None:
                    index = index or self._published.index(samples)
                    files = read_whole(self._work / part)
                    assert files is not None, "it was written or read before"
                    table = self._compare(samples, index, Part(name=part, table=files))
                    write_whole(table, path)
                for row in table.to_pylist():
                    candidates[row["sample"]].append(_as_found(row))
                self._progress.advance(1)
        users: dict[UserFile, list[Found]] = defaultdict(list)
        for each in (each for own in candidates.values() for each in own):
            users[each.file].append(each)
        for sample, own in candidates.items():
            if sample in found:
                continue
            sure = [e for e in own if len(users[e.file]) == 1 or _all_whole(users[e.file])]
            if sure:
                found[sample] = min(sure, key=lambda each: each.rank)
            else:
                self.ambiguous[sample] = self._pictures.place(own[0].file)

    def _compare(self, samples: Sequence[int], index: Index, part: Part) -> pa.Table:
        rows = [row for row in part.table.to_pylist() if row["signatures"] is not None]
        stems = self._published.stems(samples)

        def compared(row: dict[str, Any]) -> list[dict[str, Any]]:
            proposed = index.propose(described(row))
            named = stems.get(stem(row["path"]), ())
            proposed = [*dict.fromkeys([*named, *proposed])]
            if not proposed:
                return []
            file = UserFile(source=row["source"], path=row["path"])
            try:
                pixels = decode(self._pictures.read(file))
            except (OSError, ImageError) as error:
                raise RunError(f"{row['path']}: changed since it was looked at") from error
            looks = looks_of(pixels)
            results = []
            for number in proposed:
                aligned = align(self._published.looks(samples[number]), looks)
                if aligned is not None:
                    size = self._published.size(samples[number])
                    results.append(_as_row(samples[number], size, row, looks, aligned))
            return results

        with ThreadPoolExecutor(usable_cores()) as pool:
            found = map_ahead(pool, compared, rows, most=2 * usable_cores())
            return pa.Table.from_pylist([r for own in found for r in own], schema=_FOUND)


def _all_whole(found: Sequence[Found]) -> bool:
    """Return whether a file shows the whole picture, in unchanged tones, of each sample that it
    matches: these samples are copies of one picture."""
    return all(each.shown >= _WHOLE and each.colours == "same" for each in found)


def _as_row(
    sample: int, size: tuple[int, int], row: dict[str, Any], looks: Looks, aligned: Aligned
) -> dict[str, Any]:
    undone = aligned.placement.undone_size(*looks.size)
    placement = aligned.placement.snapped(size, undone, _SNAP * max(size))
    return {
        "sample": sample, **{k: row[k] for k in ("source", "path", "sha256")},
        "width": looks.size[0], "height": looks.size[1], **dataclasses.asdict(placement),
        "shown": 1.0 if placement.shows_all(*size) else aligned.shown,
        "apart": aligned.apart, "colours": aligned.colours,
    }  # fmt: skip


def _as_found(row: dict[str, Any]) -> Found:
    names = ("mirrored", "turned", "left", "top", "right", "bottom")
    return Found(
        how="looks",
        file=UserFile(source=row["source"], path=row["path"]),
        sha256=row["sha256"],
        placement=Placement(**{name: row[name] for name in names}),
        shown=row["shown"],
        colours=row["colours"],
        apart=row["apart"],
        pixels=row["width"] * row["height"],
    )
