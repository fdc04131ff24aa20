"""Published datasets of captions and boxes: a format each, declared once.

Help, documentation, error messages and defaults follow from :data:`FORMATS`. A reader takes the
annotation file (or folder) as its publisher ships it, the folder with the images, and a split where
the format knows splits. It yields one image after the other and looks up only the files of images
that are taken, so a limit bounds the time as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from glit.errors import InputError
from glit.published import (
    goal,
    hub,
    label_exports,
    label_folders,
    long_captions,
    regions,
    short_captions,
    tao,
)
from glit.published.files import AnnotatedImage, check_place, on_disk
from glit.published.region_image import RegionImage

Reader = Callable[[Path, Path | None, str | None], Iterator[AnnotatedImage]]
"""Annotations, folder with the images, and split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionFormat:
    """Images with captions."""

    read: Reader
    layouts: tuple[tuple[str, str, str], ...] = ()
    """For the documentation: what to give, where the images are, and the parts."""
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
    files: str
    """For the documentation: what to give."""
    texts: str
    """For the documentation: what its boxes get."""
    captions: bool | None = True
    """True if an image has a caption; False for boxes with labels; None where the file decides."""
    corners: Literal["xyxy", "xywh"] = "xyxy"
    """What the file's boxes are: two corners, or a corner and a size."""
    assumed: bool = False
    """True if ``corners`` are ``xywh`` by a convention that not every file keeps."""
    page: ClassVar[str] = "docs/regions.md"

    def picture_folder(self, annotations: Path, images: Path | None) -> Path:
        """The folder below which pictures may be: the user's, else that of the annotations."""
        return images or _folder_of(annotations)


def _folder_of(annotations: Path) -> Path:
    return annotations if annotations.is_dir() else annotations.parent


