"""Write a scene's long caption, sentence by sentence, with exact character spans."""

from __future__ import annotations

import random
from dataclasses import dataclass

from glit.scenes.layout import HARD, Scene, SceneObject
from glit.scenes.vocabulary import BACKGROUNDS, LIGHTS, PLACE_NAMES, PLACES
from glit.text.lexicon import OPPOSITES

Part = tuple[str, str, int | None]
"""Text, kind and object of a sentence that has no place yet."""

_NUMBERS = ("no", "one", "two", "three", "four", "five")

_OBJECT_TEMPLATES = (
    "{A} {size} {pattern} {colour} {shape} lies {place}.",
    "There is {a} {size} {pattern} {colour} {shape} {place}.",
    "{Place} there is {a} {size} {pattern} {colour} {shape}.",
    "{Place} sits {a} {size} {pattern} {colour} {shape}.",
    "{Place} one can see {a} {size} {pattern} {colour} {shape}.",
    "{A} {colour} {shape} that is {size} and {pattern} rests {place}.",
    "The {shape} {place} is {size}, {pattern} and {colour}.",
    "The {size} {shape} {place} is {colour} and {pattern}.",
)

_RELATION_TEMPLATES = (
    "The {pattern} {colour} {shape} is {relation} the {other}.",
    "{A} {size} {pattern} {colour} {shape} can be seen {relation} the {other}.",
)

_INTRODUCTIONS = (
    "The picture shows {number} {noun}.",
    "There {verb} {number} {noun} in this picture.",
    "This is a scene with {number} {noun}.",
)

_VARIED_INTRODUCTIONS = (
    *_INTRODUCTIONS,
    "{Number} {noun} can be seen on {background}.",
    "On {background} there {verb} {number} {noun}.",
    "The picture shows {some}.",
    "This is a scene with {some}.",
    "One can see {some} on {background}.",
    "In {light} there is {some}.",
    "Here is {some}, with {background} behind everything.",
)
_NO_INTRODUCTION_SHARE = 0.3

_BACKGROUND_TEMPLATES = (
    "The background is {background}.",
    "Behind everything is {background}.",
    "The scene is set on {background}.",
)

_LIGHT_TEMPLATES = (
    "The scene is lit by {light}.",
    "There is {light} over everything.",
    "All of it is seen in {light}.",
)

_SHORT_REMARKS = (
    "Nothing else can be seen.",
    "There are no people.",
    "No text is visible.",
    "Nothing in the scene is moving.",
    "The view is simple and calm.",
    "There are no animals here.",
    "All outlines are clear.",
    "The scene feels quiet and still.",
    "The picture is square.",
    "There is no frame around it.",
)

_LONG_REMARKS = (
    "The whole arrangement is plain and easy to take in, as if someone had laid it out with care.",
    "No part of it reaches over the edge of the picture, and nothing is hidden from the viewer.",
    "The surface behind goes on from one side of the picture to the other without any break.",
    "It looks like a page from a book for children who are learning the names of things.",
    "The colours stay even within each thing, and the borders between them are sharp and clean.",
)

_BACKGROUND_DETAILS = {
    "grass": "Fine blades of grass cover the ground evenly from the top edge down to the bottom.",
    "sand": "Fine pale grains of sand cover the ground evenly from one edge to the other.",
    "wood": "The brown boards of the floor run from side to side with dark seams between them.",
    "brick": "The bricks of the wall lie in regular rows, with pale lines of mortar between them.",
    "tiles": "The grey tiles are square and of equal size, with thin dark lines between them.",
    "water": "Soft waves run across the water from one side of the picture to the other.",
}

