"""One row of a dataset with a person's corrections: text, boxes, scores and pairs.

What a person saw is what is written: a sentence keeps the region that the page showed, also where
the rule would choose another one of the new scores.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glit.curate.dataset_models import DatasetModels
from glit.data import rows
from glit.data.captions import edited_captions
from glit.data.records import Caption, Drop, Pair, Region, Sample, Scores, Sentence
from glit.dataset.by_hand import by_hand_of, rule_of, with_by_hand
from glit.errors import InputError
from glit.images import Pixels
from glit.review.corrections.journal import Corners, State
from glit.rules.pairing import Pairing

SOURCE = "person"
"""``source`` of a box that a person drew or moved."""
_MATRICES = ("similarity", "phrase_similarity", "agreement")
_ABOUT_BOXES, _ABOUT_TEXT = ("masks", "groundings"), ("phrases", "negatives")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """A caption and its sentences, with where each is from."""

    caption: str
    sentences: tuple[Sentence, ...]
    old: tuple[int, ...]
    """By sentence the number that it, or most of it, had."""
    same: tuple[bool, ...]
    """By sentence whether its words are the old ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boxes:
    """Regions, with where each is from."""

    regions: tuple[Region, ...]
    number: dict[int, int]
    """New numbers by those of the dataset; drawn boxes included, deleted ones not."""
    same: tuple[int, ...]
    """Old numbers of the regions that were neither moved nor deleted."""


def shown_regions(row: dict[str, Any]) -> dict[int, int | None]:
    """Return each sentence's region in the dataset; None for no region."""
    return {p["sentence"]: None if p["global_wins"] else p["region"] for p in row["pairs"]}


def corrected_row(
    row: dict[str, Any],
    state: State,
    models: DatasetModels,
    pairings: Sequence[Pairing],
    image: Callable[[], Pixels],
) -> dict[str, Any] | Drop:
    """Apply the corrections of one sample to its row.

    Args:
        row: the columns of a data file by name, as Python values; it is not changed.
        state: the corrections, checked against the row.
        models: the dataset's splitter, tokenizer and matcher.
        pairings: the rules that chose the dataset's pairs.
        image: decodes the image, uint8 RGB [height, width, 3]; called only if it is scored.

    Returns:
        The new row, boxes in pixels; a drop if no sentence or no region is left.

    Raises:
        InputError: the caption cannot be written so.
    """
    text, boxes = _text(row, state, models), _boxes(row, state)
    if not text.sentences:
        return Drop(reason="no_sentence", message="a person struck every sentence")
    if not boxes.regions:
        return Drop(reason="no_region", message="a person deleted every region")
    seen = {**shown_regions(row), **state.pairs}
    regions = [boxes.number.get(-1 if (r := seen[old]) is None else r, -1) for old in text.old]
    changed = {**row, "caption": text.caption, **_moved_parts(row, text, boxes, models)}
    changed["sentences"] = [rows.sentence_row(each) for each in text.sentences]
    changed["regions"] = [rows.region_row(each) for each in boxes.regions]
    if "caption_similarity" in row and text.caption != row["caption"]:
        changed["caption_similarity"] = None
    changed |= edited_captions(row, text.caption)
    sample = _sample(row, changed, text, boxes)
    scores, known = _scores(row, text, boxes, regions, models, lambda: models.score(sample, image))
    changed |= rows.scores_row(scores)
    rule = rule_of(row, pairings)(scores, boxes.regions, text.sentences)
    decided = _decided(row, state, text, regions, rule, known)
    pairs = with_by_hand(rule, decided, scores)
    changed["pairs"] = [rows.pair_row(pair) for pair in pairs]
    changed["by_hand"] = decided
    edited = {number for number, same in enumerate(text.same) if not same}
    earlier = row.get("review") or {"edited": []}
    edited |= {n for n, old in enumerate(text.old) if old in earlier["edited"]}
    changed["review"] = state.review(edited=sorted(edited))
    return changed