FORMATS: dict[str, CaptionFormat | RegionFormat] = {
    "docci": CaptionFormat(
        read=long_captions.docci,
        layouts=(
            ("`docci_descriptions.jsonlines`", "`images/` beside it",
             "`train`, `test`, `qual_dev`, `qual_test`"),
        ),
    ),
    "dci": CaptionFormat(
        read=long_captions.dci,
        layouts=(
            ("the folder `densely_captioned_images`; captions are `extra_caption`", "its `photos/`",
             "of its `splits.json`: `train`, `valid`, `test`; `all`"),
        ),
    ),
    "dci-full": CaptionFormat(
        read=long_captions.dci_full,
        layouts=(
            ("the same; captions are `short_caption` and `extra_caption`", "its `photos/`",
             "the same"),
        ),
    ),
    "urban1k": CaptionFormat(
        read=long_captions.urban1k, layouts=(("the folder `Urban1k`", "its `image/`", "none"),)
    ),
    "coco": CaptionFormat(
        read=short_captions.coco,
        layouts=(
            ("`captions_val2017.json` and the like", "the folder that holds the files", "none"),
            ("Karpathy's `dataset_coco.json`", "the folder that holds `val2014/`",
             "`train`, `restval`, `val`, `test`"),
        ),
    ),
    "flickr30k": CaptionFormat(
        read=short_captions.flickr30k,
        layouts=(
            ("`results_20130124.token`", "the image folder", "none"),
            ("Karpathy's `dataset_flickr30k.json`", "the image folder", "`train`, `val`, `test`"),
        ),
    ),
    "sharegpt4v": CaptionFormat(
        read=long_captions.sharegpt4v,
        layouts=(
            ("`share-captioner_coco_lcs_sam_1246k_1107.json`", "the folder its paths start from",
             "none"),
        ),
    ),
    "iiw": CaptionFormat(
        read=long_captions.iiw,
        layouts=(
            ("the folder `imageinwords/datasets`",
             "a folder with `docci/`, `docci_aar/` and `dci/`, or with all files",
             "`DOCCI_Test`, `IIW-400`, `DCI_Test`; all three without it"),
            ("one `data.jsonl`", "`images/` beside it", "none"),
        ),
    ),
    "goal": CaptionFormat(
        read=goal.goal,
        layouts=(
            ("a list of GOAL's `datasets/`: `DCI_test.json`, …",
             "a folder that holds the last parts of the paths", "none"),
        ),
        images_here=True,
    ),
    "goal-joint": CaptionFormat(
        read=goal.goal_joint,
        layouts=(
            ("a joint set of GOAL: `DCI_test_joint_sim_max_11.json`, …", "the same", "none"),
        ),
        imported=False,
        images_here=True,
    ),
    "himo-docci": CaptionFormat(
        read=long_captions.himo_docci,
        layouts=(("`himo_docci_data.json`", "`images/` beside it", "none"),),
    ),
    "goal-train": CaptionFormat(read=goal.goal_train, measured=False),
    "localized-narratives": CaptionFormat(read=long_captions.localized_narratives, measured=False),
    "finehard": RegionFormat(
        read=regions.finehard,
        files="`jsonfiles/` of FineHARD (FG-CLIP), or a file of it",
        texts="phrases; sentences if the caption lacks the expression",
    ),
    "flickr30k-entities": RegionFormat(
        read=regions.flickr30k_entities,
        files="the folder with `Annotations` and `Sentences`",
        texts="phrases",
    ),
    "goal-segments": RegionFormat(
        read=goal.goal_segments,
        files="the list of GOAL's trainer: `docci_segment_sim_bbox_del_org.json` and the like",
        texts="sentences",
    ),
    "grit": RegionFormat(
        read=regions.grit,
        files="a Parquet file of GRIT (Kosmos-2) as img2dataset leaves it, or a folder",
        texts="phrases",
    ),
    "hf": RegionFormat(
        read=hub.hub,
        files="Parquet of the Hugging Face Hub with `image` and `objects`, or a folder of it",
        texts="categories; sentences of `pairs`",
        captions=None,
        corners="xywh",
        assumed=True,
    ),
    "hf-xyxy": RegionFormat(
        read=partial(hub.hub, corners="xyxy"),
        files="the same, with `bbox` of two corners",
        texts="the same",
        captions=None,
    ),
    "mdetr": RegionFormat(
        read=regions.mdetr, files="MDETR's JSON", texts="phrases", corners="xywh"
    ),
    "odvg": RegionFormat(
        read=regions.odvg,
        files="ODVG lines of MM-Grounding-DINO, GroundingCap-1M of LLMDet",
        texts="phrases, or categories",
    ),
    "refcoco": RegionFormat(
        read=regions.refcoco,
        files="`refs(unc).p` or the like, with `instances.json` beside it; RefCOCO, + and g",
        texts="sentences",
        corners="xywh",
    ),
    "tao": RegionFormat(
        read=tao.tao,
        files="`annotations.jsonl` of NVIDIA TAO's 2D grounding, or the ODVG it trains on",
        texts="phrases",
    ),
    "visual-genome": RegionFormat(
        read=regions.visual_genome,
        files="`region_descriptions.json`",
        texts="sentences",
        corners="xywh",
    ),
    "coco-instances": RegionFormat(
        read=label_exports.coco_instances,
        files="`instances_val2017.json` of COCO, `lvis_v1_val.json` of LVIS, and the like",
        texts="categories, masks",
        captions=False,
    ),
    "cvat": RegionFormat(
        read=label_exports.cvat,
        files="`annotations.xml` of CVAT for images 1.1",
        texts="labels, masks",
        captions=False,
    ),
    "label-studio": RegionFormat(
        read=label_exports.label_studio,
        files="Label Studio's export as JSON",
        texts="labels, masks of polygons",
        captions=False,
    ),
    "labelme": RegionFormat(
        read=label_folders.labelme,
        files="a folder of LabelMe's JSON files, or one",
        texts="labels, masks of polygons",
        captions=False,
    ),
    "voc": RegionFormat(
        read=label_folders.voc,
        files="Pascal VOC's folder with `Annotations` and `JPEGImages`, or a folder of its XML",
        texts="labels",
        captions=False,
    ),
    "yolo": RegionFormat(
        read=label_folders.yolo,
        files="`data.yaml`, or the folder with `labels` and `images`, or with `classes.txt`",
        texts="classes",
        captions=False,
    ),
}  # fmt: skip
"""By the name that ``--format`` takes."""


def measured() -> list[str]:
    """The formats of captions that ``glit eval --format`` takes."""
    return [name for name, f in FORMATS.items() if isinstance(f, CaptionFormat) and f.measured]


def imported() -> list[str]:
    """The formats that ``glit import --format`` takes."""
    return [name for name, f in FORMATS.items() if isinstance(f, RegionFormat) or f.imported]


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
    if not annotations.exists():
        raise InputError(f"{annotations}: no such file or folder; give the {name} annotations")
    try:
        captioned = (image for image in form.read(annotations, images, split) if image.captions)
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
