"""``glit attach``: find the pictures of a dataset that was published without them.

Each sample gets the user's file of the same bytes, else of the same pixels, else one that looks the
same after it was encoded again, resized, cut, padded, mirrored or turned; boxes and masks move with
it. What is found is kept in a work folder beside the output until that is whole, so a stopped run
goes on when it is started again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glit.attaching.align import Aligned, Looks, align, looks_of
from glit.attaching.features import require_opencv
from glit.attaching.index import (
    Part,
    UserFile,
    UserPictures,
    described,
    looks_both_ways,
    read_whole,
    write_whole,
)
from glit.attaching.moved_row import moved_row
from glit.attaching.pictures import PICTURES
from glit.attaching.placement import Placement
from glit.attaching.search import Described, Index, signatures
from glit.curate.corrected_row import review
from glit.curate.rewrite import finish
from glit.data.bounded_parquet import BoundedParquet
from glit.data.data_files import series_of_file
from glit.data.parquet import PINNED
from glit.data.records import Drop
from glit.data.schema import (
    ATTACHED,
    CORRECTED,
    DROPS_SCHEMA,
    SCHEMA_VERSION,
    dataset_schema,
    further_columns,
    hf_feature,
)
from glit.dataset.manifest import (
    Manifest,
    describe_data_file,
    describe_file,
    sum_without_pair,
)
from glit.dataset.mini_models import dataset_caution
from glit.dataset.reader import Dataset
from glit.dataset.recorded_rules import pairings_of
from glit.errors import DatasetError, InputError, RunError, first_line
from glit.images import ImageError, decode
from glit.images.likeness import look
from glit.label.corrections import State
from glit.plain import as_plain
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead
from glit.runtime.progress import StageProgress
from glit.stages.pack import Pack, writer_options
from glit.storage.outputs import new_folder
from glit.storage.store import Store

WAYS = {
    "bytes": "the same file",
    "pixels": "another file of the same pixels",
    "looks": "encoded again, resized, cut, padded, mirrored, turned or in other tones",
}
"""How a picture is found."""
_PUBLISHED_AT_ONCE = 65_536
_RECENT, _GROUPS = 64, 16
"""Thumbnails, and row groups of them, that are kept."""
_MOST_PIXELS = 1 << 20
"""Of a thumbnail."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Counts of :func:`attach`."""

    samples: int
    """Of the dataset that was published."""
    found: dict[str, int]
    """Samples that have a picture now, by a key of :data:`WAYS`."""
    drops: dict[str, int]
    """Samples that are left out, by reason."""
    files: int
    """The user's picture files."""
    unreadable: int
    """Number of these that no decoder reads."""


def attach(
    dataset: Dataset, images: Sequence[str], output: Path, progress: StageProgress
) -> Attached:
    """Write a dataset with the pictures that are found for it.

    Args:
        dataset: one without pictures, as ``glit export --to annotations`` writes it.
        images: folders, globs, lists, tars or tables of pictures.
        output: a folder that does not exist yet; it appears when everything is written.
        progress: counts files and rows.

    Raises:
        InputError: the dataset has pictures, no picture is found for any sample, or there are none.
        DatasetError: a file of the dataset is damaged.
        MissingExtraError: OpenCV is not installed.
        RunError: a picture was changed meanwhile.
    """
    manifest = dataset.manifest
    if manifest.recipe.holds_images or PICTURES not in manifest.files:
        raise InputError(
            f"{dataset.path}: has no {PICTURES}; want a dataset that glit export --to annotations "
            "or glit push --without-images wrote"
        )
    if manifest.schema_version != SCHEMA_VERSION:
        raise InputError(f"{dataset.path}: schema version {manifest.schema_version}; export again")
    require_opencv().setNumThreads(1)
    pictures = UserPictures(images)
    work = output.with_name(f".{output.name}.attach")
    with new_folder(output) as folder, Store(dataset.path).local_copy(PICTURES) as told:
        work.mkdir(exist_ok=True)
        search = _Search(dataset, _Published(dataset, told), pictures, work, progress)
        found, files, unreadable = search.run()
        if not found:
            raise InputError(f"--images: none of {files} files is a picture of {dataset.path}")
        writer = _Writer(dataset, pictures, found, search.ambiguous)
        made = writer.write(folder, progress)
        finish(folder, made, name=output.name, caution=dataset_caution(dataset),
               certificates=made.certificates if not writer.changed else ())  # fmt: skip
    shutil.rmtree(work, ignore_errors=True)
    return Attached(
        samples=len(dataset), found=dict(writer.ways), drops=dict(writer.reasons), files=files,
        unreadable=unreadable,
    )  # fmt: skip


