"""A user's file of captions: one of every image, or several of different kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import DuckDBPyConnection

from glit.data.captions import KIND_RULE, LONG, is_kind
from glit.data.coco import CocoFile
from glit.data.json_files import json_array, load_json
from glit.data.limits import CAPTION_CHARS
from glit.errors import InputError, cut
from glit.inputs.lookup import BroughtCaptions
from glit.inputs.user_tables import (
    PATH_KEYS,
    brought_table,
    finder,
    lacking,
    pick,
    rows_of,
    sorted_table,
)
from glit.storage.duckdb_temp import spilling
from glit.storage.members import is_utf8
from glit.storage.store import Store

TEXT_KEYS = ("caption", "text")
KIND_KEY, KIND_SUFFIX = "kind", "_caption"
"""The kind of a row's caption; and a column of captions of a kind, as in ``short_caption``."""
_SCHEMA = pa.schema(
    [("path", pa.string()), ("caption", pa.string()), ("line", pa.int64()), ("kind", pa.string())]
)
_SEVERAL = f"""
    SELECT count(*) FROM (
        SELECT path FROM unsorted GROUP BY path
        HAVING count(DISTINCT coalesce(kind, '{LONG}')) > 1
    )
"""
_KINDS = f"""
    SELECT coalesce(kind, '{LONG}') AS name FROM read_parquet($file, hive_partitioning = false)
    GROUP BY name ORDER BY name <> '{LONG}', min(line), name
"""
_MOST_KINDS = 64
_HEAD_BYTES = 4096


def prepare(captions: str, *, image_root: str, work: Store) -> BroughtCaptions:
    """Read a caption file into a sorted table in ``work``.

    Paths in the file may be relative to the image folder or to the caption file, or absolute; the
    file may lie at an address, and so may the images. Nothing is done when the table for the same
    bytes and root is there already; its digest is a part of its name, so one that was damaged
    since is made anew.

    The table has a column ``kind`` where an image has captions of several kinds; see
    :func:`kinds_of`.

    Raises:
        InputError: the file is missing, of an unknown kind, or a row is not understood.
    """
    return sorted_table(
        BroughtCaptions, captions, "captions", _SCHEMA, read_captions,
        image_root=image_root, work=work, version=" kind", query=_sorted,
    )  # fmt: skip


def _sorted(connection: DuckDBPyConnection) -> str:
    """With the kinds only where an image has several."""
    several = connection.sql(_SEVERAL).fetchall()[0][0]
    what, order = ("*", "path, line, kind") if several else ("* EXCLUDE (kind)", "path, line")
    return f"SELECT {what} FROM unsorted ORDER BY {order}"


def kinds_of(brought: BroughtCaptions) -> tuple[str, ...]:
    """The kinds of captions in a file in which images have several, a long one first, then as they
    come; none where every image has one caption.

    Raises:
        InputError: there are too many to be kinds.
    """
    with brought_table(brought) as table:
        assert table is not None
        if KIND_KEY not in pq.read_schema(table).names:
            return ()
        with spilling(table.parent) as connection:
            found = connection.execute(_KINDS, {"file": str(table)}).fetchall()
    kinds = tuple(name for (name,) in found)
    if len(kinds) > _MOST_KINDS:
        raise InputError(
            f"{brought.name}: has {len(kinds)} kinds of captions ({', '.join(kinds[:3])}, …), want "
            f"at most {_MOST_KINDS}; name those to take, as --set 'caption.kinds=[\"{kinds[0]}\"]'"
        )
    return kinds


