"""``glit pairs judge``: ask a vision-language model about every pair, and keep what it says.

The model sees the picture with the box drawn in and the other regions numbered, and beside it what
is in the box. The order of the answers and the side of the crop differ from item to item, and some
items are asked about twice, so that a model that answers by place, or at random, is noticed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from glit.data.records import DropError
from glit.dataset.certificate import Items, items_of
from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.errors import InputError, RunError
from glit.images import Pixels
from glit.models.backends.protocols import ContinuousCaptioner, RawCaption
from glit.text.answers import clean_answer
from glit.text.structured import Keys, texts_in_json
from glit.verdicts import lines
from glit.verdicts.judged import JUDGED, Judged, Judging, Opinion, read_judged
from glit.verdicts.record import PARTS, AuditVerdict, Claim, Kind

_LETTERS, _NONE = "ABCD", "none"
_AGAIN_ONE_IN = 20
"""Number of items, of which about one is asked about twice."""
_AT_WORK = 64
_SIDE, _GAP = 672, 12
"""Longest side of each picture, and the gap between the two, in pixels."""
LONGEST_SIDE = 2 * _SIDE + _GAP
"""Longest side of what a model sees, pixels."""
_RED, _GREY = (220, 30, 30), (250, 250, 250)
_CHOICES: dict[Kind, tuple[tuple[AuditVerdict, str], ...]] = {
    "pairs": (
        ("right", "the sentence describes what is in the red box"),
        ("wrong", "the sentence describes something in the picture that is not in the red box"),
        ("false", "the sentence is not true of the picture"),
        ("unsure", "it cannot be told"),
    ),
    "sentences": (
        ("right", "all of the sentence is true of the picture"),
        ("false", "some of the sentence is not true of the picture"),
        ("unsure", "it cannot be told"),
    ),
    "phrases": (
        ("right", "the red box holds what the words name"),
        ("wrong", "the red box holds something else, or only a part of it"),
        ("unsure", "it cannot be told"),
    ),
    "boxes": (
        ("right", "the red box holds what the words name, and all of it"),
        ("wrong", "the red box holds something else, or only a part of it"),
        ("unsure", "it cannot be told"),
    ),
}
PROMPT = """\
{pictures}
{what}: "{text}"
Which is true?
{choices}
Answer with JSON: "answer" is the letter; "word" is the false word, if one is false, else "none"; \
"region" is the number of the box that the text is about, if it is not the red one, else "none"."""
_LETTER = re.compile(r"\W*([A-D])(?:\s*[.:),*\]]|\s+[-–—]\s|\W*(?:\n|$))")
"""A letter by itself: an answer may begin with the article "A"."""
_LONGEST_WORD = 60
"""Characters of the false word that a judge names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTally:
    """The counts of a run of the judge."""

    judged: Judged
    asked: int
    """In this run."""
    failed: int
    """Questions without a usable answer; they are asked again when the command is run again."""


def judge(
    dataset: Dataset,
    output: Path,
    *,
    claim: Claim,
    model: ContinuousCaptioner,
    judging: Judging,
    structured: bool,
    most: int | None = None,
    report: Callable[[int], None] = lambda number: None,
) -> JudgeTally:
    """Ask a model about all items, or about the first ones of the draw; go on where it stopped.

    Args:
        dataset: a finished one.
        output: the file of opinions, appended to.
        claim: which items, and the seed of the draw.
        model: sees pictures.
        judging: what the file's first line says.
        structured: whether the model is made to answer with JSON.
        most: ask about no more than so many items.
        report: called with 1 for every answer.

    Raises:
        InputError: the file is of another dataset, model or prompt; it cannot be written;
            another process writes into it.
        RunError: the model answers always the same, or gives no usable answer.
    """
    items = items_of(dataset, claim)
    order = items.population.order(seed=claim.seed, num=min(most or len(items), len(items)))
    if (most or len(items)) >= len(items):
        order = np.lexsort((items.second, items.first, items.row))  # the order of the files
    asked = failed = 0
    by = f"model:{judging.model}"
    if not output.exists():
        lines.begin(output, JUDGED.header(judging))
    with lines.appending(output, wait=False) as append:
        done = _held(output, judging)
        for question, answer in _answers(
            _questions(dataset, items, order, done), model, structured=structured
        ):
            report(1)
            opinion = None if answer is None else _opinion(question, answer, by)
            if opinion is None:
                failed += 1
                continue
            asked += 1
            append(lines.line_of(opinion))
    if failed and not asked:
        raise RunError(
            f"{judging.model}: gave no usable answer to {failed} questions; it has to answer with "
            "JSON about two pictures: try caption.structured=true, or a larger caption.max_tokens"
        )
    judged = read_judged(output)
    if judged.fault:
        raise RunError(f"{output}: {judged.fault}; it cannot judge these {claim.of}")
    return JudgeTally(judged=judged, asked=asked, failed=failed)


