"""Questions about scenes for image-text models: twins and two-way choices.

Questions come from the scenes' truth, as in ARO (Yuksekgonul et al. 2023) and Winoground (Thrush et
al. 2022): a true sentence and a false one, of every scene one each about an attribute, a position
and a relation. Chance is one half.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice

from glit.scenes.captions import object_sentence, relation_sentence
from glit.scenes.layout import Scene, SceneObject, draw_scene
from glit.scenes.vocabulary import COLOURS, PATTERNS, PLACES, SHAPES, SIZES

KINDS = ("attribute", "position", "relation")
_VALUES: Mapping[str, Sequence[str]] = {
    "shape": SHAPES,
    "colour": tuple(COLOURS),
    "pattern": PATTERNS,
    "size": tuple(SIZES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a picture."""

    scene: int
    """Number of the scene among those given."""
    kind: str
    """attribute, position or relation."""
    true: str
    false: str
    """The same sentence with one value changed."""


def questions(scenes: Sequence[Scene]) -> list[Question]:
    """One of every kind for every scene; the same scenes give the same questions."""
    found = []
    for number, scene in enumerate(scenes):
        rng = random.Random((scene.seed << 32) + scene.index)
        first, second = rng.sample(range(len(scene.objects)), 2)
        item = scene.objects[first]
        places = [p for p in range(len(PLACES)) if all(o.place != p for o in scene.objects)]
        texts = {
            "attribute": (_told(item), _told(_changed(item, scene, rng))),
            "position": (_told(item), _told(replace(item, place=rng.choice(places)))),
            "relation": (
                relation_sentence(scene, first, second),
                relation_sentence(scene, first, second, opposite=True),
            ),
        }
        found += [
            Question(scene=number, kind=kind, true=true, false=false)
            for kind, (true, false) in texts.items()
        ]
    return found


def _told(item: SceneObject) -> str:
    return object_sentence(item, random.Random(0), template=0)


def _changed(item: SceneObject, scene: Scene, rng: random.Random) -> SceneObject:
    """The object with another shape, colour, pattern or size, unlike any object of the scene."""
    name = rng.choice(tuple(_VALUES))
    there = {getattr(other, name) for other in scene.objects}
    free = [value for value in _VALUES[name] if value not in there]
    others = free or [value for value in _VALUES[name] if value != getattr(item, name)]
    return replace(item, **{name: rng.choice(others)})


def without_twins(seed: int, num: int, *, level: str = "hard") -> list[Scene]:
    """The first scenes of a seed that are no twin of another."""
    return list(islice((scene for scene in _all(seed, level) if scene.twin_of is None), num))


def twins(seed: int, num: int, *, level: str = "hard") -> list[Scene]:
    """Pairs one after the other: the original, then its twin; 2 x ``num`` scenes."""
    pairs = (
        (draw_scene(seed, scene.twin_of, level=level), scene)
        for scene in _all(seed, level)
        if scene.twin_of is not None
    )
    return list(chain.from_iterable(islice(pairs, num)))


def _all(seed: int, level: str) -> Iterator[Scene]:
    return (draw_scene(seed, index, level=level) for index in count())