def read_captions(
    file: Path, image_root: str, *, where: str = ""
) -> Iterator[tuple[str, str | None, int, str | None]]:
    """Path relative to the image root, caption, row number and kind of every caption.

    A row may hold several: ``short_caption`` beside ``caption``, or a list of captions, of the
    kinds ``caption-1``, ``caption-2``, … A caption with a lone surrogate, which JSON can hold and
    UTF-8 cannot, is None; so is the kind of one that says none.

    Args:
        file: on this machine.
        image_root: folder or address.
        where: the address that the file is a copy of; empty for none.

    Raises:
        InputError: see :func:`prepare`.
    """
    relative = finder(file, image_root, where)
    is_json = file.suffix.lower() == ".json" and file.is_file()
    rows = _json(file) if is_json else rows_of(file, _is_read)
    for number, row in rows:
        has_text = any(key in TEXT_KEYS or str(key).endswith(KIND_SUFFIX) for key in row)
        if not has_text and not any(key in row for key in PATH_KEYS):
            raise lacking(row, [PATH_KEYS, TEXT_KEYS], file, number)
        path = pick(row, PATH_KEYS, file, number)
        captions = _captions_in_row(row, file, number)
        if is_utf8(path):  # no image of another name goes in
            for kind, caption in captions:
                caption = caption[: CAPTION_CHARS + 1]  # one more: the build drops it as too long
                yield relative(path), caption if is_utf8(caption) else None, number, kind


def _is_read(column: str) -> bool:
    return column in {*PATH_KEYS, *TEXT_KEYS, KIND_KEY} or column.endswith(KIND_SUFFIX)


def _captions_in_row(row: dict[str, Any], file: Path, number: int) -> list[tuple[str | None, str]]:
    """Kinds and texts; where a row holds nothing else, its caption is empty."""
    kind = pick(row, (KIND_KEY,), file, number, default="") if KIND_KEY in row else ""
    further = {
        key.removesuffix(KIND_SUFFIX): text
        for key in row
        if isinstance(key, str) and key.endswith(KIND_SUFFIX)
        if (text := pick(row, (key,), file, number, default="")).strip()
    }
    for name in (*([kind] if kind else ()), *further):
        if not is_kind(name):
            raise InputError(
                f"{file}: row {number} has a caption of the kind {name[:80]!r}, want {KIND_RULE}"
            )
    if further and not any(key in row for key in TEXT_KEYS):
        return list(further.items())
    own = next((row[key] for key in TEXT_KEYS if key in row), None)
    if isinstance(own, list) and not kind:
        return [*_listed(own, file, number), *further.items()]
    own = pick(row, TEXT_KEYS, file, number, default="")
    return [(kind or None, own), *further.items()]


def _listed(captions: list[Any], file: Path, number: int) -> list[tuple[str | None, str]]:
    """The captions of a list, numbered, as none of them is longer than the others."""
    for each in captions:
        if not isinstance(each, str):
            raise InputError(
                f"{file}: row {number} has a list of captions with {cut(repr(each), 60)}, want one "
                "text each"
            )
    return [(f"caption-{at}", each) for at, each in enumerate(captions or [""], start=1)]


def _json(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a list of objects, as BLIP's are, or of a file in COCO's layout."""
    with file.open("rb") as stream:
        is_list = stream.read(_HEAD_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    if not is_list:
        yield from _coco(file)
        return
    number = 0
    try:
        for number, row in enumerate(json_array(file), start=1):
            if not isinstance(row, dict):
                raise InputError(
                    f"{file}: row {number} is {cut(repr(row), 60)}, want an object with a path "
                    "and a caption"
                )
            yield number, row
    except ValueError as error:
        raise InputError(
            f"{file}: no list of objects with an image and a caption, after row {number} "
            f"({cut(str(error), 120)})"
        ) from error


def _coco(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The captions of a file in COCO's layout; an image's are ``caption-1``, ``caption-2``, …"""
    try:
        coco = CocoFile(load_json(file)).checked()
        for key in coco.without_image:
            raise ValueError(coco.no_image(key))
        seen: Counter[str] = Counter()
        for image in coco.images:
            for number, each in image.annotations:
                seen[image.file_name] += 1
                kind = f"caption-{seen[image.file_name]}"
                yield number, {"path": image.file_name, "caption": each["caption"], KIND_KEY: kind}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{file}: not COCO's JSON of captions, with images and annotations "
            f"({type(error).__name__}: {cut(str(error), 120)}); other captions go in .jsonl, .csv "
            "or .parquet"
        ) from error


def captions_in(file: Path) -> Iterator[str]:
    """The captions of a file whose rows need name no image; see :func:`read_captions`."""
    for number, row in rows_of(file, {*PATH_KEYS, *TEXT_KEYS}.__contains__):
        yield pick(row, TEXT_KEYS, file, number, default="")
