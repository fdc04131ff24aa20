"""Prompt templates for class names in zero-shot classification.

The 80 templates are those that CLIP's authors used on ImageNet, and the seven those that they found
to do most of the work (the notebook on prompts beside CLIP's code); their grammar is theirs.
"""

from __future__ import annotations

from glit.errors import RecipeError

_ARTICLES = ("a", "the")
_PHOTOS = (
    "", "bad ", "good ", "low resolution ", "cropped ", "bright ", "dark ", "close-up ",
    "black and white ", "pixelated ", "jpeg corrupted ", "blurry ",
)  # fmt: skip
_THINGS = ("hard to see", "clean", "dirty", "cool", "large", "small", "nice", "weird")
_WORKS = (
    "a sculpture", "a rendering", "a tattoo", "a drawing", "a painting", "a sketch", "a doodle",
    "a rendition", "graffiti", "art", "itap",
)  # fmt: skip
_MADE = ("embroidered", "plastic", "origami", "toy", "plushie", "cartoon")


def _eighty() -> tuple[str, ...]:
    both = [
        text.replace("ARTICLE", article)
        for article in _ARTICLES
        for text in (
            *(f"a {kind}photo of ARTICLE {{}}." for kind in _PHOTOS),
            *(f"a photo of ARTICLE {kind} {{}}." for kind in _THINGS),
            *(f"{work} of ARTICLE {{}}." for work in _WORKS),
            *(f"ARTICLE {kind} {{}}." for kind in _MADE),
            "ARTICLE {} in a video game.",
        )
    ]
    numbers = (f"a photo of {word} {{}}." for word in ("many", "my", "one"))
    return (*both, *numbers, "itap of my {}.")


TEMPLATES: dict[str, tuple[str, ...]] = {
    "openai-80": _eighty(),
    "openai-7": (
        "itap of a {}.",
        "a bad photo of the {}.",
        "a origami {}.",
        "a photo of the large {}.",
        "a {} in a video game.",
        "art of the {}.",
        "a photo of the small {}.",
    ),
}


def templates(name: str) -> tuple[str, ...]:
    """The templates of a name, or the given template itself: a text with one ``{}``.

    Raises:
        RecipeError: neither.
    """
    if name in TEMPLATES:
        return TEMPLATES[name]
    if name.count("{}") != 1:
        raise RecipeError(
            f"evaluate.templates = {name!r}: wanted {', '.join(TEMPLATES)}, or a text of your own "
            "with one {} in it"
        )
    return (name,)
