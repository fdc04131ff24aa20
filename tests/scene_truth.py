"""Whether a sentence about a hard scene is true, by the scene's own truth."""

from __future__ import annotations

import re

from glit.scenes.captions import SceneSentence
from glit.scenes.layout import Scene, SceneObject
from glit.scenes.vocabulary import BACKGROUNDS, COLOURS, LIGHTS, PATTERNS, PLACES, SHAPES, SIZES

_NAMES = {"shape": SHAPES, "colour": COLOURS, "pattern": PATTERNS, "size": SIZES}
_RELATIONS = {
    "left of": lambda a, b: a.cx < b.cx,
    "right of": lambda a, b: a.cx > b.cx,
    "above": lambda a, b: a.cy < b.cy,
    "below": lambda a, b: a.cy > b.cy,
}


def is_true(text: str, of: SceneSentence, scene: Scene) -> bool:
    """Whether a sentence that was made of a scene's sentence is true of it.

    Relations are read generously: "left of" is true of any two of which one is further left.
    """
    if of.kind == "object":
        places = [i for i, names in enumerate(PLACES) for n in names if _ends(n, text)]
        return any(_looks(text, each, of.text) and each.place in places for each in scene.objects)
    if of.kind == "relation":
        word, left, right = _parted(text)
        _, of_left, of_right = _parted(of.text)
        return any(
            _looks(left, a, of_left) and _looks(right, b, of_right) and _RELATIONS[word](a, b)
            for a in scene.objects
            for b in scene.objects
            if a is not b
        )
    own = (BACKGROUNDS[scene.background], LIGHTS[scene.light][0])
    said = [p for p in (*BACKGROUNDS.values(), *(p for p, _ in LIGHTS.values())) if p in text]
    return "in front" not in text.lower() and bool(said) and all(each in own for each in said)


def _parted(text: str) -> tuple[str, str, str]:
    """The relation, and what is said on both sides of it."""
    word = next(each for each in _RELATIONS if f" {each} the " in text)
    left, _, right = text.partition(f" {word} the ")
    return word, left, right


def _ends(place: str, text: str) -> bool:
    """Whether a place is named, and not only the first words of another."""
    further = r"(?! left| right| of| corner)"
    return re.search(rf"\b{place}\b{further}", text, re.IGNORECASE) is not None


def _looks(text: str, item: SceneObject, of: str) -> bool:
    """Whether all that a text says of looks is the object's, and it says as much as ``of``; else it
    holds a word that no scene has."""
    said = _said(text)
    return len(said) == len(_said(of)) and all(getattr(item, n) == word for n, word in said)


def _said(text: str) -> list[tuple[str, str]]:
    words = re.findall(r"\w+", text.lower())
    return [(name, w) for name, values in _NAMES.items() for w in words if w in values]
