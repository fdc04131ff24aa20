"""Published datasets of captions and boxes: a format each, declared once.

Help, documentation, error messages and defaults follow from :data:`FORMATS`. A reader takes the
annotation file (or folder) as its publisher ships it, the folder with the images, and a split where
the format knows splits. It yields one image after the other and looks up only the files of images
that are taken, so a limit bounds the time as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from glit.errors import InputError
from glit.inputs.published import (
    goal,
    hub,
    label_exports,
    label_folders,
    long_captions,
    regions,
    short_captions,
    tao,
)
from glit.inputs.published.files import (
    AnnotatedImage,
    check_exists,
    check_place,
    check_regular,
    on_disk,
)
from glit.inputs.published.region_image import RegionImage

Reader = Callable[[Path, Path | None, str | None], Iterator[AnnotatedImage]]
"""Annotations, folder with the images, and split."""


def _folder_of(annotations: Path) -> Path:
    return annotations if annotations.is_dir() else annotations.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionFormat:
    """Images with captions."""

    read: Reader
    measured: bool = True
    """True if ``glit eval`` takes it."""
    imported: bool = True
    """True if ``glit import`` takes it."""
    images_here: bool = False
    """True if pictures are looked for below the current folder, and not beside the annotations."""
    page: ClassVar[str] = "docs/evaluation.md"

    def picture_folder(self, annotations: Path, images: Path | None) -> Path:
        """The folder below which pictures may be: the user's, else the format's own."""
        return images or (Path() if self.images_here else _folder_of(annotations))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFormat:
    """Images with boxes, and a caption each where there are captions."""

    read: Callable[[Path, Path | None, str | None], Iterator[RegionImage]]
    captions: bool | None = True
    """True if an image has a caption; False for boxes with labels; None if one may have."""
    corners: Literal["xyxy", "xywh", "cxcywh", ""] = "xyxy"
    """What the file's boxes are: two corners, a corner and a size, or a centre and a size; empty
    if any two corners will do."""
    assumed: bool = False
    """True if ``corners`` are ``xywh`` by a convention that not every file keeps."""
    folder_of: Callable[[Path], Path] = _folder_of
    """The folder of pictures, of the annotations."""
    page: ClassVar[str] = "docs/regions.md"

    def picture_folder(self, annotations: Path, images: Path | None) -> Path:
        """The folder below which pictures may be: the user's, else that of the annotations."""
        return images or self.folder_of(annotations)


FORMATS: dict[str, CaptionFormat | RegionFormat] = {
    "docci": CaptionFormat(read=long_captions.docci),
    "dci": CaptionFormat(read=long_captions.dci),
    "dci-full": CaptionFormat(read=long_captions.dci_full),
    "urban1k": CaptionFormat(read=long_captions.urban1k),
    "coco": CaptionFormat(read=short_captions.coco),
    "flickr30k": CaptionFormat(read=short_captions.flickr30k),
    "sharegpt4v": CaptionFormat(read=long_captions.sharegpt4v),
    "iiw": CaptionFormat(read=long_captions.iiw),
    "goal": CaptionFormat(read=goal.goal, images_here=True),
    "goal-joint": CaptionFormat(read=goal.goal_joint, imported=False, images_here=True),
    "himo-docci": CaptionFormat(read=long_captions.himo_docci),
    "goal-train": CaptionFormat(read=goal.goal_train, measured=False),
    "localized-narratives": CaptionFormat(read=long_captions.localized_narratives, measured=False),
    "finehard": RegionFormat(read=regions.finehard),
    "flickr30k-entities": RegionFormat(read=regions.flickr30k_entities),
    "goal-segments": RegionFormat(read=goal.goal_segments),
    "grit": RegionFormat(read=regions.grit),
    "hf": RegionFormat(read=hub.hub, captions=None, corners="xywh", assumed=True),
    "hf-xyxy": RegionFormat(read=partial(hub.hub, corners="xyxy"), captions=None),
    "mdetr": RegionFormat(read=regions.mdetr, corners="xywh"),
    "odvg": RegionFormat(read=regions.odvg, captions=None),
    "refcoco": RegionFormat(read=regions.refcoco, corners="xywh"),
    "tao": RegionFormat(read=tao.tao, captions=None),
    "visual-genome": RegionFormat(read=regions.visual_genome, corners="xywh"),
    "coco-instances": RegionFormat(
        read=label_exports.coco_instances, captions=False, corners="xywh"
    ),
    "cvat": RegionFormat(read=label_exports.cvat, captions=False),
    "label-studio": RegionFormat(read=label_exports.label_studio, captions=None, corners="xywh"),
    "labelme": RegionFormat(read=label_folders.labelme, captions=False, corners=""),
    "voc": RegionFormat(read=label_folders.voc, captions=False),
    "yolo": RegionFormat(
        read=label_folders.yolo,
        captions=False,
        corners="cxcywh",
        folder_of=label_folders.yolo_folder,
    ),
}
"""By the name that ``--format`` takes."""


def measured() -> list[str]:
    """The formats of captions that ``glit eval --format`` takes."""
    return [name for name, f in FORMATS.items() if isinstance(f, CaptionFormat) and f.measured]


def imported() -> list[str]:
    """The formats that ``glit import --format`` takes."""
    return [name for name, f in FORMATS.items() if isinstance(f, RegionFormat) or f.imported]


def _captioned(found: Iterable[AnnotatedImage]) -> Iterator[AnnotatedImage]:
    """Those with a caption.

    Raises:
        ValueError: an entry is damaged: a smaller gallery would give better figures.
    """
    for image in found:
        if image.fault:
            raise ValueError(image.fault)
        if image.captions:
            yield image


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
        name: one of :func:`measured`.
        annotations: file or folder as published.
        images: folder with the images; where the format has its own folder, that is the default.
        split: which parts, several joined by ``+``; None for all, or for ``test`` where the format
            has parts (ImageInWords: all).
        limit: only the first captioned images, 0 for all; the others need not be there.
        need_images: refuse images that are not there.

    Raises InputError when the files are not of that format, there is no such part, nothing is left,
    or an image is missing (a smaller gallery would give better figures).
    """
    form = FORMATS[name] if name in measured() else None
    if not isinstance(form, CaptionFormat):
        raise InputError(f"--format {name!r}: known formats are glit, {', '.join(measured())}")
    check_exists(annotations, name)
    check_regular(annotations)
    try:
        captioned = _captioned(form.read(annotations, images, split))
        kept = list(islice(captioned, limit or None))
        kept = [_placed(image, form.picture_folder(annotations, images)) for image in kept]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError) as error:
        raise InputError(
            f"{annotations}: not the {name} annotations as published "
            f"({type(error).__name__}: {error}); see {form.page} for the layout"
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
