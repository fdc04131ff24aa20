"""Annotation files as their publishers write them, in small."""

from __future__ import annotations

import json
from pathlib import Path

from glit.evaluation.readers import read_annotations


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
