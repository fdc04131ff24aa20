"""Captions of scenes in which one sentence is false."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glit.scenes.false_sentences import KINDS, Row, changed_sentence, read_truth


def write_false_captions(ground_truth: Path, out: Path, *, seed: int) -> dict[str, dict[str, Any]]:
    """Write ``captions.jsonl`` in which one sentence a caption is false; what was done, by path.

    The kinds take turns over the scenes; the sentence is drawn evenly from those of the scene that
    the kind can falsify. A scene without such a sentence keeps its caption and is left out of the
    answer.

    Returns:
        By path: ``kind``, ``index`` of the sentence, ``char_start``, and the true sentence's ``of``
        (object, relation, background).

    Raises:
        InputError: the file is not the ground truth of scenes.
    """
    rows = read_truth(ground_truth)
    draw = random.Random(seed)
    done: dict[str, dict[str, Any]] = {}
    out.mkdir(parents=True, exist_ok=True)
    with (out / "captions.jsonl").open("w", encoding="utf-8") as file:
        for number, row in enumerate(rows):
            kind = tuple(KINDS)[number % len(KINDS)]
            caption, false = _falsified(row, kind, rows, draw)
            if false is not None:
                done[row["path"]] = false
            file.write(json.dumps({"path": row["path"], "caption": caption}) + "\n")
    return done


def _falsified(
    row: Row, kind: str, rows: Sequence[Row], draw: random.Random
) -> tuple[str, dict[str, Any] | None]:
    changed = changed_sentence(row, kind, rows, draw)
    if changed is None:
        return row["caption"], None
    index, text = changed
    sentence = row["sentences"][index]
    start, end = sentence["char_start"], sentence["char_end"]
    caption = row["caption"][:start] + text + row["caption"][end:]
    return caption, {"kind": kind, "index": index, "char_start": start, "of": KINDS[kind][0]}
