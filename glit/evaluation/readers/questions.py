"""Benchmarks that ask for the right one of several texts, in the files their authors publish.

Each reader takes a file, or a folder of files of which each is counted by itself, and the folder
with the images.
"""

from __future__ import annotations

import ast
import contextlib
import csv
from collections.abc import Callable, Generator
from pathlib import Path

from glit.data.frames import xywh_corners
from glit.data.json_files import json_lines, load_json
from glit.errors import InputError
from glit.evaluation.questions import Question, of_first_images
from glit.evaluation.readers.benchmark_file import BenchmarkFile, checked_box
from glit.inputs.published.files import check_place, with_suffix

Reader = Callable[[Path, Path], Generator[Question]]
_FG_OVD_NAMES = {
    "1_attributes": "hard",
    "2_attributes": "medium",
    "3_attributes": "easy",
    "shuffle_negatives": "trivial",
}
_FG_OVD_NEGATIVES = dict.fromkeys(_FG_OVD_NAMES, 10)
_FG_OVD_ELSE = 2
_WHOLE_SET = frozenset({0, 1})


def fg_ovd(file: Path, images: Path) -> Generator[Question]:
    """FG-OVD (Bianchi et al., CVPR 2024): a box, its caption and captions with swapped attributes.

    Boxes with fewer false captions than the benchmark counts (10, in the attribute files 2) are
    left out.
    """
    boxes_of = BenchmarkFile(file, images)
    name_of = boxes_of.coco.categories
    least = _FG_OVD_NEGATIVES.get(file.stem, _FG_OVD_ELSE)
    try:
        for path, boxes in boxes_of.boxes():
            for each, box in boxes:
                wrong = each["neg_category_ids"]
                if len(wrong) < least:
                    continue
                names = (each["category_id"], *wrong[:least])
                yield Question(
                    parts=((path, boxes_of.sizes.box(path, box)),),
                    texts=tuple(name_of[number] for number in names),
                    right=frozenset({0}),
                    kind=_FG_OVD_NAMES.get(file.stem, file.stem),
                )
    finally:  # the reader may stop at a limit
        boxes_of.sizes.warn(file)


def sugarcrepe(file: Path, images: Path) -> Generator[Question]:
    """SugarCrepe (Hsieh et al., NeurIPS 2023): a COCO image, its caption and a false one."""
    for entry in load_json(file).values():
        yield _of_two(
            images / entry["filename"], entry["caption"], entry["negative_caption"], file.stem
        )


def valse(file: Path, images: Path) -> Generator[Question]:
    """VALSE (Parcalabescu et al., ACL 2022): a caption and a foil; only those of which two of three
    people said that the caption alone is true, as its authors count."""
    for entry in load_json(file).values():
        votes = entry["mturk"]
        votes = ast.literal_eval(votes) if isinstance(votes, str) else votes
        if votes["caption"] >= 2:
            yield _of_two(
                _below(images, entry["image_file"]), entry["caption"], entry["foil"], file.stem
            )


def aro(file: Path, images: Path) -> Generator[Question]:
    """ARO's relations and attributes (Yuksekgonul et al., ICLR 2023): a box of Visual Genome, its
    caption and the same with its words swapped. Its word orders are not published as files."""
    for entry in load_json(file):
        box = checked_box(xywh_corners([float(entry[f"bbox_{side}"]) for side in "xywh"]))
        part = (images / entry["image_path"], box)
        texts = (entry["true_caption"], entry["false_caption"])
        yield Question(parts=(part,), texts=texts, right=frozenset({0}), kind=_aro_kind(file))


def winoground(file: Path, images: Path) -> Generator[Question]:
    """Winoground (Thrush et al., CVPR 2022): two images, and two captions of the same words."""
    for entry in json_lines(file):
        parts = tuple((with_suffix(images / entry[f"image_{i}"]), None) for i in (0, 1))
        texts = (entry["caption_0"], entry["caption_1"])
        yield Question(parts=parts, texts=texts, right=_WHOLE_SET, kind="")


def mmvp(file: Path, images: Path) -> Generator[Question]:
    """MMVP-VLM (Tong et al., CVPR 2024): pairs of images with similar CLIP embeddings, and a
    statement that is true of one image of the pair."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        try:
            rows = list(csv.reader(lines, strict=True))[1:]
        except csv.Error as error:
            raise ValueError(f"not valid CSV ({error})") from error
    if len(rows) % 2:
        raise ValueError(f"{len(rows)} statements; they come in pairs")
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        kind = first[1]
        parts = tuple((images / kind / f"{number}.jpg", None) for number, _, _ in (first, second))
        texts = (f"a photo of {first[2]}", f"a photo of {second[2]}")
        yield Question(
            parts=parts, texts=texts, right=_WHOLE_SET, kind=kind.lower().replace(" ", "-")
        )


READERS: dict[str, tuple[Reader, str, str]] = {
    "fg-ovd": (fg_ovd, "*.json", "."),
    "sugarcrepe": (sugarcrepe, "*.json", "."),
    "valse": (valse, "*.json", "."),
    "aro": (aro, "visual_genome_*.json", "images"),
    "winoground": (winoground, "examples.jsonl", "images"),
    "mmvp": (mmvp, "Questions.csv", "MLLM_VLM Images"),
}
"""By the name that ``--format`` takes: the reader, its files in a folder, and where the images are
beside them where ``--images`` does not say."""


def read_questions(
    name: str, annotations: Path, *, images: Path | None, limit: int = 0
) -> list[Question]:
    """Read a benchmark.

    Args:
        name: one of READERS.
        annotations: a file as published, or the folder of several.
        images: folder of the images.
        limit: only the questions about the first images of each file, 0 for all.

    Raises:
        InputError: it is not of that format, or there is none.
    """
    reader, pattern, beside = READERS[name]
    files = sorted(annotations.glob(pattern)) if annotations.is_dir() else [annotations]
    found = []
    for file in files:
        try:
            folder = images or file.parent / beside
            with contextlib.closing(reader(file, folder)) as asked:
                some = [*of_first_images(asked, limit, lambda each: each.parts[0][0])]
            for path in {path for question in some for path, _ in question.parts}:
                check_place(path, folder)
            found += some
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError) as error:
            raise InputError(
                f"{file}: not a file of {name} as published ({type(error).__name__}: {error}); see "
                "docs/evaluation.md for the layout"
            ) from error
    if not found:
        raise InputError(f"{annotations}: no question of {name} ({pattern}) in it")
    return found


def _of_two(path: Path, right: str, wrong: str, kind: str) -> Question:
    return Question(parts=((path, None),), texts=(right, wrong), right=frozenset({0}), kind=kind)


def _aro_kind(file: Path) -> str:
    return file.stem.removeprefix("visual_genome_")


def _below(folder: Path, name: str) -> Path:
    """The file in the folder, or in one of the folders in it, as VALSE has images of five sets."""
    direct = folder / name
    if direct.is_file():
        return direct
    inside = (path / name for path in folder.iterdir() if path.is_dir())
    return next((path for path in inside if path.is_file()), direct)
