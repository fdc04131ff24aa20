"""The stage that makes false sentences."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest
from building import Counting, data_bytes, numbered, quiet, run_build
from chat_server import Server, ok

from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import RecipeError
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.stages.negatives import NegativesConfig
from glit.text.negatives import KINDS

ON = ("negatives.enabled=true", "negatives.per_sentence=3")


def built(scenes, output, *overrides: str) -> Dataset:
    run_build(
        scenes / "images", output, captions=scenes / "captions.jsonl", overrides=overrides, limit=6
    )
    return Dataset(str(output))


@pytest.fixture(scope="module")
def more(scenes, tmp_path_factory) -> Dataset:
    return built(scenes, tmp_path_factory.mktemp("more") / "dataset", *ON)


def test_the_column_and_no_other_byte_of_the_tables(scenes, tmp_path, more) -> None:
    plain = built(scenes, tmp_path / "plain")
    assert more.schema.names == [*plain.schema.names, "negatives"]
    standard = [name for name in plain.schema.names if name != "image"]
    assert more.table(standard).equals(plain.table(standard))
    before, now = (each.manifest.fingerprints for each in (plain, more))
    assert {k: v for k, v in now.items() if k not in ("negatives", "pack")} == {
        k: v for k, v in before.items() if k != "pack"
    }
    assert now["pack"] != before["pack"]
    assert not list(verify(more.path))
    for row in more:
        texts = [sentence.text for sentence in row.sentences]
        found = row.extra["negatives"]
        numbers = [each["sentence"] for each in found]
        assert numbers == sorted(numbers) and max(numbers.count(n) for n in numbers) == 3
        for each in found:
            assert each["kind"] in KINDS
            assert each["text"] not in texts and each["text"] != texts[each["sentence"]]
    assert any(each["sentence"] != 0 for each in more[0].extra["negatives"])


def test_the_choice_is_the_sample_s_and_its_sentence_s(scenes, tmp_path, more) -> None:
    """Whatever other samples there are and however they are cut into chunks."""
    run_build(
        scenes / "images", tmp_path / "part", captions=scenes / "captions.jsonl", overrides=ON,
        limit=3,
    )  # fmt: skip
    of = {row.sample_id: row.extra["negatives"] for row in more}
    for row in Dataset(str(tmp_path / "part")):
        assert row.extra["negatives"] == of[row.sample_id]


def test_values_that_cannot_be(scenes, tmp_path) -> None:
    with pytest.raises(RecipeError, match="per_sentence: found 0, want >= 1"):
        built(scenes, tmp_path / "none", "negatives.enabled=true", "negatives.per_sentence=0")


class Rewriting(Server):
    """Changes the sentence that it is asked about; what it says of some sentences is given."""

    def __init__(self, said: dict[str, list] | None = None) -> None:
        self.said = said or {}
        super().__init__()

    def answer(self, body):
        prompt = body["messages"][0]["content"]
        sentence = prompt.split("\n\n")[3]
        if answers := self.said.get(sentence[:1]):
            return answers.pop(0)
        kinds = re.findall(r'^"(\w+)":', prompt, flags=re.MULTILINE)
        wanted = body.get("response_format", {}).get("json_schema", {}).get("schema")
        assert wanted is None or wanted["required"] == kinds
        texts = {"attribute": sentence.replace("pictures", "drawings")}
        texts["negation"] = f"It is not true: {sentence}"
        texts["addition"] = f"{sentence[:-1]} beside a zebra."
        return ok(json.dumps({kind: texts[kind] for kind in kinds}))


@pytest.fixture
def images(scenes, tmp_path):
    """Four images; the caption of each is one sentence that begins with its number."""
    return numbered(scenes, tmp_path / "images", 4, lambda n, _: f"{n} pictures hang here.")


def written(images, output, server, *settings, **how):
    own = [
        "negatives.enabled=true", "negatives.backend=endpoint", "negatives.model=m",
        f"negatives.endpoint={server.url}", "negatives.retries=0", "ingest.chunk_size=2",
    ]  # fmt: skip
    return run_build(
        images, output, recipe="captions-only", captions=images.parent / "captions.jsonl",
        overrides=[*own, *settings], **how,
    )  # fmt: skip


def texts(output) -> dict[int, dict[str, str]]:
    return {
        int(row.caption.text[0]): {each["kind"]: each["text"] for each in row.extra["negatives"]}
        for row in Dataset(str(output))
    }


def test_a_language_model_writes_them_and_what_cannot_be_used_is_asked_for_again(
    images, tmp_path
) -> None:
    half = {"attribute": "1 pictures hang here!", "negation": "No pictures hang here."}
    said = {
        "0": [ok('Sure: {"attribute": "0 pictures lie here.", "negation": 7}')],
        "1": [ok(json.dumps(half)), ok('{"attribute": "I am a cow", "addition": "\\ud800"}')],
        "2": [(400, {}, {"error": "too long"})],
    }
    with Rewriting(said) as server:
        written(images, tmp_path / "out", server)
        asked = [body["messages"][0]["content"] for body in server.requests]
        warm = [body["temperature"] for body in server.requests]
    found = texts(tmp_path / "out")
    assert found[0] == {
        "attribute": "0 pictures lie here.",
        "negation": "It is not true: 0 pictures hang here.",
        "addition": "0 pictures hang here beside a zebra.",
    }
    assert found[1] == {"negation": "No pictures hang here."}
    assert found[2] == {kind: text.replace("3", "2") for kind, text in found[3].items()}
    assert sorted(warm) == [0] * 4 + [0.7] * 3
    assert sum('"negation":' in each for each in asked) == 6
    assert list(verify(str(tmp_path / "out"))) == []


def test_a_model_that_answers_no_json_or_fails_drops_the_image_and_a_retry_asks_again(
    images, tmp_path
) -> None:
    said = {"1": [ok("I cannot.")] * 2, "2": [(400, {}, {"error": "too long"})] * 2}
    with Rewriting(said) as server:
        manifest = written(images, tmp_path / "out", server, "negatives.structured=false")
        assert all("response_format" not in body for body in server.requests)
        assert manifest.counts.shipped == 2
        drops = pq.read_table(tmp_path / "out" / "drops.parquet").to_pylist()
        assert {(drop["stage"], drop["reason"]) for drop in drops} == {("negatives", "model_error")}
        messages = sorted(drop["message"] for drop in drops)
        assert "HTTP 400 (too long)" in messages[1] and "said: 'I cannot.'" in messages[0]
        said.clear()
        assert retry(str(tmp_path / "out"), LocalExecutor(), quiet()).counts.shipped == 4
    assert all(len(each) == 3 for each in texts(tmp_path / "out").values())


def test_a_stopped_build_asks_for_nothing_twice(images, tmp_path) -> None:
    with Rewriting() as server:
        written(images, tmp_path / "a", server)
        once = len(server.requests)
        with pytest.raises(KeyboardInterrupt):
            written(images, tmp_path / "b", server, executor=Counting(stop_after=4))
        written(images, tmp_path / "b", server)
        assert len(server.requests) == 2 * once
    assert data_bytes(tmp_path / "a") == data_bytes(tmp_path / "b")


def test_kinds_that_cannot_be() -> None:
    for kinds in ((), ("negation", "negation"), ("mood",)):
        with pytest.raises(RecipeError, match=r"\[negatives\] kinds: found"):
            NegativesConfig(kinds=kinds)
