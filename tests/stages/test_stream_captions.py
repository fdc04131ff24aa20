"""Captions asked for one by one, answered in any order, by an engine that is never waited out."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from glit.data.records import Drop, Sample
from glit.errors import RunError
from glit.models.backends.captioners.async_captioner import ContinuousBase
from glit.models.backends.protocols import RawCaption
from glit.stages.caption import CaptionConfig, WriteCaptions
from glit.text.sentences import make_splitter

GOOD = "A red circle stands on grass. A wall is behind it."
REFUSAL = "I'm sorry, I cannot."


class Pictures:
    """As many images as asked for, of which "gone" cannot be read and "once" no second time."""

    def __init__(self):
        self.loaded_again = []

    def each(self, samples):
        for sample in samples:
            yield self._pixels(sample) if sample.source_path != "gone" else self.gone()

    def load(self, sample):
        self.loaded_again.append(sample.width)
        return self._pixels(sample) if sample.source_path != "once" else self.gone()

    def gone(self):
        return Drop(reason="unreadable", message="gone")

    def _pixels(self, sample):
        return np.full((4, 4, 3), sample.width, np.uint8)


class Engine(ContinuousBase):
    """Answers by image and attempt, from three threads, each after a while of its own."""

    def __init__(self, script, most=4):
        super().__init__(most)
        self.script, self.asked, self.at_work, self.failed = script, [], set(), []
        self._threads = ThreadPoolExecutor(3)
        self._waits = random.Random(0)

    def _start(self, image, seed, temperature):
        number = int(image[0, 0, 0])
        self.asked.append((number, temperature))
        self.at_work.add(number)
        return self._threads.submit(self._answer, number, temperature, self._waits.random() / 100)

    def _answer(self, number, temperature, wait):
        time.sleep(wait)
        answer = self.script.get(number, GOOD)
        try:
            if not isinstance(answer, str):
                answer = answer(self, temperature)
        except ValueError:
            self.failed.append(number)
            raise
        finally:
            self.at_work.discard(number)
        return RawCaption(text=answer, cut=False)


def run(script, num=12, paths=None):
    outcomes, engine, pictures = begin(script, num, paths)
    return list(outcomes), engine, pictures


def begin(script, num=12, paths=None):
    samples = [
        Sample(
            sample_id=f"{n:064x}", source_path=(paths or {}).get(n, "x"), width=n, height=4, num_bytes=1
        )
        for n in range(num)
    ]  # fmt: skip
    engine, pictures = Engine(script), Pictures()
    stage = WriteCaptions(
        CaptionConfig(model="m"), engine, revision="r", prompts={"": "p"},
        splitter=make_splitter("sentencex", "en"), language="en",
    )  # fmt: skip
    return stage.process(samples, pictures), engine, pictures


def numbers(outcomes):
    return [
        outcome.width if isinstance(outcome, Sample) else outcome.reason for outcome in outcomes
    ]


def test_outcomes_are_in_the_order_of_the_samples():
    outcomes, engine, pictures = run({}, num=40, paths={3: "gone"})
    assert numbers(outcomes) == [0, 1, 2, "unreadable", *range(4, 40)]
    assert sorted(engine.asked) == [(n, 0.0) for n in range(40) if n != 3]
    assert pictures.loaded_again == []


def test_a_bad_caption_is_asked_for_again_among_the_others():
    def second(engine, temperature):
        return GOOD if temperature else REFUSAL

    outcomes, engine, pictures = run({1: second, 2: REFUSAL}, num=30)
    assert numbers(outcomes) == [0, 1, "refusal", *range(3, 30)]
    assert outcomes[2].attempt == 1
    assert sorted(pictures.loaded_again) == [1, 2]
    assert engine.asked.index((1, 0.7)) < len(engine.asked) - 5, "the others were waited for"


def test_outcomes_are_given_while_others_are_still_at_work():
    seen = threading.Event()

    def late(engine, temperature):
        assert seen.wait(20), "nothing was given before it"
        return GOOD

    outcomes, _, _ = begin({3: late}, num=4)
    assert numbers([next(outcomes) for _ in range(3)]) == [0, 1, 2]
    seen.set()
    assert numbers(outcomes) == [3]


def test_what_is_asked_for_alone_has_its_second_try():
    def odd(engine, temperature):
        if len([number for number, _ in engine.asked if number == 1]) == 1:
            raise ValueError("once")
        return GOOD if temperature else REFUSAL

    outcomes, engine, _ = run({1: odd}, num=3)
    assert numbers(outcomes) == [0, 1, 2]
    assert [asked for asked in engine.asked if asked[0] == 1] == [(1, 0.0), (1, 0.0), (1, 0.7)]


def test_an_image_that_cannot_be_read_a_second_time_is_a_drop():
    outcomes, _, _ = run({1: REFUSAL}, num=3, paths={1: "once"})
    assert numbers(outcomes) == [0, "unreadable", 2]


def test_one_that_breaks_the_engine_takes_no_other_with_it():
    """While it is at work all others fail; asked for alone, only it does."""

    def breaks(engine, temperature):
        while not engine.failed and engine.at_work - {2}:
            time.sleep(0.001)  # until another has failed beside it
        raise ValueError("odd image")

    def fails_beside_it(engine, temperature):
        if 2 in engine.at_work:
            raise ValueError("the engine broke")
        return GOOD

    script = dict.fromkeys(range(6), fails_beside_it) | {2: breaks}
    samples, engine, _ = run(script, num=6)
    assert numbers(samples) == [0, 1, "captioner_error", 3, 4, 5]
    assert "odd image" in samples[2].message
    assert len(engine.failed) > 2, "none failed beside it"


@pytest.mark.parametrize("error", [RunError("the server is gone"), RuntimeError("CUDA error: x")])
def test_errors_of_the_run_end_it(error):
    def fail(engine, temperature):
        raise error

    with pytest.raises(type(error), match=str(error)):
        run({5: fail})


def test_no_more_are_at_work_than_the_engine_takes():
    started = []

    class Slow(ContinuousBase):
        def _start(self, image, seed, temperature):
            started.append(Future())
            return started[-1]

    slow, blank = Slow(2), np.zeros((4, 4, 3), np.uint8)
    waiting = threading.Thread(
        target=lambda: [slow.submit(blank, seed=0, temperature=0.0) for _ in range(3)],
        daemon=True,
    )
    waiting.start()
    deadline = time.monotonic() + 20
    while len(started) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    waiting.join(0.05)
    assert len(started) == 2 and waiting.is_alive()
    started[0].set_result(None)
    waiting.join(20)
    assert len(started) == 3
