from __future__ import annotations

import numpy as np
import pytest
from building import json_lines

from glit.data.records import Drop, Sample, Token
from glit.errors import RecipeError, UserError
from glit.models.backends.protocols import RawCaption
from glit.stages.caption import (
    CaptionConfig,
    WriteCaptions,
    trim_to_sentence,
)
from glit.text.faults import caption_fault, is_looping
from glit.text.sentences import make_splitter


class Scripted:
    """A captioner that answers by image: the first try, then the second."""

    def __init__(self, script):
        self.script = script
        self.calls = []

    def caption(self, images, *, seeds, temperature):
        numbers = [int(image[0, 0, 0]) for image in images]
        self.calls.append((numbers, temperature))
        answers = [self.script[number][temperature > 0] for number in numbers]
        if any(isinstance(answer, Exception) for answer in answers):
            raise next(a for a in answers if isinstance(a, Exception))
        return answers


class Pictures:
    def each(self, samples):
        for sample in samples:
            if sample.source_path == "gone":
                yield Drop(reason="unreadable", message="gone")
            else:
                yield self.load(sample)

    def load(self, sample):
        return np.full((4, 4, 3), sample.width, np.uint8)


def said(text, cut=False):
    return RawCaption(text=text, cut=cut)


GOOD = said("A red circle stands on grass. A wall is behind it.")
LOOP = said("the cat and the dog and " * 12)


def run(script, paths=None, **config):
    samples = [
        Sample(
            sample_id=f"{n:064x}",
            source_path=(paths or {}).get(n, "x"),
            width=n,
            height=4,
            num_bytes=1,
        )
        for n in script
    ]
    captioner = Scripted(script)
    stage = WriteCaptions(
        CaptionConfig(batch_size=4, model="m", **config), captioner, revision="r", prompts={"": "p"},
        splitter=make_splitter("sentencex", "en"), language="en",
    )  # fmt: skip
    return list(stage.process(samples, Pictures())), captioner


def test_good_captions_pass_with_their_provenance():
    (sample,), captioner = run({1: (GOOD, None)})
    assert sample.caption.text == GOOD.text
    assert (sample.caption.model, sample.caption.revision, sample.caption.trimmed) == (
        "m",
        "r",
        False,
    )
    assert captioner.calls == [([1], 0.0)]


def test_a_bad_caption_gets_one_more_try_with_another_seed():
    outcomes, captioner = run(
        {1: (GOOD, None), 2: (said("I'm sorry, I cannot."), GOOD), 3: (LOOP, GOOD)}
    )
    assert all(isinstance(outcome, Sample) for outcome in outcomes)
    assert captioner.calls == [([1, 2, 3], 0.0), ([2, 3], 0.7)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(said("  "), "empty_caption"), (said("Sorry, no."), "refusal"), (LOOP, "looping")],
)
def test_a_caption_bad_twice_is_a_drop_with_its_reason(answer, reason):
    (drop,), _ = run({1: (answer, answer)})
    assert (drop.reason, drop.attempt) == (reason, 1)


def test_thoughts_are_left_out_and_a_thought_alone_is_a_drop():
    thought = "<think>A dog? A cat! </think>\n\n"
    text = thought + GOOD.text
    tokens = (Token(char_end=len(thought), logprob=-1.0), Token(char_end=len(text), logprob=-2.0))
    (sample,), _ = run({1: (RawCaption(text=text, cut=False, tokens=tokens), None)})
    assert sample.caption.text == GOOD.text
    assert sample.caption.tokens == (Token(char_end=len(GOOD.text), logprob=-2.0),)
    (sample,), _ = run({1: (said("A dog? A cat! </think>" + GOOD.text), None)})
    assert sample.caption.text == GOOD.text
    (drop,), _ = run({1: (said("<think>Let me look at it", cut=True),) * 2})
    assert (drop.reason, drop.message) == ("empty_caption", "the captioner only thought")


def test_of_structured_answers_the_caption_is_kept():
    wanted = {"structured": True, "backend": "endpoint"}
    whole = said('<think>Hm</think>{"caption": "A \\"red\\" dog. It\\u2019s old."}')
    (sample,), _ = run({1: (whole, None)}, **wanted)
    assert sample.caption.text == 'A "red" dog. It’s old.'
    (sample,), _ = run({1: (said('{"caption": "A dog. A ca', cut=True), None)}, **wanted)
    assert (sample.caption.text, sample.caption.trimmed) == ("A dog.", True)
    for text, reason in (("A dog.", "captioner_error"), ('{"caption": ""}', "empty_caption")):
        (drop,), _ = run({1: (said(text),) * 2}, **wanted)
        assert drop.reason == reason
    (drop,), _ = run({1: (said('{"caption": "A \\ud83d dog."}'), None)}, **wanted)
    assert "half a character" in drop.message
    with pytest.raises(RecipeError, match="cannot be made to answer with JSON"):
        CaptionConfig(structured=True)


