"""Repeated captions, against a comparison of every pair."""

from __future__ import annotations

import itertools
import random
import shlex
from contextlib import closing

import duckdb

from glit.inspection.repairs import repair
from glit.inspection.repeats import LEAST_SHARED, Repeats, _runs


def captions(number: int, seed: int) -> list[str]:
    """Texts of which some are others with up to three words changed."""
    rng, found = random.Random(seed), []
    words = [f"word{n}" for n in range(400)]
    for _ in range(number):
        text = rng.choice(found).split() if found and rng.random() < 0.5 else []
        text = text or rng.choices(words, k=rng.randrange(10, 60))
        for _ in range(rng.randrange(1, 4)):
            text[rng.randrange(len(text))] = rng.choice(words)
        found.append(" ".join(text))
    return found


def test_near_repeats_are_those_of_every_pair():
    texts = captions(300, seed=1)
    pairs = {n: _runs(text.split()) for n, text in enumerate(texts)}
    shared = {
        (a, b): len(pairs[a] & pairs[b]) / len(pairs[a] | pairs[b])
        for a, b in itertools.combinations(pairs, 2) if texts[a] != texts[b]
    }  # fmt: skip
    exact = {n for n, text in enumerate(texts) if texts.count(text) > 1}
    due = {str(n) for pair, value in shared.items() if value >= LEAST_SHARED for n in pair
           if not {*pair} & exact}  # fmt: skip
    with closing(Repeats()) as repeats:
        for number, text in enumerate(texts):
            repeats.add(str(number), (text,))
        found = {name for name, _ in repeats.near()}
        repeated = {name for name, _ in repeats.repeated()}
    assert repeated == {str(n) for n in exact}
    assert len(due) > 40 and found <= due and len(found) >= 0.95 * len(due)


def test_short_captions_are_not_near_and_case_counts():
    with closing(Repeats()) as repeats:
        for name, text in (("a", "A red cup."), ("b", "A red cup!"), ("c", "A  red\ncup.")):
            repeats.add(name, (text, "", "x \ud800"))
        assert [*repeats.near()] == []
        assert [name for name, _ in repeats.repeated()] == ["a", "c", "a", "b", "c"]


def test_clashes_are_of_other_names_alone():
    with closing(Repeats()) as repeats:
        for name in ("a.jpg", "A.jpg", "b.jpg", "b.jpg", "caf\u00e9.jpg", "cafe\u0301.jpg"):
            repeats.add(name, ())
        assert {*repeats.clashes()} == {
            ("a.jpg", "A.jpg"), ("A.jpg", "a.jpg"),
            ("caf\u00e9.jpg", "cafe\u0301.jpg"), ("cafe\u0301.jpg", "caf\u00e9.jpg"),
        }  # fmt: skip


def test_the_repair_of_a_clash_keeps_one_of_the_pictures(tmp_path):
    found = repair("name-clash", what="d", form="glit", images="", examples=(), at_fault=2)
    where = shlex.split(found)[-1]
    rows = "(VALUES ('1', 'a/B.png'), ('2', 'a/b.png'), ('3', 'c.png')) AS samples(sample_id, source_path)"
    kept = duckdb.sql(
        f"WITH samples AS (SELECT * FROM {rows}) SELECT sample_id FROM samples WHERE {where}"
    )
    assert sorted(kept.fetchall()) == [("1",), ("3",)]
