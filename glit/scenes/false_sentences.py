"""Make false sentences about scenes from their ground truth.

Kinds of falsehood, by what is changed in a sentence that was true:

attribute    shape, colour or pattern of the object it tells of
object       the whole sentence, for one about an object of another scene
place        the place it puts its object at
relation     left of, right of, above, below
background   the background
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from glit.data.parquet import read_parquet_file
from glit.errors import InputError
from glit.scenes.vocabulary import BACKGROUNDS, COLOURS, PATTERNS, PLACES, SHAPES
from glit.text.lexicon import OPPOSITES
from glit.text.negatives import replaced

_VALUES: Mapping[str, tuple[str, ...]] = {
    "shape": SHAPES,
    "colour": tuple(COLOURS),
    "pattern": PATTERNS,
}
_RELATIONS = ("left of", "right of", "above", "below")

Row = Mapping[str, Any]
"""A row of ``ground_truth.parquet``."""


def false_sentences_of(ground_truth: Path, *, seed: int) -> dict[str, dict[str, str]]:
    """Make one false sentence of every kind for every scene that has a true one to make it from.

    Returns:
        By kind, by path of the scene.

    Raises:
        InputError: the file is not the ground truth of scenes.
    """
    rows = read_truth(ground_truth)
    found: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for number, row in enumerate(rows):
        for place, kind in enumerate(KINDS):
            # drawn anew for each, so that one does not depend on what others there are
            draw = random.Random((seed << 40) + (number << 8) + place)
            changed = changed_sentence(row, kind, rows, draw)
            if changed is not None:
                found[kind][row["path"]] = changed[1]
    return {kind: sentences for kind, sentences in found.items() if sentences}


def read_truth(ground_truth: Path) -> list[dict[str, Any]]:
    """Rows of the ground truth of scenes.

    Raises:
        InputError: the file is another.
    """
    try:
        rows = read_parquet_file(ground_truth).to_pylist()
        if not rows or not {"path", "sentences", "objects"} <= set(rows[0]):
            raise ValueError("it has no scenes with sentences and objects")
        return rows
    except (OSError, ValueError) as error:
        raise InputError(f"{ground_truth}: not the ground truth of scenes ({error})") from error


def changed_sentence(
    row: Row, kind: str, rows: Sequence[Row], draw: random.Random
) -> tuple[int, str] | None:
    """A sentence's number and what it falsely says; None where the scene has none of the kind."""
    of, make = KINDS[kind]
    candidates = [i for i, each in enumerate(row["sentences"]) if each["kind"] == of]
    if not candidates:
        return None
    index = draw.choice(candidates)
    text = make(row, row["sentences"][index], rows, draw)
    return None if text is None else (index, text)


def _other_attribute(
    row: Row, sentence: Row, rows: Sequence[Row], draw: random.Random
) -> str | None:
    """Return the sentence with another shape, colour or pattern, so that no object of the scene
    looks like that."""
    seen = {tuple(each[name] for name in _VALUES) for each in row["objects"]}
    own = {name: sentence[name] for name in _VALUES}
    changes = [
        (name, value)
        for name, values in _VALUES.items()
        if name != "pattern" or own["pattern"] in sentence["text"]
        for value in values
        if tuple((own | {name: value}).values()) not in seen
    ]
    name, value = draw.choice(changes)
    return _with_word(sentence["text"], own[name], value)


def _of_another_scene(
    row: Row, sentence: Row, rows: Sequence[Row], draw: random.Random
) -> str | None:
    seen = {(each["shape"], each["colour"]) for each in row["objects"]}
    for _ in range(50):
        other = draw.choice(rows)
        told = [s for s in other["sentences"] if s["kind"] == "object"]
        told = [s for s in told if (s["shape"], s["colour"]) not in seen]
        if told:
            return draw.choice(told)["text"]
    return None


def _other_place(row: Row, sentence: Row, rows: Sequence[Row], draw: random.Random) -> str | None:
    phrases = [phrase for place in PLACES for phrase in place]
    own = max(
        (p for p in phrases if p in sentence["text"] or _capital(p) in sentence["text"]), key=len
    )
    others = [place for place in PLACES if own not in place]
    new = draw.choice(draw.choice(others))
    return sentence["text"].replace(_capital(own), _capital(new)).replace(own, new)


def _other_relation(
    row: Row, sentence: Row, rows: Sequence[Row], draw: random.Random
) -> str | None:
    own = next(each for each in _RELATIONS if f" {each} " in sentence["text"])
    return sentence["text"].replace(f" {own} ", f" {OPPOSITES[own]} ")


def _other_background(
    row: Row, sentence: Row, rows: Sequence[Row], draw: random.Random
) -> str | None:
    own = BACKGROUNDS[row["background"]]
    if own not in sentence["text"]:
        return None
    others = [phrase for name, phrase in BACKGROUNDS.items() if name != row["background"]]
    return sentence["text"].replace(own, draw.choice(others))


def _capital(phrase: str) -> str:
    return phrase[:1].upper() + phrase[1:]


def _with_word(text: str, old: str, new: str) -> str:
    """Return the text with one word changed, and the article before it."""
    found = re.search(rf"\b{old}\b", text)
    return text if found is None else replaced(text, *found.span(), new)


KINDS: Mapping[str, tuple[str, Callable[[Row, Row, Sequence[Row], random.Random], str | None]]] = {
    "attribute": ("object", _other_attribute),
    "object": ("object", _of_another_scene),
    "place": ("object", _other_place),
    "relation": ("relation", _other_relation),
    "background": ("background", _other_background),
}
"""By name: the kind of sentence that is made false, and how."""
