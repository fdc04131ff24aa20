"""Readers of public caption datasets: image files with captions.

Each reader takes the annotation file (or folder) as its publisher ships it, the folder with the
images, and a split where the format knows splits. It yields one image after the other and looks up
only the files of images that are taken, so a limit bounds the time as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from glit.errors import InputError
from glit.evaluation.readers import goal, long_captions, short_captions
from glit.evaluation.readers.files import AnnotatedImage, check_place, on_disk

Reader = Callable[[Path, Path | None, str | None], Iterator[AnnotatedImage]]

READERS: dict[str, Reader] = {
    "docci": long_captions.docci,
    "dci": long_captions.dci,
    "dci-full": long_captions.dci_full,
    "urban1k": long_captions.urban1k,
    "coco": short_captions.coco,
    "flickr30k": short_captions.flickr30k,
    "sharegpt4v": long_captions.sharegpt4v,
    "iiw": long_captions.iiw,
    "goal": goal.goal,
    "goal-joint": goal.goal_joint,
    "himo-docci": long_captions.himo_docci,
}
"""Formats by the name ``--format`` takes."""


def picture_folder(name: str, annotations: Path, images: Path | None) -> Path:
    """The folder below which pictures may be: the user's, else that of the annotations; of GOAL's
    lists, which name pictures from where the trainer runs, the current one."""
    beside = annotations if annotations.is_dir() else annotations.parent
    return images or (Path() if name in ("goal", "goal-joint") else beside)


def _placed(image: AnnotatedImage, folder: Path) -> AnnotatedImage:
    """The same, with the pictures' names as they are on the disk."""
    segments = tuple(
        replace(each, path=on_disk(check_place(each.path, folder), folder))
        for each in image.segments
    )
    path = on_disk(check_place(image.path, folder), folder)
    return replace(image, path=path, segments=segments)


def read_annotations(
    name: str,
    annotations: Path,
    *,
    images: Path | None,
    split: str | None,
    limit: int = 0,
    need_images: bool = True,
) -> list[AnnotatedImage]:
    """Read a dataset's annotations; images without any caption are left out.

    Args:
        name: one of READERS.
        annotations: file or folder as published.
        images: folder with the images; where the format has its own folder, that is the default.
        split: which parts, several joined by ``+``; None for all, or for ``test`` where the format
            has parts (ImageInWords: all).
        limit: only the first captioned images, 0 for all; the others need not be there.
        need_images: refuse images that are not there.

    Raises InputError when the files are not of that format, there is no such part, nothing is left,
    or an image is missing (a smaller gallery would give better figures).
    """
    if name not in READERS:
        raise InputError(f"--format {name!r}: known formats are glit, {', '.join(READERS)}")
    if not annotations.exists():
        raise InputError(f"{annotations}: no such file or folder; give the {name} annotations")
    try:
        captioned = (image for image in READERS[name](annotations, images, split) if image.captions)
        kept = list(islice(captioned, limit or None))
        kept = [_placed(image, picture_folder(name, annotations, images)) for image in kept]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError) as error:
        raise InputError(
            f"{annotations}: not the {name} annotations as published "
            f"({type(error).__name__}: {error}); see docs/evaluation.md for the layout"
        ) from error
    if not kept:
        raise InputError(
            f"{annotations}: no captioned image{f' in {split}' if split else ''}; check --split "
            "and --format"
        )
    paths = [path for image in kept for path in (image.path, *(s.path for s in image.segments))]
    missing = [path for path in paths if not path.is_file()]
    if missing and need_images:
        raise InputError(
            f"{annotations}: {len(missing)} of {len(paths)} images are missing (first: "
            f"{missing[0]}); give their folder with --images"
        )
    return kept
