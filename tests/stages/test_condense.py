"""Short captions that a language model writes from long ones."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from building import Counting, data_bytes, json_lines, numbered, quiet, run_build
from chat_server import Server, ok

from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import RecipeError, RunError, UserError
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.stages.condense import CondenseConfig
from glit.text.condensed import condensed_text, invented_words

LONG = "Two small dogs are running across a wet lawn. A man with a red hat holds the dog's leash."


@pytest.mark.parametrize(
    ("short", "invented"),
    [
        ("Two little dogs run over a wet lawn.", ["over"]),
        ("A red-hatted man holds a dog’s leash.", []),
        ("The image shows running dogs and a man who is holding a leash.", []),
        ("A happy man holds 2 cats.", ["happy", "2", "cats"]),
        ("", []),
    ],
)
def test_words_that_the_caption_does_not_have(short, invented) -> None:
    assert invented_words(short, LONG, "en") == invented


def test_words_of_other_languages() -> None:
    long = "Zwei kleine Hunde laufen über eine Wiese."
    assert invented_words("Kleiner Hund, laufend auf der Wiese", long, "de-AT") == ["laufend"]
    assert invented_words("Hunde mit einem Ball", long, "de") == ["ball"]
    assert invented_words("Hunde links auf der Wiese", long, "de") == ["links"]
    assert invented_words("dua anjing berlari", "Dua anjing berlari.", "id") == []


def test_an_answer_is_one_line_without_marks() -> None:
    assert condensed_text("“A dog.”") == condensed_text(' "A\ndog." ') == "A dog."
    assert condensed_text("“A” and “B”") == "“A” and “B”"
    assert condensed_text('"') == '"' and condensed_text("") == ""


class Condensing(Server):
    """Takes the second sentence; what it says of some captions is given, by try."""

    def __init__(self, said: dict[str, list]) -> None:
        self.said = said
        super().__init__()

    def answer(self, body):
        prompt = body["messages"][0]["content"]
        caption = prompt.split("\n\n")[-1]
        for start, answers in self.said.items():
            if caption.startswith(start):
                return answers.pop(0)
        return ok(f'<think>Well.</think>"{caption.split(". ")[1]}."')


@pytest.fixture
def images(scenes, tmp_path):
    """Six images and their captions, which begin with a number."""
    return numbered(
        scenes, tmp_path / "images", 6, lambda n, text: f"{n} pictures hang here. {text}"
    )


def build(images, out, server, *settings, **how):
    own = [
        "condense.enabled=true", f"condense.endpoint={server.url}", "condense.retries=0",
        "condense.model=m", "ingest.chunk_size=2",
    ]  # fmt: skip
    captions = images.parent / "captions.jsonl"
    return run_build(
        images, out, recipe="captions-only", captions=captions, overrides=[*own, *settings], **how
    )


def shorts(out):
    found = {}
    for row in Dataset(out):
        long, short = row.extra["captions"]
        assert (long["kind"], long["text"], short["kind"]) == ("long", row.caption.text, "short")
        found[int(row.caption.text[0])] = (short["source"], short["text"])
    return [found[number] for number in sorted(found)]


def test_what_cannot_be_used_is_asked_for_again_and_is_then_the_first_sentence(
    images, tmp_path
) -> None:
    wrong = {"error": "too long"}
    said = {
        "0": [ok("A unicorn hangs here."), ok("It hangs here.")],
        "1": [ok("A unicorn."), ok("Two unicorns.")],
        "2": [ok("here " * 26), ok("Pictures hang", "length")],
        "3": [(400, {}, wrong), ok("3 pictures.")],
        "4": [ok("I'm sorry, I cannot."), ok("4 pictures.")],
    }
    with Condensing(said) as server:
        build(images, tmp_path / "out", server)
        asked = [body["messages"][0]["content"] for body in server.requests]
        warm = [body["temperature"] for body in server.requests]
    found = shorts(tmp_path / "out")
    assert found[:5] == [
        ("condensed", "It hangs here."),
        ("first_sentence", "1 pictures hang here."),
        ("first_sentence", "2 pictures hang here."),
        ("condensed", "3 pictures."),
        ("condensed", "4 pictures."),
    ]
    assert found[5][0] == "condensed" and "think" not in found[5][1]
    assert len(asked) == 11 and sorted(warm) == [0] * 6 + [0.7] * 5
    assert all("at most 25 words" in each for each in asked)
    assert sum("Do not use these words: unicorn." in each for each in asked) == 2
    assert list(verify(str(tmp_path / "out"))) == []


def test_an_error_twice_drops_the_image_and_a_retry_asks_again(images, tmp_path) -> None:
    said = {"2": [(400, {}, {"error": "too long"})] * 2}
    with Condensing(said) as server:
        manifest = build(images, tmp_path / "out", server)
        assert manifest.counts.shipped == 5
        (drop,) = pq.read_table(tmp_path / "out" / "drops.parquet").to_pylist()
        assert (drop["stage"], drop["reason"]) == ("condense", "model_error")
        assert "400" in drop["message"]
        said.clear()
        assert retry(str(tmp_path / "out"), LocalExecutor(), quiet()).counts.shipped == 6
    assert [source for source, _ in shorts(tmp_path / "out")] == ["condensed"] * 6


def test_structured_answers(images, tmp_path) -> None:
    class Json(Server):
        def answer(self, body):
            assert body["response_format"]["type"] == "json_schema"
            return ok('{"caption": "Pictures hang here."}')

    with Json() as server:
        build(images, tmp_path / "out", server, "condense.structured=true")
    assert shorts(tmp_path / "out") == [("condensed", "Pictures hang here.")] * 6


def test_a_stopped_build_gives_the_same_bytes_and_asks_for_nothing_twice(images, tmp_path) -> None:
    with Condensing({}) as server:
        build(images, tmp_path / "a", server)
        once = len(server.requests)
        with pytest.raises(KeyboardInterrupt):
            build(images, tmp_path / "b", server, executor=Counting(stop_after=4))
        build(images, tmp_path / "b", server)
        assert len(server.requests) == 2 * once
    assert data_bytes(tmp_path / "a") == data_bytes(tmp_path / "b")


def test_images_with_a_short_caption_keep_theirs(images, tmp_path) -> None:
    path = images.parent / "captions.jsonl"
    rows = [row | {"short_caption": "Mine."} for row in json_lines(path)]
    path.write_text("\n".join(map(json.dumps, rows)))
    with Condensing({}) as server:
        build(images, tmp_path / "out", server)
        assert server.requests == []
    assert shorts(tmp_path / "out") == [("provided", "Mine.")] * 6


def test_a_server_that_refuses_or_fails_stops_the_build(images, tmp_path) -> None:
    for status, error in ((401, UserError), (503, RunError)):
        answers = {"": [(status, {}, {})] * 20}
        with Condensing(answers) as server, pytest.raises(error, match="condense endpoint .*HTTP"):
            build(images, tmp_path / str(status), server)


def test_values_that_cannot_be() -> None:
    for key, value in (("max_words", 0), ("retries", -1), ("batch_size", 0)):
        with pytest.raises(RecipeError, match=rf"\[condense\] {key}: found {value}"):
            CondenseConfig(**{key: value})
