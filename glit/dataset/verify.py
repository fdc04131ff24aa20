"""Check every promise of the data format; one line per breach.

Rows are read as plain values: the reader refuses what is to be reported here.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from glit.data import rows
from glit.data.bounded_parquet import BoundedParquet
from glit.data.data_files import series_of_file
from glit.data.schema import (
    ATTACHED,
    DROPS_SCHEMA,
    DUPLICATES_SCHEMA,
    WITH_DISTANCE,
)
from glit.dataset.by_hand import by_hand_of, with_by_hand
from glit.dataset.certificate import faults
from glit.dataset.duplicate_samples import Repeats
from glit.dataset.local_pairs import count_without_pair
from glit.dataset.manifest import (
    Manifest,
    describe_file,
    may_lack_regions,
    read_manifest,
    sum_without_pair,
)
from glit.dataset.reader import Dataset
from glit.dataset.recorded_rules import pairings_of
from glit.dataset.row_checks import column_faults, file_faults, row_faults
from glit.dataset.text_checks import breaches_alone, caption_breaches, sentence_breaches
from glit.errors import (
    DatasetError,
    GlitError,
    MissingPluginError,
    RecipeError,
    RunError,
    cut,
    first_line,
)
from glit.images import ImageError, decode, pixel_limit
from glit.images.location import had_location
from glit.recipes.plugins import missing
from glit.rules.pairing import Pairing
from glit.runtime.progress import StageProgress, null_progress
from glit.stages import all_reasons
from glit.storage.store import Store

_MAX_FILE_BYTES = 500 << 20
_MAX_GROUP_BYTES = 100 << 20
_SIMILARITY_SLACK = 1e-3
_IMPOSSIBLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError,
    RuntimeError, pa.ArrowException,
)  # fmt: skip
"""Errors that checking impossible values raises."""


def verify(output: str, progress: StageProgress | None = None) -> Iterator[str]:
    """Yield every breach of the format's promises, one line each.

    Args:
        output: a dataset's folder or address.
        progress: what to tell.

    Raises:
        UserError: there is no finished dataset.
        DatasetError: the manifest cannot be read at all.
        RunError: there is no room for temporary files.
    """
    told = progress or null_progress()
    dataset = Store(output)
    manifest = read_manifest(dataset)
    yield from _check_balance(manifest)
    told.begin("files", total=len(manifest.files), done=0, drops=False)
    yield from check_files(dataset, manifest, told)
    yield from _check_left_out(dataset, manifest)
    try:
        pairings = pairings_of(manifest)
    except MissingPluginError as error:
        warnings.warn(f"{output}: {error}; pairs are not compared with the rule", stacklevel=2)
        pairings = None
    except DatasetError as error:
        yield str(error)
        return
    told.begin("rows", total=manifest.counts.shipped, done=0, drops=False)
    with contextlib.closing(Repeats()) as repeats:
        for name in manifest.data_files:
            if dataset.exists(name):
                with dataset.local_copy(name) as path:
                    found = _check_data_file(name, path, manifest, pairings, repeats, told)
                    yield from _as_far_as_it_goes(name, found)
        for name, path, first in repeats.found():
            yield f"{name}: {path}: the same sample as {first}"
    if manifest.certificates:
        yield from _as_far_as_it_goes("manifest.json", _check_certificates(output))


def _line(error: BaseException) -> str:
    """Return the first line of an error, as a fault of the dataset.

    Raises:
        RunError: memory or threads were short, which says nothing of the dataset.
    """
    said = first_line(error)
    if isinstance(error, MemoryError) or "thread" in said.casefold():
        raise RunError(f"not enough memory or threads to check the dataset ({said})") from error
    return said


def _check_certificates(output: str) -> Iterator[str]:
    try:
        yield from faults(Dataset(output))
    except GlitError as error:
        yield f"the certificates cannot be checked: {error}"


def _as_far_as_it_goes(name: str, breaches: Iterator[str]) -> Iterator[str]:
    """Breaches of a file, in which anything can be."""
    try:
        yield from breaches
    except _IMPOSSIBLE as error:
        yield f"{name}: cannot be read to its end ({_line(error)})"


def _check_balance(manifest: Manifest) -> Iterator[str]:
    counts = manifest.counts
    if counts.breach:
        yield f"manifest.json: {counts.breach}"
    if sum(counts.drops.values()) != counts.dropped:
        yield "manifest.json: drops by reason do not add up to the number dropped"
    rows = sum(file.rows for file in manifest.data_files.values())
    if sum_without_pair(manifest.files) != (counts.without_pair or 0):
        yield "manifest.json: samples without a pair do not add up to the number of all files"
    if rows != counts.shipped:
        yield f"manifest.json: {counts.shipped} shipped, but its data files hold {rows} rows"
    yield from _check_additions(manifest)


def _check_additions(manifest: Manifest) -> Iterator[str]:
    """Check the balance of every addition, and its rows in the files that are named after it."""
    rows: Counter[int | None] = Counter()
    for name, found in manifest.files.items():
        rows[series_of_file(name)] += found.rows
    for number, each in enumerate(manifest.additions, start=1):
        if not each.holds:
            yield f"manifest.json: the balance of addition {number} does not hold"
        if rows[number] != each.shipped:
            yield (
                f"manifest.json: addition {number} shipped {each.shipped}, but its data files "
                f"hold {rows[number]} rows"
            )
    unknown = max((number or 0 for number in rows), default=0) - len(manifest.additions)
    if unknown > 0:
        yield f"manifest.json: data files of {unknown} additions that it does not tell of"


def check_files(dataset: Store, manifest: Manifest, told: StageProgress) -> Iterator[str]:
    """Yield a line for each file that is missing, is not in the manifest, or has other bytes."""
    on_disk = {f"data/{name}" for name in dataset.names("data")}
    for name in sorted(on_disk - manifest.files.keys()):
        yield f"{name}: not in the manifest"
    for name, wanted in sorted(manifest.files.items()):
        if not dataset.exists(name):
            yield f"{name}: missing"
            continue
        try:
            with dataset.local_copy(name) as path:
                found = describe_file(path, wanted.rows)
        except OSError as error:
            yield f"{name}: cannot be read ({_line(error)})"
            continue
        told.advance(1)
        if found.bytes != wanted.bytes:
            yield f"{name}: {found.bytes} bytes, the manifest says {wanted.bytes}"
        elif found.sha256 != wanted.sha256:
            yield f"{name}: its SHA-256 is not the manifest's; the file was changed or damaged"
        if found.bytes > _MAX_FILE_BYTES:
            yield f"{name}: {found.bytes} bytes, files stay under {_MAX_FILE_BYTES}"


def _check_left_out(dataset: Store, manifest: Manifest) -> Iterator[str]:
    for name, number, schemas in (
        ("drops.parquet", manifest.counts.dropped, [DROPS_SCHEMA]),
        ("duplicates.parquet", manifest.counts.duplicates, [DUPLICATES_SCHEMA, WITH_DISTANCE]),
    ):
        if not dataset.exists(name):
            continue  # reported as missing already
        with dataset.local_copy(name) as path:
            try:
                table = BoundedParquet(path).read()
            except (pa.ArrowException, OSError, ValueError) as error:
                yield f"{name}: cannot be read ({_line(error)})"
                continue
        if table.schema.remove_metadata() not in schemas:
            yield f"{name}: its columns are not those of the schema"
            continue
        if table.num_rows != number:
            yield f"{name}: {table.num_rows} rows, the manifest says {number}"
        if name == "drops.parquet":
            unknown = sorted(set(map(str, table["reason"].to_pylist())) - set(all_reasons()))
            if unknown and not missing(manifest.recipe.plugins):
                yield f"{name}: unknown reasons {cut(', '.join(unknown))}"


def _check_data_file(
    name: str,
    path: Path,
    manifest: Manifest,
    pairings: list[Pairing] | None,
    repeats: Repeats,
    told: StageProgress,
) -> Iterator[str]:
    try:
        file = BoundedParquet(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        yield f"{name}: not a readable Parquet file ({_line(error)})"
        return
    yield from (f"{name}: {fault}" for fault in file_faults(file.metadata, name, manifest))
    if any(column_faults(file.schema_arrow, manifest)):
        return
    said = manifest.files[name].without_pair
    if said is not None and said != count_without_pair(path):
        yield f"{name}: the number of its samples without a pair is not the manifest's"
    for index in range(file.num_row_groups):
        size = file.metadata.row_group(index).total_byte_size
        if size > _MAX_GROUP_BYTES and file.metadata.row_group(index).num_rows > 1:
            yield f"{name}: row group {index} has {size} bytes, groups stay under 100 MB"
        table = file.read_row_group(index)
        breaches = list(_check_table(name, table, manifest, pairings, repeats))
        yield from breaches or (f"{name}: row {row}: {fault}" for row, fault in row_faults(table))
        told.advance(file.metadata.row_group(index).num_rows)


def _check_table(
    name: str,
    table: pa.Table,
    manifest: Manifest,
    pairings: list[Pairing] | None,
    repeats: Repeats,
) -> Iterator[str]:
    """Breaches of a row group's rows; of values that no rule can work with, their fault alone."""
    try:
        found = table.to_pylist()
        repeats.add(name, [(row["sample_id"], row["source_path"]) for row in found])
        yield from _check_rows(name, found, manifest, pairings)
    except _IMPOSSIBLE as error:
        said = _line(error)
        faults = [f"{name}: row {row}: {fault}" for row, fault in row_faults(table)]
        yield from faults or [f"{name}: its rows cannot be checked ({said})"]