def _text(row: dict[str, Any], state: State, models: DatasetModels) -> _Text:
    before = tuple(map(rows.sentence, row["sentences"]))
    if not state.texts and not state.struck:
        everyone = tuple(range(len(before)))
        same = (True,) * len(before)
        return _Text(caption=row["caption"], sentences=before, old=everyone, same=same)
    caption, spans = _caption(row["caption"], before, state)
    if not spans:
        return _Text(caption=caption, sentences=(), old=(), same=())
    if not unicodedata.is_normalized("NFC", caption):
        raise InputError("the edited caption is not NFC: a sentence begins with a combining mark")
    sentences, old, same = [], [], []
    for made in models.split(caption):
        shared = {
            number: min(made.char_end, end) - max(made.char_start, start)
            for number, (start, end) in spans.items()
        }
        number = max(shared, key=lambda each: shared[each])
        old.append(number)
        same.append(made.text == before[number].text)
        if same[-1]:
            kept = before[number]
            logprobs = {"mean_logprob": kept.mean_logprob, "min_logprob": kept.min_logprob}
            made = dataclasses.replace(made, **logprobs)
        sentences.append(made)
    return _Text(caption=caption, sentences=tuple(sentences), old=tuple(old), same=tuple(same))


def _caption(
    caption: str, sentences: Sequence[Sentence], state: State
) -> tuple[str, dict[int, tuple[int, int]]]:
    """The new caption, and where in it the sentences are that were not struck.

    A struck sentence goes with the text up to the next one, the last one with the text before it.
    """
    made = caption[: sentences[0].char_start]
    spans: dict[int, tuple[int, int]] = {}
    for number, sentence in enumerate(sentences):
        if number in state.struck:
            continue
        text = state.texts.get(number, sentence.text)
        spans[number] = (len(made), len(made) + len(text))
        after = sentences[number + 1 : number + 2]
        gap_end = after[0].char_start if after else len(caption)
        made += text + caption[sentence.char_end : gap_end]
    if spans and (len(sentences) - 1) in state.struck:
        made = made[: max(end for _, end in spans.values())]
    return made, spans


def _boxes(row: dict[str, Any], state: State) -> _Boxes:
    old = [*map(rows.region, row["regions"])]
    numbers = [*range(len(old)), *sorted(each for each in state.boxes if each >= len(old))]
    kept = [number for number in numbers if number not in state.deleted]
    return _Boxes(
        regions=tuple(_box(number, old, state) for number in kept),
        number={number: place for place, number in enumerate(kept)},
        same=tuple(number for number in kept if number not in state.boxes),
    )


def _box(number: int, old: list[Region], state: State) -> Region:
    """A region as the person left it. The label of a grid's cell names its place, so a cell that
    was moved has none."""
    before = old[number] if number < len(old) else None
    own = "" if before is None or (before.is_grid and number in state.boxes) else before.label
    label = state.labels.get(number, own)
    if before is None or number in state.boxes:
        return _drawn(state.boxes[number], label)
    return before if label == before.label else dataclasses.replace(before, label=label)


def _drawn(corners: Corners, label: str) -> Region:
    x0, y0, x1, y1 = (float(np.float32(value)) for value in corners)
    value = {"x0": x0, "y0": y0, "x1": x1, "y1": y1, "score": 1.0, "label": label, "source": SOURCE}
    return rows.region(value)


def _moved_parts(
    row: dict[str, Any], text: _Text, boxes: _Boxes, models: DatasetModels
) -> dict[str, list[dict[str, Any]]]:
    """Columns that name sentences and regions, where a stage of glit added them."""
    here = {name: row[name] for name in (*_ABOUT_BOXES, *_ABOUT_TEXT) if name in row}
    sentences = {
        old: new for new, (old, same) in enumerate(zip(text.old, text.same, strict=True)) if same
    }
    regions = {number: boxes.number[number] for number in boxes.same}
    made: dict[str, list[dict[str, Any]]] = {}
    if "masks" in here:
        made["masks"] = _renumbered(here["masks"], region=regions)
    if "negatives" in here:
        made["negatives"] = _renumbered(here["negatives"], sentence=sentences)
    if "phrases" in here and "groundings" in here:
        kept = [n for n, phrase in enumerate(here["phrases"]) if phrase["sentence"] in sentences]
        phrases = [here["phrases"][number] for number in kept]
        if text.caption != row["caption"]:
            phrases = [_moved_phrase(row, each, text, sentences, models) for each in phrases]
        made["phrases"] = phrases
        places = {number: place for place, number in enumerate(kept)}
        made["groundings"] = _renumbered(here["groundings"], phrase=places, region=regions)
    return made


