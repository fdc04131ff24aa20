"""Words that exclude one another: colours, sizes, numbers, things, places and relations.

A group holds classes of words; words of one class mean about the same, and those of two classes
are never both true of one thing. Words that may be true together ("tiny", "short") are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

_ATTRIBUTES = (
    "red; orange; yellow; green; turquoise,teal,cyan; blue; purple,violet; pink; white; black; "
    "brown; grey,gray",
    "small,little; medium; large,big,huge",
    "plain; striped; dotted,spotted; checked,checkered; floral",
    "wooden; metal,metallic; plastic; glass; stone; brick; leather; tiled; paper",
    "grassy; sandy; snowy; rocky",
    "round,circular; square,rectangular; triangular",
    "old,elderly; new,young",
    "bright; dim,dark",
    "open; closed,shut",
    "empty; full",
    "wet; dry",
    "clean; dirty",
    "smooth; rough",
    "thick; thin",
    "sunny; rainy; cloudy",
)
_NUMBERS = ("two; three; four; five; six; seven; eight; nine; ten",)
_OBJECTS = (
    "circle; square; triangle; star; cross; ring; crescent; heart; hourglass; arch; diamond",
    "dog; cat; horse; cow; bird; elephant; bear; rabbit",
    "man; woman; boy; girl",
    "car; bus; truck; bicycle,bike; motorcycle; train; boat; plane,airplane",
    "chair; table; sofa,couch; bed; lamp; shelf; desk",
    "apple; banana; orange; pizza; cake; sandwich; carrot",
    "hat,cap; shirt; jacket,coat; dress; skirt; scarf",
    "cup,mug; bottle; plate; bowl; spoon; fork; knife",
    "tree; flower; rock; bush",
    "house; church; bridge; tower; castle",
    "beach; mountain; forest; desert; street",
    "daylight; moonlight",
    "floor; wall; ceiling",
)
_IRREGULAR = {"man": "men", "woman": "women", "knife": "knives", "shelf": "shelves"}
_CLASSES = {"attribute": _ATTRIBUTES, "count": _NUMBERS, "object": _OBJECTS}

OPPOSITES: Mapping[str, str] = {
    "left of": "right of", "right of": "left of", "above": "below", "below": "above",
    "under": "above", "beneath": "above", "underneath": "above",
    "in front of": "behind", "behind": "in front of",
    "inside": "outside", "outside": "inside",
    "in the foreground": "in the background", "in the background": "in the foreground",
}  # fmt: skip
"""Relations, and what they are not."""

OTHER_SIDE: Mapping[str, str] = {
    "left": "right", "right": "left", "top": "bottom", "bottom": "top", "upper": "lower",
    "lower": "upper",
}  # fmt: skip
"""Sides of a picture."""


def _groups() -> dict[str, dict[str, list[tuple[str, ...]]]]:
    """Return by kind and word the classes of its group, its own first."""
    found: dict[str, dict[str, list[tuple[str, ...]]]] = {}
    for kind, groups in _CLASSES.items():
        found[kind] = {}
        for group in groups:
            classes = [tuple(each.strip().split(",")) for each in group.split(";")]
            for own in classes:
                rest = [each for each in classes if each is not own]
                found[kind] |= {word: [own, *rest] for word in own}
    return found


GROUPS: Mapping[str, Mapping[str, list[tuple[str, ...]]]] = _groups()
"""By kind (attribute, count, object), by word: the classes of its group, its own first."""


def others(kind: str, word: str) -> list[str]:
    """The words of a kind that exclude a word, the first of each class; none for unknown words.

    >>> others("attribute", "big")
    ['small', 'medium']
    """
    return [each[0] for each in GROUPS[kind].get(word, [()])[1:]]


def plural(word: str) -> str:
    """The plural of a thing of this lexicon, which holds none that is its own plural.

    >>> plural("knife"), plural("bus")
    ('knives', 'buses')
    """
    return _IRREGULAR.get(word) or word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


SINGULARS: Mapping[str, str] = {plural(word): word for word in GROUPS["object"]}
"""Known things by their plural."""

_CLASS = {word: classes[0][0] for group in GROUPS.values() for word, classes in group.items()} | {
    "middle": "centre",
    "center": "centre",
    "upper": "top",
    "lower": "bottom",
}


def canonical(word: str) -> str:
    """The first word of a word's class; other words as they are.

    >>> canonical("big"), canonical("tuba")
    ('large', 'tuba')
    """
    return _CLASS.get(word, word)