def _check_rows(
    name: str,
    found: list[dict[str, Any]],
    manifest: Manifest,
    pairings: list[Pairing] | None,
) -> Iterator[str]:
    own_bytes = not manifest.recipe.table("pack").get("max_side")  # else encoded anew
    limit = _max_pixels(manifest)
    with ThreadPoolExecutor(2) as pool:
        sizes = list(pool.map(partial(_image_size, max_pixels=limit), found))
    for row, size in zip(found, sizes, strict=True):
        where = f"{name}: {row['source_path']}"
        if isinstance(size, str):
            yield f"{where}: {size}"
        elif (own_bytes or ATTACHED[0] in row) and not _is_own(row):
            yield f"{where}: its image is not the one its sample_id names"
        elif size is not None and size != (row["width"], row["height"]):
            yield f"{where}: {size} pixels, the row says {(row['width'], row['height'])}"
        if not row["regions"] and may_lack_regions(manifest):
            breaches = breaches_alone(row, manifest.tokenizer.context)
        else:
            breaches = row_breaches(row, manifest.tokenizer.context, pairings)
        yield from (f"{where}: {breach}" for breach in breaches)


def _is_own(row: dict[str, Any]) -> bool:
    """Return whether the stored image is that of the sample, or the one that was attached to it."""
    if (data := row["image"]["bytes"]) is None:
        return True
    attached = row.get(ATTACHED[0])
    ours = isinstance(attached, dict) and [*attached] == [field.name for field in ATTACHED[1]]
    named = attached["sha256"] if ours and isinstance(attached, dict) else row["sample_id"]
    return hashlib.sha256(data).hexdigest() == named or had_location(data)


