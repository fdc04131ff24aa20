"""Write scenes to disk: images, captions and ground truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from glit.data.rle import encode_rle
from glit.errors import UserError
from glit.runtime.progress import StageProgress, null_progress
from glit.scenes.captions import SceneCaption, write_caption
from glit.scenes.layout import Scene, draw_scene, split_of_seed
from glit.scenes.render import Rendering, render
from glit.scenes.vocabulary import LEVELS, PLACE_NAMES

_FORMATS = {"png": "png", "jpeg": "jpg", "jpg": "jpg"}
_ROWS_PER_GROUP = 1000
_SIZE_RANGE_PX = (64, 1024)

_OBJECT = pa.struct(
    [
        ("shape", pa.string()),
        ("colour", pa.string()),
        ("pattern", pa.string()),
        ("size", pa.string()),
        ("place", pa.string()),
        ("box", pa.list_(pa.int32())),  # four; Arrow before 26 reads no null of a fixed length
        ("mask", pa.list_(pa.int32())),
    ]
)

TRUTH_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("index", pa.int64()),
        ("seed", pa.int64()),
        ("split", pa.string()),
        ("level", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("background", pa.string()),
        ("light", pa.string()),
        ("twin_of", pa.string()),
        ("caption", pa.string()),
        ("short_caption", pa.string()),
        ("objects", pa.list_(_OBJECT)),
        (
            "sentences",
            pa.list_(
                pa.struct(
                    [
                        ("text", pa.string()),
                        ("char_start", pa.int32()),
                        ("char_end", pa.int32()),
                        ("kind", pa.string()),
                        ("object", pa.int32()),
                        *_OBJECT,
                    ]
                )
            ),
        ),
    ]
)
"""Columns of ``ground_truth.parquet``; docs/scenes.md says what each means."""


def write_scenes(
    out: Path,
    *,
    num: int,
    seed: int,
    level: str = "normal",
    size: int = 128,
    image_format: str = "png",
    masks: bool = False,
    short: bool = False,
    progress: StageProgress | None = None,
) -> None:
    """Write ``num`` scenes: ``images/``, ``captions.jsonl`` and, last, ``ground_truth.parquet``.

    The scene of a seed and an index is the same whatever ``num`` and ``size`` are. With ``masks``
    the objects' masks lie beside every image as well, in the layout of SA-1B's files. With
    ``short`` the captions' file has the short captions too, as ``short_caption``.

    Raises:
        UserError: for a level, size, format, seed or number that cannot be.
    """
    suffix = _check(num=num, seed=seed, level=level, size=size, image_format=image_format)
    images = out / "images"
    try:
        images.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"scenes: cannot make the folder {images} ({error.strerror}); "
            "choose an output folder that can be written"
        ) from error
    others = {path.name for path in images.iterdir() if path.suffix[1:] in _FORMATS}
    others -= {_name(index, suffix) for index in range(num)}
    if others:
        raise UserError(
            f"scenes: {images} holds {len(others)} images of other scenes (first: {min(others)}), "
            "which have no caption or truth here; choose another folder with -o, or remove them"
        )
    partial = out / "ground_truth.parquet.part"
    with (
        pq.ParquetWriter(partial, TRUTH_SCHEMA, compression="zstd") as truth,
        (out / "captions.jsonl").open("w", encoding="utf-8") as captions,
    ):
        rows: list[dict[str, Any]] = []
        told = progress or null_progress()
        told.begin("scenes", total=num, done=0, drops=False)
        for index in range(num):
            scene = draw_scene(seed, index, level=level)
            rendering, caption = render(scene, size_px=size), write_caption(scene)
            name = _name(index, suffix)
            _save_image(rendering, images / name, suffix)
            if masks:
                described = json.dumps(sa1b_annotations(rendering, name=name, image_id=index))
                (images / name).with_suffix(".json").write_text(described, encoding="utf-8")
            line = {"path": name, "caption": caption.text}
            line |= {"short_caption": caption.short} if short else {}
            captions.write(json.dumps(line, ensure_ascii=False) + "\n")
            rows.append(_truth_row(scene, rendering, caption, suffix))
            told.advance(1)
            if len(rows) == _ROWS_PER_GROUP:
                truth.write_table(pa.Table.from_pylist(rows, schema=TRUTH_SCHEMA))
                rows = []
        if rows or num == 0:
            truth.write_table(pa.Table.from_pylist(rows, schema=TRUTH_SCHEMA))
    partial.replace(out / "ground_truth.parquet")


def _check(*, num: int, seed: int, level: str, size: int, image_format: str) -> str:
    """The file suffix of the format, once every argument is known to be good."""
    if level not in LEVELS:
        raise UserError(f"scenes: unknown level {level!r}; choose one of {', '.join(LEVELS)}")
    if image_format not in _FORMATS:
        raise UserError(f"scenes: unknown image format {image_format!r}; choose png or jpeg")
    low, high = _SIZE_RANGE_PX
    if not low <= size <= high:
        raise UserError(f"scenes: size is {size} px; choose {low} to {high}")
    if num < 1:
        raise UserError(f"scenes: the number of scenes is {num}; choose 1 or more")
    if seed < 0:
        raise UserError(f"scenes: the seed is {seed}; choose 0 or more")
    return _FORMATS[image_format]


def _name(index: int, suffix: str) -> str:
    return f"{index:06d}.{suffix}"


def _save_image(rendering: Rendering, path: Path, suffix: str) -> None:
    image = Image.fromarray(rendering.pixels)
    if suffix == "png":
        image.save(path, compress_level=1)
    else:
        image.save(path, quality=92)


def sa1b_annotations(rendering: Rendering, *, name: str, image_id: int) -> dict[str, Any]:
    """Return annotations as SA-1B ships them beside an image, with the truth for masks and full
    marks for each.

    The point of a mask is the middle one of its visible pixels.
    """
    height, width = rendering.object_ids.shape
    annotations = []
    for number, (x0, y0, x1, y1) in enumerate(rendering.boxes_xyxy):
        mask = rendering.object_ids == number + 1
        inside = np.argwhere(mask)
        y, x = inside[len(inside) // 2].tolist()
        annotations.append(
            {
                "id": number,
                "segmentation": {"size": [height, width], "counts": encode_rle(mask)},
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": len(inside),
                "predicted_iou": 1.0,
                "stability_score": 1.0,
                "crop_box": [0, 0, width, height],
                "point_coords": [[x, y]],
            }
        )
    image = {"image_id": image_id, "width": width, "height": height, "file_name": name}
    return {"image": image, "annotations": annotations}


def _truth_row(
    scene: Scene, rendering: Rendering, caption: SceneCaption, suffix: str
) -> dict[str, Any]:
    """Return a row of ``ground_truth.parquet``."""
    height, width = rendering.object_ids.shape
    objects: list[dict[str, Any]] = [
        {
            "shape": item.shape,
            "colour": item.colour,
            "pattern": item.pattern,
            "size": item.size,
            "place": PLACE_NAMES[item.place],
            "box": list(rendering.boxes_xyxy[k]),
            "mask": encode_rle(rendering.object_ids == k + 1),
        }
        for k, item in enumerate(scene.objects)
    ]
    nothing = dict.fromkeys(field.name for field in _OBJECT)
    sentences = [
        {
            "text": sentence.text,
            "char_start": sentence.char_start,
            "char_end": sentence.char_end,
            "kind": sentence.kind,
            "object": sentence.object,
            **(nothing if sentence.object is None else objects[sentence.object]),
        }
        for sentence in caption.sentences
    ]
    return {
        "path": _name(scene.index, suffix),
        "index": scene.index,
        "seed": scene.seed,
        "split": split_of_seed(scene.seed),
        "level": scene.level,
        "width": width,
        "height": height,
        "background": scene.background,
        "light": scene.light,
        "twin_of": None if scene.twin_of is None else _name(scene.twin_of, suffix),
        "caption": caption.text,
        "short_caption": caption.short,
        "objects": objects,
        "sentences": sentences,
    }