class _Search:
    """Finds the pictures of all samples."""

    def __init__(
        self, dataset: Dataset, published: _Published, pictures: UserPictures, work: Path,
        progress: StageProgress,
    ) -> None:  # fmt: skip
        self._dataset, self._published, self._pictures = dataset, published, pictures
        self._work, self._progress = work, progress
        self.ambiguous: dict[int, str] = {}
        """By sample the file that may as well be another sample's picture."""

    def run(self) -> tuple[dict[int, Found], int, int]:
        """Return what is found by number of the sample, the number of files, and of bad ones."""
        of_bytes, of_pixels = self._published.by_hash()
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
                    for sample in known.get(value, ()):
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
            named = stems.get(_stem(row["path"]), ())
            proposed = [*dict.fromkeys([*named, *proposed])]
            if not proposed:
                return []
            file = UserFile(source=row["source"], path=row["path"])
            try:
                pixels = decode(self._pictures.read(file))
            except (OSError, ImageError) as error:
                raise RunError(f"{row['path']}: changed since it was looked at") from error
            looks, mirrored = looks_both_ways(pixels)
            results = []
            for number in proposed:
                aligned = align(self._published.looks(samples[number]), looks, mirrored)
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


def _stem(path: str) -> str:
    return PurePosixPath(path).stem.casefold()