def test_half_a_character_is_a_drop():
    (drop,), _ = run({1: (said("A red \ud83d circle."), None)})
    assert (drop.reason, "half a character" in drop.message) == ("captioner_error", True)


def test_one_image_that_breaks_the_captioner_takes_no_other_with_it():
    broken = ValueError("odd image")
    outcomes, _ = run({1: (GOOD, None), 2: (broken, None), 3: (GOOD, None)})
    assert [type(outcome) for outcome in outcomes] == [Sample, Drop, Sample]
    assert (outcomes[1].reason, outcomes[1].message) == ("captioner_error", "ValueError: odd image")


def test_images_that_are_gone_stay_in_their_place():
    outcomes, _ = run({1: (GOOD, None), 2: (GOOD, None), 3: (GOOD, None)}, paths={2: "gone"})
    assert [getattr(outcome, "reason", "") for outcome in outcomes] == ["", "unreadable", ""]


def test_a_cut_caption_ends_at_its_last_whole_sentence_and_says_so():
    (sample,), _ = run({1: (said("A dog runs. A cat sl", cut=True), None)})
    assert (sample.caption.text, sample.caption.trimmed) == ("A dog runs.", True)


def test_a_caption_cut_in_its_first_sentence_is_none():
    splitter = make_splitter("sentencex", "en")
    assert trim_to_sentence("A cat sl", splitter) == ""
    assert trim_to_sentence("- a cat\n- a dog\n- a gr", splitter) == "- a cat\n- a dog"
    (drop,), _ = run({1: (said("A cat sl", cut=True),) * 2})
    assert (drop.reason, drop.attempt) == ("empty_caption", 1)
    assert "raise caption.max_tokens" in drop.message


@pytest.mark.parametrize(
    "text",
    ["I cannot describe this image.", "I’m sorry, but", "As an AI model", "Unfortunately, I can't"],
)
def test_refusals(text):
    assert caption_fault(text) == "refusal"


def test_ordinary_captions_are_no_refusals_and_no_loops(scenes):

    rows = json_lines(scenes / "captions.jsonl")
    rows += json_lines("tests/files/captions.jsonl")
    assert [row["caption"] for row in rows if caption_fault(row["caption"])] == []


def test_endless_words_loop():
    assert is_looping("na" * 150)
    assert not is_looping("short and sweet " * 3)


def test_writing_without_spaces_is_no_loop_unless_it_repeats():
    varied = "".join(chr(0x4E00 + (index * 37) % 5000) for index in range(280))
    assert caption_fault(varied, language="zh") is None
    assert caption_fault("猫狗" * 150) == "looping"


@pytest.mark.parametrize(
    ("key", "value"), [("retries", -1), ("timeout_s", float("nan")), ("timeout_s", 0.0)]
)
def test_options_of_the_endpoint_that_cannot_be(key, value):
    with pytest.raises(RecipeError, match=rf"\[caption\] {key}: found"):
        CaptionConfig(**{key: value})


def test_what_answers_carry_is_cut_and_what_is_lost_is_a_drop():
    (sample,), _ = run({1: (said(f"<|own|>{GOOD.text}</s>"), None)})
    assert sample.caption.text == GOOD.text
    (drop,), captioner = run({1: (said("A <unk> dog runs."),) * 2})
    assert (drop.reason, drop.attempt) == ("garbled_caption", 1)
    assert len(captioner.calls) == 2
    (drop,), _ = run({1: (said(GOOD.text + "\n" * 40),) * 2})
    assert drop.reason == "looping"


def test_probabilities_are_those_of_the_caption_not_of_a_thought():
    thought = f"<think>{GOOD.text}</think>"
    tokens = (
        Token(char_end=len(thought), logprob=-9.0),
        Token(char_end=len(thought) + len(GOOD.text), logprob=-1.0),
    )
    raw = RawCaption(text=thought + GOOD.text, cut=False, tokens=tokens)
    (sample,), _ = run({1: (raw, None)})
    assert sample.caption.tokens == (Token(char_end=len(GOOD.text), logprob=-1.0),)


def test_a_model_that_sees_no_image_stops_the_build():
    unseen = said("I don't see any image attached.")
    with pytest.raises(UserError, match="its first 3 answers say that no image came"):
        run(dict.fromkeys(range(1, 5), (unseen, unseen)))
    with pytest.raises(UserError, match="its first 3 answers say that no image came"):
        wanted = {"structured": True, "backend": "endpoint"}
        run(dict.fromkeys(range(1, 5), (unseen, unseen)), **wanted)
    outcomes, _ = run({1: (unseen, unseen), 2: (GOOD, None), 3: (unseen,) * 2, 4: (unseen,) * 2})
    assert [getattr(each, "reason", "") for each in outcomes] == [
        "refusal", "", "refusal", "refusal",
    ]  # fmt: skip