def _renumbered(values: list[dict[str, Any]], **fields: dict[int, int]) -> list[dict[str, Any]]:
    """Structs with other numbers in fields; those go whose number is gone."""
    return [
        {**each, **{name: places[each[name]] for name, places in fields.items()}}
        for each in values
        if all(each[name] in places for name, places in fields.items())
    ]


def _moved_phrase(
    row: dict[str, Any],
    phrase: dict[str, Any],
    text: _Text,
    sentences: dict[int, int],
    models: DatasetModels,
) -> dict[str, Any]:
    number = sentences[phrase["sentence"]]
    by = text.sentences[number].char_start - row["sentences"][phrase["sentence"]]["char_start"]
    start, end = phrase["char_start"] + by, phrase["char_end"] + by
    first, last = models.token_span(text.caption, start, end)
    spans = {"char_start": start, "char_end": end, "token_start": first, "token_end": last}
    return {**phrase, "sentence": number, **spans}


def _scores(
    row: dict[str, Any],
    text: _Text,
    boxes: _Boxes,
    regions: Sequence[int],
    models: DatasetModels,
    score: Callable[[], Scores | None],
) -> tuple[Scores, np.ndarray]:
    """Scores [S, R], and which cosines of them are known; those of the dataset stay."""
    old = rows.scores(row, len(row["sentences"]))
    shape = len(text.sentences), len(boxes.regions)
    known = np.zeros(shape, dtype=bool)
    same = np.flatnonzero(text.same)
    before = np.array(text.old)[same]
    kept = np.array(boxes.same, dtype=np.int64)
    into = np.ix_(same, np.array([boxes.number[each] for each in boxes.same], dtype=np.int64))
    source = np.ix_(before, kept)
    # an earlier correction without the matcher left cosines of 0 that nobody knows
    unknown = any(not each["scored"] for each in by_hand_of(row))
    known[into] = not unknown
    if models.from_files:
        made = np.zeros(shape, dtype=np.float32)
        made[into] = old.similarity[source]
        for number, region in enumerate(regions):
            if region < 0 or not made[number, region]:
                made[number] = np.arange(shape[1]) == region
        whole = (made.max(axis=1) == 0).astype(np.float32)
        return Scores(similarity=made, image_similarity=whole), np.ones(shape, dtype=bool)
    fresh = None if known.all() else score()
    parts: dict[str, Any] = {}
    for name in _MATRICES:
        stored, now = getattr(old, name), getattr(fresh, name, None)
        if stored is not None:
            parts[name] = np.zeros(shape, dtype=np.float32) if now is None else now.copy()
            if now is None or not unknown:
                parts[name][into] = stored[source]
    whole = np.zeros(shape[0], dtype=np.float32) if fresh is None else fresh.image_similarity.copy()
    if fresh is None or not unknown:
        whole[same] = old.image_similarity[before]
    return Scores(image_similarity=whole, **parts), known | (fresh is not None)


def _sample(row: dict[str, Any], changed: dict[str, Any], text: _Text, boxes: _Boxes) -> Sample:
    return Sample(
        sample_id=row["sample_id"],
        source_path=row["source_path"],
        width=row["width"],
        height=row["height"],
        num_bytes=0,
        caption=Caption(text=text.caption, **row["caption_source"]),
        sentences=text.sentences,
        regions=boxes.regions,
        extra={name: changed[name] for name in ("phrases", "groundings") if name in changed},
    )


def _decided(
    row: dict[str, Any],
    state: State,
    text: _Text,
    regions: Sequence[int],
    rule: Sequence[Pair],
    known: np.ndarray,
) -> list[dict[str, Any]]:
    """Values of ``by_hand``: the sentences that a person touched, and those for which the rule
    would now choose otherwise than the person saw. All of them where scores are not known."""
    chosen = {pair.sentence: -1 if pair.global_wins else pair.region for pair in rule}
    shown = shown_regions(row)
    touched = {*state.pairs, *state.texts, *(each["sentence"] for each in by_hand_of(row))}
    touched |= {s for s, region in shown.items() if region in {*state.boxes, *state.deleted}}
    return [
        {
            "sentence": number,
            "region": region,
            "scored": bool(known[number, region] if region >= 0 else known[number].all()),
        }
        for number, region in enumerate(regions)
        if text.old[number] in touched or chosen[number] != region or not known.all()
    ]
