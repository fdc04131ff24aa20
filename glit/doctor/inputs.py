"""Check the images of a build: their number, whether they decode, and disk space."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glit.doctor.finding import Finding
from glit.errors import GlitError
from glit.images import ImageError, decode
from glit.inputs.files import ImageFiles
from glit.inputs.no_images import no_images
from glit.inputs.source import Source, entries, find_source
from glit.runtime.progress import size
from glit.scenes.recognise import looks_like_scene
from glit.stages.ingest import IngestConfig
from glit.stages.pack import PackConfig
from glit.stages.plan import Recipe
from glit.storage.store import Entry, Store

SAMPLE = 32
"""Images that are decoded."""
TABLE_BYTES = 20_000
"""Bytes that the work folder keeps an image, with room to spare: 3 KB on scenes, 10 KB with 25
regions and 12 sentences."""
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildImages:
    """The images that a build would read."""

    source: Source
    number: int
    num_bytes: int
    decoded: tuple[Entry, ...]
    """Entries of the sample that a build would take."""
    scenes: int = 0
    """Number of these that look like glit's procedural scenes."""


def look_at_images(images: str, recipe: Recipe) -> tuple[BuildImages, list[Finding]]:
    """List all images and decode a sample.

    Raises:
        InputError: no such folder or list.
    """
    source = find_source(images)
    number, num_bytes, sample = _listed(source)
    if not number:
        missing = Finding(
            about="images", state="fails", found=no_images(source, images),
            todo="give a folder, a glob or a list of images",
        )  # fmt: skip
        return BuildImages(source=source, number=0, num_bytes=0, decoded=()), [missing]
    good, bad, scenes = _decoded(sample, ImageFiles(source.root), recipe.of(IngestConfig))
    found = f"{number} files, {size(num_bytes)}; {len(good)} of {len(sample)} looked at decode"
    if not bad:
        said = Finding(about="images", state="ok", found=found)
    else:
        named = ", ".join(bad[:_MOST_NAMED]) + (", …" if len(bad) > _MOST_NAMED else "")
        said = Finding(
            about="images",
            state="note" if good else "fails",
            found=f"{found}; not: {named}",
            todo="such files become rows of drops.parquet" if good else "see if they are images",
        )
    seen = BuildImages(
        source=source, number=number, num_bytes=num_bytes, decoded=tuple(good), scenes=scenes
    )
    return seen, [said]


def _listed(source: Source) -> tuple[int, int, list[Entry]]:
    """Files, their bytes, and a sample of them; equal for equal files in any order of listing."""
    kept: list[tuple[int, Entry]] = []
    number = num_bytes = 0
    for entry in entries(source):
        number += 1
        num_bytes += max(entry.size, 0)
        kept.append((zlib.crc32(entry.path.encode("utf-8", "surrogateescape")), entry))
        if len(kept) > 64 * SAMPLE:
            kept = _first(kept)
    return number, num_bytes, [entry for _, entry in _first(kept)]


def _first(kept: list[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
    return sorted(kept, key=lambda each: (each[0], each[1].path))[:SAMPLE]


def _decoded(
    sample: list[Entry], store: Store, config: IngestConfig
) -> tuple[list[Entry], list[str], int]:
    good, bad, scenes = [], [], 0
    for entry in sample:
        try:
            pixels = decode(store.read(entry.path), max_pixels=config.max_pixels)
        except ImageError as error:
            bad.append(f"{_printable(entry.path)} ({error.reason})")
        except (OSError, ValueError) as error:
            bad.append(f"{_printable(entry.path)} ({type(error).__name__})")
        else:
            if min(pixels.shape[:2]) < config.min_side:
                bad.append(f"{_printable(entry.path)} (too_small)")
            else:
                good.append(entry)
                scenes += looks_like_scene(pixels)
    return good, bad, scenes


def _printable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


def _room_there(output: str) -> Finding:
    """Return a finding: whether objects can be written to an address. Free space is not checked."""
    probe = f"doctor-{uuid.uuid4().hex}"
    try:
        store = Store(output)
        store.create(probe, b"")
        store.remove(probe)
    except (GlitError, OSError) as error:
        return Finding(
            about="disk", state="fails", found=f"cannot write there: {error}",
            todo="choose another address or folder with -o",
        )  # fmt: skip
    return Finding(about="disk", state="ok", found=f"{output}: objects can be written")


def disk(images: BuildImages | None, recipe: Recipe, output: str) -> Iterator[Finding]:
    """Check the space for the dataset, on a disk or at an address."""
    if "://" in output:
        yield _room_there(output)
        return
    place = Path(os.path.abspath(output))
    while not os.path.exists(place):  # a folder that may not be looked into is none either
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):  # rights alone do not say it of every disk
            free = shutil.disk_usage(place).free
    except OSError as error:
        yield Finding(
            about="disk", state="fails",
            found=f"{place}: cannot write there ({error.strerror or error})",
            todo="choose another folder with -o",
        )  # fmt: skip
        return
    if images is None or not images.number:
        yield Finding(about="disk", state="ok", found=f"{size(free)} free at {place}")
        return
    within = recipe.of(PackConfig).image_store != "path"
    needed = images.number * TABLE_BYTES + (images.num_bytes if within else 0)
    enough = free > needed
    yield Finding(
        about="disk",
        state="ok" if enough else "fails",
        found=f"{size(free)} free at {place}; about {size(needed)} are wanted",
        todo="" if enough else "choose another disk with -o, or --set pack.image_store=path",
    )
