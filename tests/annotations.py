"""Annotation files as their publishers write them, in small."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
from PIL import Image

from glit.inputs.published import read_annotations


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def found(name: str, source: Path, images: Path | None = None, split: str | None = None) -> dict:
    return {
        str(image.path): image.captions
        for image in read_annotations(name, source, images=images, split=split)
    }


def lines(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def conversations(number: int) -> list[dict]:
    return [
        {
            "id": f"{i:012}",
            "image": f"sam/images/sa_{i}.jpg",
            "conversations": [
                {"from": "human", "value": "What is this?\n<image>"},
                {"from": "gpt", "value": f'Caption {i}. It has [brackets], "quotes" and {{}}.'},
            ],
        }
        for i in range(number)
    ]


def noise(path: Path, seed: int = 0, size: tuple[int, int] = (40, 30)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def as_json(path: Path, values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def sugarcrepe(folder: Path) -> Path:
    for number, kind in enumerate(("swap_att", "add_obj")):
        noise(folder / f"{number}.jpg", number)
        entry = {
            "filename": f"{number}.jpg",
            "caption": f"A red cup number {number}.",
            "negative_caption": "A blue box.",
        }
        as_json(folder / f"{kind}.json", {"0": entry})
    return folder


def valse(folder: Path) -> Path:
    noise(folder / "coco" / "a.jpg")
    entry = {"image_file": "a.jpg", "caption": "A cup.", "foil": "No cup."}
    entries = {
        "kept": {**entry, "mturk": "{'foil': 0, 'caption': 2, 'other': 1}"},
        "doubted": {**entry, "mturk": {"foil": 2, "caption": 1, "other": 0}},
    }
    as_json(folder / "existence.json", entries)
    return folder


def aro(folder: Path) -> Path:
    noise(folder / "images" / "1.jpg")
    entry = {
        "image_path": "1.jpg", "bbox_x": 2, "bbox_y": 3, "bbox_w": 10, "bbox_h": 20,
        "true_caption": "the cup is on the box", "false_caption": "the box is on the cup",
    }  # fmt: skip
    as_json(folder / "visual_genome_relation.json", [entry])
    return folder


def winoground(folder: Path) -> Path:
    for i in (0, 1):
        noise(folder / "images" / f"ex_0_img_{i}.png", i)
    entry = {
        "id": 0, "image_0": "ex_0_img_0", "image_1": "ex_0_img_1",
        "caption_0": "a cup in a box", "caption_1": "a box in a cup",
    }  # fmt: skip
    as_json(folder / "examples.jsonl", entry)
    return folder


def mmvp(folder: Path) -> Path:
    for i in (1, 2):
        noise(folder / "MLLM_VLM Images" / "State and Condition" / f"{i}.jpg", i)
    (folder / "Questions.csv").write_text(
        "Question ID,Type,Statement\n1,State and Condition,an open box\n"
        '2,State and Condition,"a closed, red box"\n'
    )
    return folder


def fg_ovd(folder: Path) -> Path:
    noise(folder / "val2017" / "1.jpg")
    boxes = [
        {"image_id": 5, "bbox": [1, 2, 10, 12], "category_id": 9, "neg_category_ids": [7, 8, 6]},
        {"image_id": 5, "bbox": [1, 2, 10, 12], "category_id": 9, "neg_category_ids": [7]},
    ]
    names = {6: "A tin cup.", 7: "A wooden cup.", 8: "A glass cup.", 9: "A paper cup."}
    values = {
        "images": [{"id": 5, "file_name": "val2017/1.jpg"}],
        "annotations": boxes,
        "categories": [{"id": number, "name": name} for number, name in names.items()],
    }
    as_json(folder / "material.json", values)
    return folder


def class_boxes_of(folder: Path, *, lvis: bool = False) -> Path:
    for i in (1, 2):
        noise(folder / "val2017" / f"{i}.jpg", i)
    address = "http://images.example.org/val2017/{}.jpg"
    names = [
        {"coco_url": address.format(i)} if lvis else {"file_name": f"val2017/{i}.jpg"}
        for i in (1, 2)
    ]
    classes = [{"id": 3, "name": "traffic_light"}, {"id": 44, "name": "bow_(weapon)"}]
    if lvis:
        classes[1]["synonyms"] = ["bow_(weapon)", "longbow"]
    box = {"image_id": 1, "category_id": 3, "bbox": [4, 5, 10, 12]}
    values = {
        "images": [{"id": i, **name} for i, name in zip((1, 2), names, strict=True)],
        "categories": classes,
        "annotations": [
            box,
            {**box, "image_id": 2, "category_id": 44},
            {**box, "bbox": [4, 5, 10, 0]},
            {**box, "iscrowd": 1},
        ],
    }
    return as_json(folder / "instances.json", values)


def refcoco(folder: Path) -> Path:
    noise(folder / "1.jpg")
    boxes = {8: [0, 0, 10, 10], 9: [0, 0, 10, 9], 10: [20, 5, 10, 15]}
    values = {
        "images": [{"id": 1, "file_name": "1.jpg"}],
        "annotations": [{"id": i, "image_id": 1, "bbox": box} for i, box in boxes.items()],
    }
    as_json(folder / "instances.json", values)
    refs = [
        {"ref_id": 2, "ann_id": 10, "image_id": 1, "split": "testA",
         "sentences": [{"sent": "right cup"}]},
        {"ref_id": 1, "ann_id": 9, "image_id": 1, "split": "val",
         "sentences": [{"sent": "left cup"}, {"sent": "the cup at left"}]},
    ]  # fmt: skip
    (folder / "refs(unc).p").write_bytes(pickle.dumps(refs, protocol=0))
    return folder


def labels(path: Path, values: np.ndarray, mode: str = "P") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(values.astype(np.uint8))
    if mode == "P":
        image.putpalette(list(range(256)) * 3)
    image.save(path)


def voc_folder(folder: Path) -> Path:
    """Two images; background, the classes 1 and 20, and the border that is not counted."""
    (folder / "ImageSets" / "Segmentation").mkdir(parents=True)
    (folder / "ImageSets" / "Segmentation" / "val.txt").write_text("a\nb\n")
    for name in "ab":
        noise(folder / "JPEGImages" / f"{name}.jpg")
        values = np.zeros((30, 40), dtype=np.uint8)
        values[:10], values[10:15], values[15] = 1, 20, 255
        labels(folder / "SegmentationClass" / f"{name}.png", values)
    return folder
