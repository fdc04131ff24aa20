"""Captions of several kinds that one model writes."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from building import Counting, run_build
from chat_server import Server, ok

from glit.data.records import Drop, Sample
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import RecipeError
from glit.images import decode
from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.protocols import RawCaption
from glit.models.weights import resolve
from glit.pipeline.planning.prompts import further_prompts, read_prompt
from glit.pipeline.planning.recipe import load_recipe
from glit.recipes.resources import default_prompt
from glit.stages.caption import CaptionConfig, WriteCaptions
from glit.text.sentences import make_splitter

KINDS = 'caption.kinds=["long","short"]'


@pytest.fixture(scope="module")
def images(scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("few") / "images"
    folder.mkdir()
    for path in sorted((scenes / "images").iterdir())[:2]:
        shutil.copy(path, folder)
    return folder


@pytest.mark.slow
def test_a_model_writes_both_and_a_stopped_build_gives_the_same_bytes(images, tmp_path):
    settings = [KINDS, "ingest.chunk_size=1", "caption.max_tokens=60"]
    whole = run_build(images, tmp_path / "a", overrides=settings)
    plain = run_build(images, tmp_path / "plain", overrides=settings[1:])
    assert whole.counts.shipped == plain.counts.shipped == 2
    rows = {row.sample_id: row for row in Dataset(tmp_path / "a")}
    for before in Dataset(tmp_path / "plain"):
        row = rows[before.sample_id]
        assert row.caption == before.caption and row.sentences == before.sentences
        long, short = row.extra["captions"]
        assert long == {"kind": "long", "text": row.caption.text, "source": "transformers"}
        assert (short["kind"], short["source"]) == ("short", "transformers") and short["text"]
    assert whole.further_prompts == further_prompts(CaptionConfig(kinds=("long", "short")))
    assert not plain.further_prompts
    assert list(verify(str(tmp_path / "a"))) == []
    with pytest.raises(KeyboardInterrupt):
        run_build(images, tmp_path / "b", overrides=settings, executor=Counting(stop_after=3))
    assert run_build(images, tmp_path / "b", overrides=settings).files == whole.files


def test_a_server_writes_both_by_their_prompts(images, tmp_path):
    class Describing(Server):
        def answer(self, body):
            picture, text = body["messages"][0]["content"]
            assert picture["type"] == "image_url"
            short = text["text"].startswith("Describe this image in one short sentence")
            return ok("A wall." if short else "A wall of bricks. It is red and old.")

    with Describing() as server:
        settings = ["caption.backend=endpoint", "caption.model=m", KINDS]
        run_build(
            images, tmp_path / "out", recipe="captions-only",
            overrides=[*settings, f"caption.endpoint={server.url}"],
        )  # fmt: skip
        assert len(server.requests) == 4
    for row in Dataset(tmp_path / "out"):
        assert row.extra["captions"] == [
            {"kind": "long", "text": row.caption.text, "source": "endpoint"},
            {"kind": "short", "text": "A wall.", "source": "endpoint"},
        ]


def test_the_same_model_with_another_prompt(images):
    pixels = [decode(path.read_bytes()) for path in sorted(images.iterdir())[:2]]
    config = CaptionConfig(max_tokens=40)

    def made(prompt):
        return CAPTIONERS["transformers"].make(config, resolve("mini-captioner"), prompt)

    def said(captioner):
        return [each.text for each in captioner.caption(pixels, seeds=[0, 0], temperature=0.0)]

    first, other = made("Describe it."), "Name the shapes."
    before = said(first)
    assert said(first.asking(other)) == said(made(other))
    assert said(first) == before


class Engine:
    """Answers at once: by prompt and image."""

    def __init__(self, prompt, answers):
        self.prompt, self.answers = prompt, answers

    def asking(self, prompt):
        return type(self)(prompt, self.answers)

    def submit(self, image, *, seed, temperature):
        from concurrent.futures import Future

        answer = Future()
        text = self.answers[self.prompt].get(int(image[0, 0, 0]), f"{self.prompt} of it.")
        answer.set_result(RawCaption(text=text, cut=False))
        return answer


class Pictures:
    def each(self, samples):
        return (self.load(sample) for sample in samples)

    def load(self, sample):
        return np.full((4, 4, 3), sample.width, np.uint8)


def written(engine, answers):
    """A stage that asks for a long and a short caption by the prompts of the answers."""
    first, second = answers
    return WriteCaptions(
        CaptionConfig(backend="vllm", kinds=("long", "short")), engine(first, answers),
        prompts={"": first, "short": second}, revision="",
        splitter=make_splitter("sentencex", "en"), language="en",
    )  # fmt: skip


def three_samples():
    return [
        Sample(sample_id=f"{n:064x}", source_path=f"{n}", width=n, height=4, num_bytes=1)
        for n in (1, 2, 3)
    ]


def test_an_image_without_one_of_the_kinds_is_dropped():
    answers = {"Long": {2: ""}, "Short": {3: "I'm sorry, I cannot."}}
    first, second, third = written(Engine, answers).process(three_samples(), Pictures())
    assert first.caption.text == "Long of it."
    assert first.extra["captions"] == [
        {"kind": "long", "text": "Long of it.", "source": "vllm"},
        {"kind": "short", "text": "Short of it.", "source": "vllm"},
    ]
    assert isinstance(second, Drop) and second.reason == "empty_caption"
    assert isinstance(third, Drop) and third.reason == "refusal"
    assert third.message.startswith("short caption: the captioner said")


def test_an_image_is_decoded_once_and_asked_about_for_all_kinds_before_the_next():
    asked = []

    class Noting(Engine):
        def submit(self, image, **how):
            asked.append((int(image[0, 0, 0]), self.prompt))
            return super().submit(image, **how)

    class Counted(Pictures):
        loads = 0

        def load(self, sample):
            self.loads += 1
            return super().load(sample)

    answers = {"Long": {2: ""}, "Short": {}}
    pictures = Counted()
    list(written(Noting, answers).process(three_samples(), pictures))
    first = [(n, prompt) for n in (1, 2, 3) for prompt in answers]
    assert list(dict.fromkeys(asked)) == first and asked.count((2, "Long")) == 2
    assert pictures.loads == 4  # once an image, and for the second try


def test_prompts_of_kinds(tmp_path):
    own = tmp_path / "mine.txt"
    own.write_text("Tell me all.")
    long, short = default_prompt(), default_prompt().with_name("short.txt")

    def prompts(*kinds, **values):
        config = CaptionConfig(kinds=kinds, **values)
        return read_prompt(config), further_prompts(config)

    describe, brief = long.read_text().strip(), short.read_text().strip()
    assert prompts() == (describe, {})
    assert prompts("long", "short") == (describe, {"short": brief})
    assert prompts("short", "long") == (brief, {"long": describe})
    assert prompts("long", "short", prompt=str(own)) == ("Tell me all.", {"short": brief})
    with pytest.raises(RecipeError, match=r"no prompt for 'web'; write it as web\.txt beside"):
        prompts("long", "web", prompt=str(own))
    (tmp_path / "web.txt").write_text("As a search.")
    assert prompts("long", "web", prompt=str(own))[1] == {"web": "As a search."}
    assert prompts("caption-1", backend="provided") == (describe, {})
    with pytest.raises(RecipeError, match="'sidecar' has one caption an image"):
        load_recipe("mini", overrides=[KINDS, "caption.backend=sidecar"])
