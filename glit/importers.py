"""Convert published captions to a file for ``glit build --captions``.

A line of the file has ``path``, from the file's own folder, and ``caption``. Where an image has
several captions, one follows the other: every sentence of them may get a region.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glit.errors import InputError, closest
from glit.evaluation.readers import READERS, Reader
from glit.evaluation.readers.files import (
    AnnotatedImage,
    annotated,
    json_array,
    json_lines,
    no_parts,
)
from glit.evaluation.readers.goal import published_place
from glit.runtime.progress import StageProgress, null_progress
from glit.storage.store import Store


def localized_narratives(
    annotations: Path, images: Path | None, split: str | None
) -> Iterator[AnnotatedImage]:
    """``open_images_test_captions.jsonl`` and the like: the written form of what was said.

    COCO's pictures are called by twelve digits, the others by their id.
    """
    no_parts(split)
    folder = images or annotations.parent
    captions: dict[Path, list[str]] = {}
    for line in json_lines(annotations):
        name = line["image_id"]
        if line["dataset_id"].startswith("mscoco"):
            name = f"{int(name):012d}"
        captions.setdefault(folder / f"{name}.jpg", []).append(line["caption"])
    for path, texts in captions.items():
        yield annotated(path, texts)


def goal_train(
    annotations: Path, images: Path | None, split: str | None
) -> Iterator[AnnotatedImage]:
    """What GOAL's trainer reads, and ``glit export --to goal`` writes; its segments are left."""
    no_parts(split)
    folder = images or annotations.parent
    for entry in json_array(annotations):
        place = published_place(entry["original_filename"], folder)
        yield annotated(place, [entry["original_caption"]])


IMPORTERS: dict[str, Reader] = {
    **{name: reader for name, reader in READERS.items() if name != "goal-joint"},
    "goal-train": goal_train,
    "localized-narratives": localized_narratives,
}
"""By the name that ``glit import --format`` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import."""

    captions: int
    """Images that were written."""
    without: int
    """Images that have no caption."""
    missing: tuple[str, ...]
    """Image files that are not there; their captions were not written."""


def import_captions(
    name: str,
    annotations: Path,
    output: Path,
    *,
    images: Path | None,
    split: str | None = None,
    progress: StageProgress | None = None,
) -> Imported:
    """Write the captions of published annotations.

    Args:
        name: a key of :data:`IMPORTERS`.
        annotations: file or folder as published.
        output: a ``.jsonl`` file; one that exists is replaced.
        images: folder with the images; where the format has its own folder, that is the default.
        split: which parts, several joined by ``+``; None for all.
        progress: shows images done; all annotations are in memory by then.

    Raises:
        InputError: no such format, the files are not of it, or no image of them is there.
    """
    if name not in IMPORTERS:
        raise InputError(f"--format {name}: no such format; {closest(name, IMPORTERS)}")
    if output.suffix != ".jsonl":
        raise InputError(f"-o {output}: want a name that ends in .jsonl")
    if not annotations.exists():
        raise InputError(f"{annotations}: no such file or folder; give the {name} annotations")
    written = without = 0
    missing: list[str] = []
    told = progress or null_progress()
    try:
        found = list(IMPORTERS[name](annotations, images, split or "all"))
        told.begin("images", total=len(found), done=0, drops=False)
        with (
            Store(output.parent).atomic(output.name) as beside,
            beside.open("w", encoding="utf-8") as file,
        ):
            for image in found:
                if not image.captions:
                    without += 1
                elif not image.path.is_file():
                    missing.append(str(image.path))
                else:
                    file.write(_line(image, output.resolve().parent))
                    written += 1
                told.advance(1)
            if not written:
                raise InputError(_nothing(annotations, missing))
    except (IsADirectoryError, NotADirectoryError) as error:
        kind, wanted = ("folder", "file") if annotations.is_dir() else ("file", "folder")
        raise InputError(
            f"{annotations}: a {kind}; {name} annotations are published as a {wanted}, "
            "see docs/evaluation.md for its name"
        ) from error
    except OSError as error:
        raise InputError(f"{annotations} to {output}: {error}") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(
            f"{annotations}: not the {name} annotations as published "
            f"({type(error).__name__}: {error}); see docs/evaluation.md for the layout"
        ) from error
    return Imported(captions=written, without=without, missing=tuple(missing))


def _line(image: AnnotatedImage, folder: Path) -> str:
    path = os.path.relpath(image.path.resolve(), folder)
    caption = " ".join(_ended(caption) for caption in image.captions)
    return json.dumps({"path": path, "caption": caption}, ensure_ascii=False) + "\n"


def _ended(caption: str) -> str:
    """A caption that another may follow; a single short one often has no full stop."""
    return caption if caption[-1] in ".!?\"')”’" else f"{caption}."


def _nothing(annotations: Path, missing: list[str]) -> str:
    if missing:
        return (
            f"{annotations}: none of {len(missing)} captioned images is there (first: "
            f"{missing[0]}); give their folder with --images"
        )
    return f"{annotations}: no captioned image; check --split and --format"
