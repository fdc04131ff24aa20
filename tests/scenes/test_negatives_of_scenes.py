"""False sentences that are made by words alone, held against the truth of scenes."""

from __future__ import annotations

import random
from collections import Counter

from scene_truth import is_true

from glit.scenes.captions import write_caption
from glit.text.negatives import KINDS, negatives
from tools.measure.scene_questions import without_twins
from tools.measure.scene_world import TRAIN_SEED


def made(guarded: bool) -> tuple[Counter[str], int]:
    """How many false sentences of 40 scenes there are by kind, and how many of them are true."""
    kinds: Counter[str] = Counter()
    true = 0
    for scene in without_twins(TRAIN_SEED, 40):
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
