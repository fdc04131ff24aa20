"""Pairs that a person decided, in the columns ``by_hand`` and ``review`` of a corrected dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glit.data import rows
from glit.data.records import Pair, Scores
from glit.data.schema import BY_HAND
from glit.rules.pairing import Pairing

Decided = Sequence[Mapping[str, Any]]
"""Values of the column ``by_hand``."""


def by_hand_of(values: Mapping[str, Any]) -> Decided:
    """Return a person's decisions on a row's pairs; none if the column is another's."""
    found = values.get("by_hand")
    ours = isinstance(found, list) and all(
        isinstance(each, dict) and [*each] == BY_HAND.names for each in found
    )
    return found if ours and found else ()


def with_by_hand(pairs: Sequence[Pair], decided: Decided, scores: Scores) -> tuple[Pair, ...]:
    """The pairs of a rule, those of some sentences replaced by what a person decided.

    A person's pairs come first, by falling similarity; sentences that a person left without a
    region come last. Where the rule gives probabilities, a person's are 1, and 0 for no region.
    """
    regions = {each["sentence"]: each["region"] for each in decided}
    by_rule = [pair for pair in pairs if pair.sentence not in regions]
    made = []
    for pair in pairs:
        if (region := regions.get(pair.sentence)) is None:
            continue
        own = scores.similarity[pair.sentence]
        shown = int(own.argmax()) if region < 0 else region
        made.append(
            Pair(
                sentence=pair.sentence,
                region=shown,
                similarity=float(own[shown]),
                global_wins=region < 0,
                probability=None if pair.probability is None else float(region >= 0),
                support=None if pair.support is None else 1.0,
            )
        )
    made.sort(key=lambda pair: (pair.global_wins, -pair.similarity, pair.sentence))
    return (
        *(pair for pair in made if not pair.global_wins),
        *by_rule,
        *(pair for pair in made if pair.global_wins),
    )


def review(
    *, right: bool = False, edited: Sequence[int] = (), tags: Sequence[str] = (), note: str = ""
) -> dict[str, Any]:
    """A value of the column ``review``; without arguments: nobody reviewed the sample."""
    return {"right": right, "edited": [*edited], "tags": [*tags], "note": note}


UNREVIEWED = {"by_hand": [], "review": review()}
"""Values of a sample that nobody corrected, by column."""


def rule_of(row: Mapping[str, Any], pairings: Sequence[Pairing]) -> Pairing:
    """Find which of a dataset's rules chose the pairs of a row; a merged dataset has several.

    Args:
        row: of a data file, as plain values.
        pairings: the dataset's.
    """
    if len(pairings) == 1:
        return pairings[0]
    scores = rows.scores(dict(row), len(row["sentences"]))
    regions = tuple(map(rows.region, row["regions"]))
    sentences = tuple(map(rows.sentence, row["sentences"]))
    pairs = tuple(map(rows.pair, row["pairs"]))
    for pairing in pairings:
        if with_by_hand(pairing(scores, regions, sentences), by_hand_of(row), scores) == pairs:
            return pairing
    return pairings[0]