_MIN_WORDS = 60
_LONG_SHARE = 0.2
_LONG_WORDS = (78, 108)
_RELATION_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSentence:
    """A sentence of a scene's caption."""

    text: str
    char_start: int
    char_end: int
    """``caption[char_start:char_end] == text``."""
    kind: str
    """object, relation, background, light or remark."""
    object: int | None
    """Position of the object it tells of in ``scene.objects``; None for the other kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneCaption:
    """The captions of a scene."""

    text: str
    sentences: tuple[SceneSentence, ...]
    short: str
    """A line that names every object by colour and shape, the background and the light."""


def write_caption(scene: Scene) -> SceneCaption:
    """The caption of a scene; twins use the same templates and differ only where they must.

    ``easy`` captions hold only what must be said, the others at least 60 words and a
    fifth of them 78 or more. Of the ``varied`` ones three in ten have no introduction; the others
    have one of ten, filled in.
    """
    rng = random.Random(scene.text_seed)
    parts: list[Part] = [(text, "remark", None) for text in _introductions(scene, rng)]
    order = list(range(len(scene.objects)))
    rng.shuffle(order)
    parts += [(object_sentence(scene.objects[k], rng), "object", k) for k in order]
    if scene.level in HARD:
        parts += _relations(scene, order, rng)
    setting: list[Part] = [
        (background_sentence(scene, rng), "background", None),
        (light_sentence(scene, rng), "light", None),
    ]
    position = len(parts) if rng.random() < 0.6 else 1
    parts[position:position] = setting
    if scene.level != "easy":
        parts += _remarks(scene, parts, rng)
    return _join(parts, short_caption(scene, rng))


def object_sentence(item: SceneObject, rng: random.Random, *, template: int | None = None) -> str:
    """A sentence with an object's size, pattern, colour, shape and place.

    ``template`` fixes the wording and the plainest phrase for the place.
    """
    chosen = rng.randrange(len(_OBJECT_TEMPLATES)) if template is None else template
    phrases = PLACES[item.place]
    place = rng.choice(phrases) if template is None else phrases[0]
    return _fill_in(_OBJECT_TEMPLATES[chosen], item, place=place)


def canonical_caption(scene: Scene) -> str:
    """A caption in the mini captioner's fixed wording, objects in reading order.

    >>> from glit.scenes.layout import draw_scene
    >>> print(canonical_caption(draw_scene(0, 0, level="easy")))  # doctest: +ELLIPSIS
    The picture shows ...
    """
    items = sorted(scene.objects, key=lambda item: item.place)
    noun = "object" if len(items) == 1 else "objects"
    sentences = [f"The picture shows {_NUMBERS[len(items)]} {noun}."]
    sentences += [
        _fill_in(_OBJECT_TEMPLATES[2], item, place=PLACE_NAMES[item.place]) for item in items
    ]
    sentences.append(f"The background is {BACKGROUNDS[scene.background]}.")
    sentences.append(f"The scene is lit by {LIGHTS[scene.light][0]}.")
    return " ".join(sentences)


def relation_sentence(scene: Scene, first: int, second: int, *, opposite: bool = False) -> str:
    """A sentence with the relation of one object to another, true or reversed.

    >>> from glit.scenes.layout import draw_scene
    >>> relation_sentence(draw_scene(2, 0, level="hard"), 0, 1).startswith("The ")
    True
    """
    item, other = scene.objects[first], scene.objects[second]
    relation = _relation(item, other)
    return _fill_in(
        _RELATION_TEMPLATES[0],
        item,
        relation=OPPOSITES[relation] if opposite else relation,
        other=f"{other.pattern} {other.colour} {other.shape}",
    )


def background_sentence(scene: Scene, rng: random.Random) -> str:
    """A sentence that names the background."""
    return rng.choice(_BACKGROUND_TEMPLATES).format(background=BACKGROUNDS[scene.background])


def light_sentence(scene: Scene, rng: random.Random) -> str:
    """A sentence that names the light."""
    return rng.choice(_LIGHT_TEMPLATES).format(light=LIGHTS[scene.light][0])


def short_caption(scene: Scene, rng: random.Random) -> str:
    """Return a line with every object's colour and shape in shuffled order, background and
    light."""
    names = [_name(item) for item in scene.objects]
    rng.shuffle(names)
    text = f"{_listed(names)} on {BACKGROUNDS[scene.background]} in {LIGHTS[scene.light][0]}."
    return text[0].upper() + text[1:]


def _name(item: SceneObject) -> str:
    return f"{_article(item.colour)} {item.colour} {item.shape}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _introductions(scene: Scene, rng: random.Random) -> list[str]:
    """The sentence before those about objects; of ``varied`` scenes one of many, or none."""
    count = len(scene.objects)
    words = {
        "number": _NUMBERS[count],
        "noun": "object" if count == 1 else "objects",
        "verb": "is" if count == 1 else "are",
    }
    if scene.level != "varied":
        return [rng.choice(_INTRODUCTIONS).format(**words)]
    if rng.random() < _NO_INTRODUCTION_SHARE:
        return []
    named = [_name(item) for item in rng.sample(scene.objects, rng.randint(1, count))]
    words |= {
        "Number": _NUMBERS[count].capitalize(),
        "some": _listed(named if len(named) == count else [*named, "more"]),
        "background": BACKGROUNDS[scene.background],
        "light": LIGHTS[scene.light][0],
    }
    return [rng.choice(_VARIED_INTRODUCTIONS).format(**words)]


def _fill_in(template: str, item: SceneObject, **more: str) -> str:
    words = {
        "size": item.size,
        "pattern": item.pattern,
        "colour": item.colour,
        "shape": item.shape,
        **more,
    }
    first = template.replace("{A} ", "{a} ").partition("{a} ")[2].partition(" ")[0]
    article = _article(first.format(**words)) if first else ""
    place = more.get("place", "")
    return template.format(
        A=article.capitalize(), a=article, Place=place[:1].upper() + place[1:], **words
    )


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _relations(scene: Scene, order: list[int], rng: random.Random) -> list[Part]:
    """Sentences that place one object relative to another that only one object can be."""
    result: list[Part] = []
    names = [(o.pattern, o.colour, o.shape) for o in scene.objects]
    for k in order:
        if rng.random() >= _RELATION_SHARE:
            continue
        other = rng.choice([j for j in order if j != k])
        text = _fill_in(
            rng.choice(_RELATION_TEMPLATES),
            scene.objects[k],
            relation=_relation(scene.objects[k], scene.objects[other]),
            other=" ".join(names[other]),
        )
        result.append((text, "relation", k))
    return result


def _relation(item: SceneObject, other: SceneObject) -> str:
    dx, dy = item.cx - other.cx, item.cy - other.cy
    if abs(dx) >= abs(dy):
        return "left of" if dx < 0 else "right of"
    return "above" if dy < 0 else "below"


def _remarks(scene: Scene, parts: list[Part], rng: random.Random) -> list[Part]:
    """True sentences that fill the caption up to its length."""
    words = sum(len(text.split()) for text, _, _ in parts)
    short = rng.sample(_SHORT_REMARKS, len(_SHORT_REMARKS))
    chosen: list[Part] = []
    if rng.random() < _LONG_SHARE:
        wanted = rng.randint(*_LONG_WORDS)
        long = rng.sample(_LONG_REMARKS, len(_LONG_REMARKS))
        chosen.append((_BACKGROUND_DETAILS[scene.background], "background", None))
        words += len(chosen[0][0].split())
        while words < wanted - 8 and long:
            text = long.pop()
            chosen.append((text, "remark", None))
            words += len(text.split())
    while words < _MIN_WORDS:
        text = short.pop()
        chosen.append((text, "remark", None))
        words += len(text.split())
    return chosen


def _join(parts: list[Part], short: str) -> SceneCaption:
    sentences: list[SceneSentence] = []
    position = 0
    for text, kind, item in parts:
        end = position + len(text)
        sentences.append(
            SceneSentence(text=text, char_start=position, char_end=end, kind=kind, object=item)
        )
        position = end + 1
    return SceneCaption(
        text=" ".join(text for text, _, _ in parts), sentences=tuple(sentences), short=short
    )
