"""Noun phrases about scenes, and which objects each is true of, for the mini grounder."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glit.scenes import Scene
from glit.scenes.vocabulary import BACKGROUNDS, COLOURS, LIGHTS, PATTERNS, SHAPES, SIZES

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "shape": SHAPES,
    "colour": tuple(COLOURS),
    "pattern": PATTERNS,
    "size": tuple(SIZES),
}
"""The attributes of an object, and the values of each."""

_NUMBERS = ("", "the ", "two ", "three ", "four ", "several ")
_THINGS = (
    "animal", "arm", "artist", "bag", "ball", "bench", "bird", "blade", "board", "boat", "book",
    "border", "bottle", "box", "boy", "branch", "break", "bricks", "bridge", "building", "bus",
    "cake", "camera", "cap", "car", "care", "cat", "chair", "child", "children", "clock",
    "cloud", "coat", "corner", "crowd", "cup", "curtain", "dog", "door", "edge", "eye", "face",
    "fence", "field", "finger", "flag", "floor", "flower", "fork", "frame", "garden", "girl",
    "glass", "grain", "grass", "ground", "hair", "hand", "hat", "head", "hill", "horse",
    "house", "jacket", "kitchen", "knife", "lamp", "landscape", "leaf", "leg", "letter",
    "light", "lines", "man", "men", "mirror", "mountain", "mouth", "name", "names", "ocean",
    "outline", "page", "painting", "paper", "path", "people", "person", "phone", "photograph",
    "picture", "plant", "plate", "pole", "river", "road", "rock", "roof", "room", "row", "rows",
    "sand", "scene", "seams", "shadow", "shelf", "shirt", "shoe", "sidewalk", "sign", "sky",
    "snow", "someone", "stone", "street", "stretch", "sun", "surface", "table", "text",
    "things", "tiles", "tower", "train", "tree", "truck", "umbrella", "vase", "viewer", "wall",
    "water", "wave", "waves", "window", "woman", "word",
)  # fmt: skip
_LIKE = ("", "", "", "regular ", "pale ", "soft ", "fine ", "dark ", "old ", "wooden ", "small ",
         "large ", "red ", "white ", "dotted ", "striped ")  # fmt: skip
_KEPT = {"size": 0.55, "pattern": 0.6, "colour": 0.75}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A noun phrase and what it says of an object."""

    text: str
    wanted: tuple[int, int, int, int] | None
    """A value of each of ``ATTRIBUTES``, -1 for any; None where it tells of no object."""


def draw_phrase(values: np.ndarray, words: random.Random) -> Phrase:
    """A phrase that is true of an object with these values, as captions put it.

    Args:
        values: indices into the values of ``ATTRIBUTES`` [4].
    """
    if words.random() < 0.22:
        return Phrase(text=_of_nothing(words), wanted=None)
    shape, colour, pattern, size = (int(value) for value in values)
    if words.random() < 0.05:
        text = words.choice(("objects", "an object", "two objects", "four objects", "everything"))
        return Phrase(text=text, wanted=(-1, -1, -1, -1))
    names = dict(zip(ATTRIBUTES, (shape, colour, pattern, size), strict=True))
    kept = {name: words.random() < share for name, share in _KEPT.items()}
    said = [ATTRIBUTES[n][names[n]] for n in ("size", "pattern", "colour") if kept[n]]
    noun = ATTRIBUTES["shape"][shape] if words.random() < 0.95 else "object"
    wanted = (
        -1 if noun == "object" else shape,
        colour if kept["colour"] else -1,
        pattern if kept["pattern"] else -1,
        size if kept["size"] else -1,
    )
    if words.random() < 0.2:
        noun += "es" if noun.endswith(("s", "h")) else "s"
        article = words.choice(_NUMBERS)
    else:
        first = [*said, noun][0]
        article = words.choice(("the ", "an " if first[0] in "aeiou" else "a ", ""))
    return Phrase(text=article + " ".join([*said, noun]), wanted=wanted)


def _of_nothing(words: random.Random) -> str:
    """A phrase that tells of no object: of the setting, of other things, of a quality alone."""
    kind = words.random()
    if kind < 0.2:
        return words.choice([*BACKGROUNDS.values(), *(phrase for phrase, _ in LIGHTS.values())])
    if kind < 0.3:
        return words.choice([value for values in ATTRIBUTES.values() for value in values][10:])
    article = words.choice(("the ", "a ", "no ", "any ", "this ", ""))
    return article + words.choice(_LIKE) + words.choice(_THINGS)


def read_phrase(text: str) -> Phrase:
    """What a phrase says, by its words; a phrase without a shape tells of no object.

    >>> read_phrase("Three small red rings").wanted
    (5, 0, -1, 0)
    """
    words = text.lower().replace(",", " ").split()
    wanted = [-1, -1, -1, -1]
    for number, values in enumerate(ATTRIBUTES.values()):
        for value, name in enumerate(values):
            if {name, f"{name}s", f"{name}es"} & set(words):
                wanted[number] = value
    if words[-1:] in (["object"], ["objects"]):
        return Phrase(text=text, wanted=_as_wanted(wanted))
    return Phrase(text=text, wanted=_as_wanted(wanted) if wanted[0] >= 0 else None)


def _as_wanted(values: list[int]) -> tuple[int, int, int, int]:
    shape, colour, pattern, size = values
    return shape, colour, pattern, size


def attributes_of(scene: Scene) -> np.ndarray:
    """int64 ``[K, 4]``: of each object the indices into the values of ``ATTRIBUTES``."""
    return np.array(
        [[v.index(getattr(item, name)) for name, v in ATTRIBUTES.items()] for item in scene.objects]
    )


def draw_phrases(
    attributes: Sequence[np.ndarray], indices: np.ndarray, number: int, words: random.Random
) -> list[Phrase]:
    """Distinct phrases about objects of scenes and, a third of them, of values at random.

    Args:
        attributes: of each scene ``[K, 4]``; see :func:`attributes_of`.
        indices: of the scenes to choose from.
        number: of phrases.
        words: the generator of random numbers.
    """
    found: dict[str, Phrase] = {}
    sizes = [len(values) for values in ATTRIBUTES.values()]
    while len(found) < number:
        scene = int(words.choice(indices))
        values = attributes[scene][words.randrange(len(attributes[scene]))].copy()
        if words.random() < 0.33:
            changed = words.randrange(4)
            values[changed] = words.randrange(sizes[changed])
        phrase = draw_phrase(values, words)
        found.setdefault(phrase.text, phrase)
    return list(found.values())


def objects_of(phrases: list[Phrase], attributes: np.ndarray) -> np.ndarray:
    """Which objects each phrase is true of.

    Args:
        attributes: [K, 4]; see :func:`attributes_of`.

    Returns:
        bool [K, P].
    """
    nothing = (-2, -2, -2, -2)
    wanted_P4 = np.array([phrase.wanted or nothing for phrase in phrases])
    same = attributes[:, None] == wanted_P4
    return (same | (wanted_P4 == -1)).all(axis=-1)