def _max_pixels(manifest: Manifest) -> int:
    """The build's limit, or that of a retry which raised it, if it is lower than this reader's."""
    tables = [manifest.recipe.tables, *(each.settings for each in manifest.retries)]
    found = [each.get("ingest", {}).get("max_pixels") for each in tables]
    found = [value for value in found if type(value) is int]
    return min(pixel_limit(), max(found, default=pixel_limit()))


def _image_size(row: dict[str, Any], *, max_pixels: int) -> tuple[int, int] | str | None:
    data = row["image"]["bytes"]
    if data is None:
        return None
    try:
        pixels = decode(data, max_pixels=max_pixels)
    except ImageError as error:
        return f"its image cannot be decoded ({error})"
    return pixels.shape[1], pixels.shape[0]


def row_breaches(
    row: dict[str, Any], context: int, pairings: list[Pairing] | None
) -> Iterator[str]:
    """Yield the faults in the text, the boxes and the pairs of one row.

    Args:
        row: of a data file, as plain values.
        context: text window, tokens.
        pairings: those that the manifest names; pairs must be what one makes of the scores. None
            where their rule is not here, so that pairs are not checked.
    """
    sentences, regions = row["sentences"], row["regions"]
    if pairings == []:
        yield f"{len(regions)} regions in a dataset of captions alone"
        return
    if not (sentences and regions):
        yield f"{len(sentences)} sentences and {len(regions)} regions, at least one of each is due"
        return
    yield from sentence_breaches(row["caption"], sentences, context)
    yield from caption_breaches(row)
    width, height = row["width"], row["height"]
    slack = 1e-3 * max(width, height)
    boxes_are_good = True
    for index, r in enumerate(regions):
        inside = r["x0"] >= 0 and r["y0"] >= 0 and r["x1"] <= width + slack
        if not (inside and r["y1"] <= height + slack and r["x0"] < r["x1"] and r["y0"] < r["y1"]):
            box = (r["x0"], r["y0"], r["x1"], r["y1"])
            yield f"region {index}: box {box} is empty or leaves the {width}x{height} image"
            boxes_are_good = False
    of_scores = list(_score_breaches(row))
    yield from of_scores
    if boxes_are_good and not of_scores and pairings:
        yield from _pair_breaches(row, pairings)


