"""Check every promise of the data format; one line per breach.

Rows are read as plain values: the reader refuses what is to be reported here.
"""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from glit.data import rows
from glit.data.bounded_parquet import BoundedParquet
from glit.data.captions import has_words, is_kind
from glit.data.data_files import series_of_file
from glit.data.schema import (
    ATTACHED,
    CAPTION,
    CAPTIONS,
    DROPS_SCHEMA,
    DUPLICATES_SCHEMA,
    WITH_DISTANCE,
)
from glit.dataset.by_hand import by_hand_of, with_by_hand
from glit.dataset.certificate import faults
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
from glit.dataset.row_checks import column_faults, damage, file_faults, nulls, row_faults
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
from glit.storage.duckdb_temp import spilling
from glit.storage.store import Store

_MAX_FILE_BYTES = 500 << 20
_MAX_GROUP_BYTES = 100 << 20
_IMPOSSIBLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError,
    RuntimeError, pa.ArrowException,
)  # fmt: skip
"""Errors that checking impossible values raises."""
_SEEN = "CREATE TABLE seen (file VARCHAR, sample_id VARCHAR, source_path VARCHAR)"
_REPEATED = """
    WITH ranked AS (
        SELECT *, rowid AS number, row_number() OVER same AS place,
            first_value(source_path) OVER same AS first
        FROM seen WHERE sample_id IS NOT NULL
        WINDOW same AS (PARTITION BY sample_id ORDER BY rowid)
    )
    SELECT file, source_path, first FROM ranked WHERE place > 1 ORDER BY number
"""


def verify(output: str, progress: StageProgress | None = None) -> Iterator[str]:
    """Yield the lines of :func:`glit.api.verify` one by one.

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
    with tempfile.TemporaryDirectory() as folder, spilling(folder) as connection:
        connection.execute(_SEEN)
        for name in manifest.data_files:
            if dataset.exists(name):
                samples: list[pa.Table] = []
                with dataset.local_copy(name) as path:
                    found = _check_data_file(name, path, manifest, pairings, samples, told)
                    yield from _as_far_as_it_goes(name, found)
                if samples:
                    connection.register("samples", pa.concat_tables(samples))
                    connection.execute(
                        "INSERT INTO seen SELECT ?, * FROM samples",
                        [name],
                    )
        repeated = connection.execute(_REPEATED)
        while row := repeated.fetchone():
            name, path, first = row
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
    samples: list[pa.Table],
    told: StageProgress,
) -> Iterator[str]:
    """Yield the faults of a data file, and add the names of its samples to ``samples``."""
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
        if fault := damage(table):
            yield f"{name}: row group {index}: {fault}"
        else:
            samples.append(table.select(["sample_id", "source_path"]))
            yield from _check_table(name, table, manifest, pairings)
        told.advance(file.metadata.row_group(index).num_rows)


def _check_table(
    name: str, table: pa.Table, manifest: Manifest, pairings: list[Pairing] | None
) -> Iterator[str]:
    """Breaches of a row group's rows, row by row: what the reader refuses, and what only the
    pixels, the texts and the rule show."""
    faults = list(row_faults(table))
    lacking = {row for row, _ in nulls(table)}
    paths = table.column("source_path").to_pylist()
    try:
        rows = [row for row in range(len(table)) if row not in lacking]
        is_whole = pa.array((row not in lacking for row in range(len(table))), pa.bool_())
        values = table.filter(is_whole).to_pylist()
        bad = {row for row, _ in faults}
        found = _check_rows(values, manifest, pairings, [row not in bad for row in rows])
        faults += [(rows[at], fault) for at, fault in found]
    except _IMPOSSIBLE as error:
        yield f"{name}: its rows cannot be checked ({_line(error)})"
    for row, fault in sorted(faults, key=itemgetter(0)):
        yield f"{name}: {paths[row] or f'row {row}'}: {fault}"


def _check_rows(
    found: list[dict[str, Any]],
    manifest: Manifest,
    pairings: list[Pairing] | None,
    are_good: list[bool],
) -> Iterator[tuple[int, str]]:
    """Yield faults that the reader does not look for, each with the number of its row.

    Args:
        found: rows without missing values.
        manifest: of the dataset.
        pairings: those that the manifest names; pairs must be what one makes of the scores. None
            where their rule is not here, so that pairs are not checked.
        are_good: whether the rows are without a fault so far, else a rule can do nothing with them.
    """
    own_bytes = not manifest.recipe.table("pack").get("max_side")  # else encoded anew
    limit = _max_pixels(manifest)
    with ThreadPoolExecutor(2) as pool:
        sizes = list(pool.map(partial(_image_size, max_pixels=limit), found))
    for number, (row, size) in enumerate(zip(found, sizes, strict=True)):
        if isinstance(size, str):
            yield number, size
        elif (own_bytes or ATTACHED[0] in row) and not _is_own(row):
            yield number, "its image is not the one its sample_id names"
        elif size is not None and size != (row["width"], row["height"]):
            yield number, f"{size} pixels, the row says {(row['width'], row['height'])}"
        for fault in text_faults(row, manifest.tokenizer.context):
            yield number, fault
        if not row["regions"] and not may_lack_regions(manifest):
            yield number, "it has no region, at least one is due"
        if row["regions"] and pairings == []:
            yield number, f"{len(row['regions'])} regions in a dataset of captions alone"
        elif are_good[number] and row["regions"] and pairings:
            for fault in _pair_breaches(row, pairings):
                yield number, fault


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


def text_faults(row: dict[str, Any], context: int) -> Iterator[str]:
    """Yield the faults of a row's sentences, and of its captions of several kinds.

    Args:
        row: of a data file, as plain values.
        context: text window, tokens.
    """
    for index, s in enumerate(row["sentences"]):
        if row["caption"][s["char_start"] : s["char_end"]] != s["text"]:
            yield f"sentence {index}: its character span does not give its text"
        if s["in_window"] != (s["token_end"] <= context - 1):
            yield f"sentence {index}: in_window is wrong"
    captions = row.get(CAPTIONS[0]) or []
    if not all(isinstance(each, dict) and [*each] == CAPTION.names for each in captions):
        return  # the column is of somebody's own stage
    for each in captions:
        if not is_kind(each["kind"]):
            yield f"captions: {each['kind']!r} is no kind"
        if not has_words(each["text"]):
            yield f"captions: the one of the kind {each['kind']!r} has no words"
    seen = Counter((each["kind"], each["source"]) for each in captions)
    for (kind, source), number in seen.items():
        if number > 1:
            yield f"captions: {number} of the kind {kind!r} and the source {source!r}"
    if captions and row["caption"] not in [each["text"] for each in captions]:
        yield "captions: its caption is not among them"


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