class _Published:
    """What a dataset tells of its pictures; thumbnails are read when they are wanted.

    Args:
        dataset: that was published.
        path: of its file of pictures.

    Raises:
        DatasetError: the file is damaged, or not this dataset's.
    """

    def __init__(self, dataset: Dataset, path: Path) -> None:
        self._dataset = dataset
        try:
            self._file = BoundedParquet(path)
            table = self._file.read(columns=["sample_id", "pixels_sha256"])
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{dataset.path}/{PICTURES}: {first_line(error)}") from error
        self._groups: OrderedDict[int, Any] = OrderedDict()
        self._ends = np.cumsum(
            [self._file.metadata.row_group(n).num_rows for n in range(self._file.num_row_groups)]
        )
        self._pixels = table["pixels_sha256"].to_pylist()
        self.has_thumbnails = self._thumbnail(0) is not None
        ids = dataset.table(["sample_id", "source_path", "width", "height"])
        self._ids = ids["sample_id"].to_pylist()
        if table["sample_id"].to_pylist() != self._ids:
            raise DatasetError(
                f"{dataset.path}/{PICTURES}: its samples are not those of the data files; export "
                "the dataset again"
            )
        self._paths = ids["source_path"].to_pylist()
        self._sizes = np.stack([ids["width"].to_numpy(), ids["height"].to_numpy()], axis=1)
        self._recent: OrderedDict[int, Looks] = OrderedDict()
        self._lock = threading.Lock()

    def size(self, sample: int) -> tuple[int, int]:
        """Return width and height of a sample's picture."""
        width, height = map(int, self._sizes[sample])
        return width, height

    def by_hash(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """Return the samples by hash of their file, and of their pixels."""
        found: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
        for known, values in zip(found, (self._ids, self._pixels), strict=True):
            for number, value in enumerate(values):
                if value:
                    known.setdefault(value, []).append(number)
        return found

    def stems(self, samples: Sequence[int]) -> dict[str, list[int]]:
        """Return the places of samples by their file's name; not of names that many have."""
        found = defaultdict(list)
        for place, sample in enumerate(samples):
            found[_stem(self._paths[sample])].append(place)
        return {name: places for name, places in found.items() if len(places) <= 4}

    def index(self, samples: Sequence[int]) -> Index:
        """Return the index of some samples."""
        with ThreadPoolExecutor(usable_cores()) as pool:
            return Index(list(map_ahead(pool, self._described, samples, most=2 * usable_cores())))

    def looks(self, sample: int) -> Looks:
        """Return a sample's picture as it is compared."""
        with self._lock:
            known = self._recent.get(sample)
            data = b"" if known is not None else self._thumbnail(sample) or b""
        if known is not None:
            return known
        try:
            known = looks_of(decode(data, max_pixels=_MOST_PIXELS), self.size(sample))
        except ImageError as error:
            raise DatasetError(
                f"{self._dataset.path}/{PICTURES}: the thumbnail of {self._ids[sample]} is "
                f"damaged ({error})"
            ) from error
        with self._lock:
            self._recent[sample] = known
            while len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
        return known

    def _thumbnail(self, sample: int) -> bytes | None:
        group = int(np.searchsorted(self._ends, sample, side="right"))
        if group not in self._groups:
            table = self._file.read_row_group(group, columns=["thumbnail"])
            self._groups[group] = table["thumbnail"].combine_chunks()
            while len(self._groups) > _GROUPS:
                self._groups.popitem(last=False)
        held = self._groups[group]
        return held[sample - (int(self._ends[group]) - len(held))].as_py()

    def _described(self, sample: int) -> Described:
        looks = self.looks(sample)
        value = look(looks.pixels).hash
        own = np.array([] if value is None else [value], np.int64).view(np.uint64)
        return Described(hashes=own, signatures=signatures(looks.features))


class _Writer:
    """Writes the data files, and remembers what it left out."""

    def __init__(
        self, dataset: Dataset, pictures: UserPictures, found: dict[int, Found],
        ambiguous: dict[int, str],
    ) -> None:  # fmt: skip
        self._dataset, self._pictures = dataset, pictures
        self._found, self._ambiguous = found, ambiguous
        self._pairings = pairings_of(dataset.manifest)
        cut = any(each.shown < 1 for each in found.values())
        added = [*CORRECTED, ATTACHED] if cut else [ATTACHED]
        own = [each for each in further_columns(dataset.schema) if each not in added]
        if taken := {name for name, _ in own} & {name for name, _ in added}:
            raise InputError(f"{dataset.path}: has a column {min(taken)} that is not glit's")
        self.further = (*own, *added)
        self.drops: list[dict[str, Any]] = []
        self.dropped_in: Counter[int | None] = Counter()
        self.ways: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    @property
    def changed(self) -> bool:
        """True if the dataset does not hold the samples and boxes that were published."""
        return bool(self.drops) or any(each.shown < 1 for each in self._found.values())

    def write(self, folder: Path, progress: StageProgress) -> Manifest:
        """Write all Parquet files; the manifest to write last."""
        dataset, before = self._dataset, self._dataset.manifest
        schema = dataset_schema(tokenizer=as_plain(before.tokenizer), further=self.further)
        progress.begin("attach", total=len(dataset), done=0)
        (folder / "data").mkdir()
        files = {}
        number = 0
        for name in dataset.files:
            written = 0
            with pq.ParquetWriter(folder / name, schema, **writer_options(schema)) as writer:
                for index, place in enumerate(dataset.places):
                    if place.path != name:
                        continue
                    rows = list(self._rows(dataset.table(row_group=index), number, name))
                    number += place.num_rows
                    written += len(rows)
                    if rows:
                        table = pa.Table.from_pylist(rows, schema=schema)
                        writer.write_table(table, row_group_size=len(rows))
                    progress.advance(place.num_rows, place.num_rows - len(rows))
            files[name] = describe_data_file(folder / name, written)
        return self._manifest(folder, files)

    def _rows(self, table: pa.Table, first: int, name: str) -> Iterator[dict[str, Any]]:
        for sample, row in enumerate(table.to_pylist(), start=first):
            made = self._made(sample, row)
            if not isinstance(made, Drop):
                self.ways[self._found[sample].how] += 1
                yield made
                continue
            self.reasons[made.reason] += 1
            self.dropped_in[series_of_file(name)] += 1
            self.drops.append(
                {key: row[key] for key in ("sample_id", "source_path")}
                | {"stage": "attach", "reason": made.reason, "message": made.message, "attempt": 0}
            )

    def _made(self, sample: int, row: dict[str, Any]) -> dict[str, Any] | Drop:
        found = self._found.get(sample)
        if found is None:
            if (file := self._ambiguous.get(sample)) is not None:
                return Drop(reason="ambiguous_picture", message=f"{file} may be another's as well")
            return Drop(reason="no_picture", message="none of the files is this picture")
        data = self._pictures.read(found.file)
        if hashlib.sha256(data).hexdigest() != found.sha256:
            raise RunError(f"{found.file.path}: changed since it was looked at; run again")
        pixels = decode(data)
        height, width = pixels.shape[:2]
        size = (row["width"], row["height"])
        placement = found.placement or Placement(left=0, top=0, right=size[0], bottom=size[1])
        if (width, height) != size or found.placement is not None:
            made = moved_row(row, placement, width, height, self._pairings)
            if isinstance(made, Drop):
                return made
            row = made
        told = {"file": self._pictures.place(found.file), "sha256": found.sha256, "how": found.how,
                "colours": found.colours, **dataclasses.asdict(placement)}  # fmt: skip
        empty = {"by_hand": [], "review": review(State())}
        path = {"bytes": data, "path": row["source_path"]}
        return {**empty, **row, "image": path, ATTACHED[0]: told}

    def _manifest(self, folder: Path, files: dict[str, Any]) -> Manifest:
        """The manifest; writes the lists of what is left out."""
        before, number = self._dataset.manifest, len(self.drops)
        source = Store(self._dataset.path)
        for name in before.files.keys() - files.keys() - {PICTURES}:
            (folder / name).write_bytes(source.read(name))
        if number:
            new = pa.Table.from_pylist(self.drops, schema=DROPS_SCHEMA)
            drops = pa.concat_tables([self._dataset.drops().cast(DROPS_SCHEMA), new])
            pq.write_table(drops, folder / "drops.parquet", **PINNED)
            files["drops.parquet"] = describe_file(folder / "drops.parquet", len(drops))
        kept = {name: each for name, each in before.files.items() if name != PICTURES}
        all_files = {**kept, **files}
        reasons = Counter(before.counts.drops)
        reasons.update({f"attach/{reason}": count for reason, count in self.reasons.items()})
        pack = {**before.recipe.table(Pack.name), "image_store": "bytes"}
        added = {name: hf_feature(kind) for name, kind in self.further}
        return dataclasses.replace(
            before,
            recipe=before.recipe.with_table(Pack.name, pack),
            counts=dataclasses.replace(
                before.counts,
                shipped=before.counts.shipped - number,
                dropped=before.counts.dropped + number,
                drops=dict(reasons),
                without_pair=sum_without_pair(all_files),
            ),
            additions=tuple(
                dataclasses.replace(
                    each,
                    shipped=each.shipped - self.dropped_in[place],
                    dropped=each.dropped + self.dropped_in[place],
                )
                for place, each in enumerate(before.additions, start=1)
            ),
            files=all_files,
            columns={**before.columns, **added},
        )