def _score_breaches(row: dict[str, Any]) -> Iterator[str]:
    sentences, regions = len(row["sentences"]), len(row["regions"])
    wanted = {
        "similarity": sentences * regions,
        "image_similarity": sentences,
        "phrase_similarity": sentences * regions,
        "agreement": sentences * regions,
    }
    for name, number in wanted.items():
        if name not in row or (name in ("phrase_similarity", "agreement") and row[name] is None):
            continue
        values = np.array(row[name], dtype=np.float32)
        if len(values) != number:
            of = f"{sentences} sentences and {regions} regions"
            yield f"{name} has {len(values)} values, not {number} for {of}"
        elif not np.isfinite(values).all() or np.abs(values).max() > 1 + _SIMILARITY_SLACK:
            yield f"{name} holds values that are no cosines"


def _pair_breaches(row: dict[str, Any], pairings: list[Pairing]) -> Iterator[str]:
    """Yield how the pairs break the first rule, if they are those of none of the rules."""
    breaches = [list(_breaches_of(row, pairing)) for pairing in pairings]
    if all(breaches):
        yield from breaches[0]


def _breaches_of(row: dict[str, Any], pairing: Pairing) -> Iterator[str]:
    """Yield how the pairs differ from those that the rule makes of the scores."""
    number = len(row["sentences"])
    scores = rows.scores(row, number)
    regions = tuple(map(rows.region, row["regions"]))
    sentences = tuple(map(rows.sentence, row["sentences"]))
    try:
        made = with_by_hand(pairing(scores, regions, sentences), by_hand_of(row), scores)
        wanted = [rows.pair_row(pair) for pair in made]
    except RecipeError as error:
        yield str(error)
        return
    found = row["pairs"]
    if len(found) != len(wanted):
        yield f"{len(found)} pairs, the rule gives {len(wanted)}"
        return
    for index, (pair, due) in enumerate(zip(found, wanted, strict=True)):
        if pair != due:
            yield f"pair {index}: {_in_words(pair)}, the rule gives {_in_words(due)}"
            return


def _in_words(pair: dict[str, Any]) -> str:
    wins = " (the whole image wins)" if pair["global_wins"] else ""
    return f"sentence {pair['sentence']} with region {pair['region']} at {pair['similarity']}{wins}"
