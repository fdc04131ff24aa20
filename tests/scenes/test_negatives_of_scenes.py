"""False sentences that are made by words alone, held against the truth of scenes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count, islice

from scene_truth import is_true

from glit.scenes.captions import write_caption
from glit.scenes.layout import SPLITS, draw_scene
from glit.text.negatives import KINDS, negatives


def made(guarded: bool) -> tuple[Counter[str], int]:
    """How many false sentences of 40 scenes there are by kind, and how many of them are true."""
    kinds: Counter[str] = Counter()
    true = 0
    drawn = (draw_scene(SPLITS["train"][0] + 70_000, i, level="hard") for i in count())
    for scene in islice((each for each in drawn if each.twin_of is None), 40):
        sentences = write_caption(scene).sentences
        caption = [each.text for each in sentences] if guarded else []
        for of in sentences:
            if of.kind in ("object", "relation"):
                assert is_true(of.text, of, scene), of.text
            for false in negatives(of.text, caption, most=999, draw=random.Random(0)):
                kinds[false.kind] += 1
                true += is_true(false.text, of, scene)
    return kinds, true


def test_none_is_true_because_of_what_the_caption_says_elsewhere() -> None:
    kinds, true = made(guarded=True)
    assert true == 0 and min(kinds[kind] for kind in KINDS) > 50
    more, without_guard = made(guarded=False)
    assert without_guard > 20 and more.total() > kinds.total()