def _held(output: Path, judging: Judging) -> Judged:
    """Return the opinions that the file holds already."""
    found = read_judged(output)
    if found.judging != judging:
        raise InputError(
            f"{output}: holds what another model, or another prompt, said, or of another dataset; "
            "take another file"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A question about an item."""

    kind: Kind
    row: Row
    first: int
    second: int
    again: bool
    order: tuple[int, ...]
    """The choices, in the order of the letters."""
    crop_first: bool
    others: tuple[int, ...]
    """Regions with a number in the picture, from 1."""

    @property
    def text(self) -> tuple[str, str]:
        """The kind of text that is asked about, and the text."""
        if self.kind == "boxes":
            return "Words", self.row.regions[self.first].label
        if self.kind == "phrases":
            return "Words", self.row.extra["phrases"][self.first]["text"]
        return "Sentence", self.row.sentences[self.first].text

    @property
    def region(self) -> int | None:
        """The region in the red box."""
        if self.kind == "sentences":
            return None
        return self.first if self.kind == "boxes" else self.second

    @property
    def prompt(self) -> str:
        """All of the words."""
        choices = _CHOICES[self.kind]
        what, text = self.text
        sides = ("left", "right") if self.crop_first else ("right", "left")
        pictures = (
            "Look at the picture."
            if self.region is None
            else f"The {sides[1]} picture has a red box; the {sides[0]} one shows what is in it."
        )
        answers = [f"{_LETTERS[n]}: {choices[at][1]}" for n, at in enumerate(self.order)]
        return PROMPT.format(
            pictures=pictures, what=what, text=text.replace('"', "'"), choices="\n".join(answers)
        )

    @property
    def keys(self) -> Keys:
        """The keys of the answer, and what may stand under each."""
        numbers = [str(number) for number in range(1, len(self.others) + 1)]
        return {
            "answer": _LETTERS[: len(self.order)],
            "word": _LONGEST_WORD,
            "region": [_NONE, *numbers],
        }

    def picture(self) -> Pixels:
        """The picture with the box drawn in, and what is in the box."""
        pixels = self.row.pixels()
        whole = Image.fromarray(pixels)
        scale = min(1.0, _SIDE / max(whole.size))
        whole = whole.resize([max(1, round(side * scale)) for side in whole.size])
        if self.region is None:
            return np.asarray(whole)
        draw = ImageDraw.Draw(whole)
        for number, each in enumerate(self.others, start=1):
            box = [value * scale for value in self.row.regions[each].box.xyxy]
            draw.rectangle(box, outline=_GREY)
            draw.text((box[0] + 2, box[1] + 1), str(number), fill=_GREY)
        box = self.row.regions[self.region].box.xyxy
        draw.rectangle([value * scale for value in box], outline=_RED, width=3)
        x0, y0, x1, y1 = (
            int(value) for value in (box[0], box[1], -(-box[2] // 1), -(-box[3] // 1))
        )
        crop = Image.fromarray(pixels[max(0, y0) : max(y1, y0 + 1), max(0, x0) : max(x1, x0 + 1)])
        grow = min(_SIDE / max(crop.size), whole.height / crop.height, 8.0)
        crop = crop.resize([max(1, round(side * grow)) for side in crop.size])
        both = (crop, whole) if self.crop_first else (whole, crop)
        canvas = Image.new(
            "RGB", (crop.width + whole.width + _GAP, max(crop.height, whole.height)), _GREY
        )
        canvas.paste(both[0], (0, 0))
        canvas.paste(both[1], (both[0].width + _GAP, 0))
        return np.asarray(canvas)


def _questions(dataset: Dataset, items: Items, order: np.ndarray, done: Judged) -> Iterator[_Asked]:
    """Every question that has no answer yet."""
    for at in order.tolist():
        row_number, first, second = (
            int(each[at]) for each in (items.row, items.first, items.second)
        )
        key = int(items.population.key[at])
        row = dataset[row_number]
        name = (row.sample_id, (first, second)[: len(PARTS[items.of])])
        for again in (False, True)[: 1 + (key % _AGAIN_ONE_IN == 0)]:
            if name in (done.again if again else done.of):
                continue
            draw = np.random.default_rng([key & 0xFFFFFFFF, key >> 32, again])
            shown = first if items.of == "boxes" else second
            others = [n for n in range(len(row.regions)) if n != shown][:9]
            yield _Asked(
                kind=items.of, row=row, first=first, second=second, again=again,
                order=tuple(draw.permutation(len(_CHOICES[items.of])).tolist()),
                crop_first=bool(draw.integers(2)), others=tuple(others),
            )  # fmt: skip


def _answers(
    questions: Iterator[_Asked], model: ContinuousCaptioner, *, structured: bool
) -> Iterator[tuple[_Asked, RawCaption | None]]:
    """Every question with its answer, as they come; None where the model has none."""
    waiting: dict[Future[RawCaption], _Asked] = {}
    try:
        for question in questions:
            asking = model.asking(question.prompt, question.keys if structured else ())
            waiting[asking.submit(question.picture(), seed=0, temperature=0.0)] = question
            if len(waiting) >= _AT_WORK:
                yield from _done(waiting)
        while waiting:
            yield from _done(waiting)
    finally:
        for each in waiting:
            each.cancel()


def _done(
    waiting: dict[Future[RawCaption], _Asked],
) -> Iterator[tuple[_Asked, RawCaption | None]]:
    for each in wait(waiting, return_when=FIRST_COMPLETED).done:
        question = waiting.pop(each)
        try:
            yield question, each.result()
        except DropError:
            yield question, None


def _opinion(question: _Asked, answer: RawCaption, by: str) -> Opinion | None:
    """Return the opinion that an answer gives; None if it has no letter."""
    said = texts_in_json(answer.text)
    text = said.get("answer", "" if said else clean_answer(answer.text).text).strip()
    found = _LETTER.match(text)
    choices = _CHOICES[question.kind]
    if found is None or (number := _LETTERS.index(found[1])) >= len(choices):
        return None
    verdict = choices[question.order[number]][0]
    place = (question.first, question.second)
    named = dict(zip(PARTS[question.kind], place, strict=False))
    region = said.get("region", "").strip()
    is_number = region.isascii() and region.isdigit() and 1 <= int(region) <= len(question.others)
    return Opinion(
        sample_id=question.row.sample_id, sentence=named.get("sentence"),
        phrase=named.get("phrase"), region=named.get("region"), verdict=verdict, by=by,
        letter=found[1], word=_false_word(said) if verdict == "false" else "",
        right_region=question.others[int(region) - 1] if verdict == "wrong" and is_number else None,
        again=question.again,
    )  # fmt: skip


def _false_word(said: Mapping[str, str]) -> str:
    word = said.get("word", "").strip()[:_LONGEST_WORD]
    return "" if word.lower() == _NONE else word


def prompt_sha256() -> str:
    """Identity of the questions."""
    return hashlib.sha256(repr((PROMPT, _CHOICES, _SIDE)).encode()).hexdigest()
