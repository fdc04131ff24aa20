"""Captioner backends: real engines on the mini checkpoint."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from building import run_build, tiny_clip

from glit.dataset.reader import Dataset
from glit.images import decode
from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.protocols import RawCaption
from glit.models.weights import resolve
from glit.recipes.resources import mini_model
from glit.stages.caption import CaptionConfig
from glit.verdicts.judged import read_judged

KINDS = 'caption.kinds=["long","short"]'


@pytest.fixture(scope="module")
def pictures(scenes) -> list[np.ndarray]:
    return [decode(path.read_bytes()) for path in sorted((scenes / "images").iterdir())[:8]]


@pytest.fixture(scope="module")
def captioner():
    config = CaptionConfig(max_tokens=300)
    return CAPTIONERS["transformers"].make(config, resolve("mini-captioner"), "Describe it.")


@pytest.fixture(scope="module")
def answers(captioner, pictures) -> list[RawCaption]:
    return captioner.caption(pictures, seeds=[0] * 8, temperature=0.0)


@pytest.fixture(scope="module")
def captions(answers) -> list[str]:
    return [answer.text for answer in answers]


def test_transformers_captions_are_prose(captions):
    assert all(caption.strip().endswith(".") and len(caption.split()) > 10 for caption in captions)
    assert len(set(captions)) > 4


def test_batch_invariance(captioner, pictures, captions):
    alone = [captioner.caption([p], seeds=[0], temperature=0.0)[0].text for p in pictures[:3]]
    assert alone == captions[:3]


def test_a_short_limit_is_reported_as_a_cut(pictures):
    config = CaptionConfig(max_tokens=5)
    made = CAPTIONERS["transformers"].make(config, resolve("mini-captioner"), "Describe it.")
    assert [c.cut for c in made.caption(pictures[:2], seeds=[0, 0], temperature=0.0)] == [True] * 2


def test_seeds_decide_a_sampled_caption(captioner, pictures):
    def say(seed):
        return captioner.caption(pictures[:2], seeds=[seed, seed + 1], temperature=1.5)

    assert say(1) == say(1)


@pytest.fixture(scope="module")
def by_vllm(scenes, tmp_path_factory, forks_with_vllm) -> Path:
    """Datasets with captions of one kind and of two, and opinions on pairs of the first, by one
    process."""
    folder = tmp_path_factory.mktemp("vllm")
    build = [
        "build", scenes / "images", "-r", "mini", "--executor", "local",
        "--set", "propose.backend=grid", "--set", f"score.model={tiny_clip()}",
        "--set", "caption.backend=vllm",
    ]  # fmt: skip
    two = ["--set", KINDS, "--set", "caption.max_tokens=60"]
    judge = [
        "pairs", "judge", folder / "one", "--judged", folder / "judged.jsonl", "--num", "12",
        "--set", "caption.backend=vllm", "--set", "caption.model=mini-captioner",
        "--set", "caption.structured=true",
    ]  # fmt: skip
    one = [*build, "-o", folder / "one", "--limit", "8"]
    lines = [one, [*build, "-o", folder / "two", "--limit", "4", *two], judge]
    (folder / "lines.json").write_text(json.dumps([list(map(str, line)) for line in lines]))
    forks_with_vllm.run("glit", [folder / "lines.json"], folder / "output")
    return folder


@pytest.mark.engine
def test_vllm_in_process_captions_scenes_as_transformers_does(by_vllm, answers):
    rows = pq.read_table(by_vllm / "one" / "data").to_pylist()
    assert {row["caption_source"]["kind"] for row in rows} == {"vllm"}
    assert [row["caption"] for row in rows] == [answer.text.strip() for answer in answers]
    for row, answer in zip(rows, answers, strict=True):
        lowest = min(token.logprob for token in answer.tokens)
        assert min(s["min_logprob"] for s in row["sentences"]) == pytest.approx(lowest, abs=0.01)


@pytest.mark.engine
def test_vllm_writes_what_transformers_writes_of_two_kinds(by_vllm, scenes, tmp_path):
    overrides = [KINDS, "caption.max_tokens=60"]
    run_build(scenes / "images", tmp_path / "same", limit=4, overrides=overrides)
    vllm, same = (
        [[each["text"] for each in row.extra["captions"]] for row in Dataset(folder)]
        for folder in (by_vllm / "two", tmp_path / "same")
    )
    assert vllm == same and {len(each) for each in vllm} == {2} and len(vllm) == 4


@pytest.mark.engine
def test_vllm_is_held_to_the_answers_of_a_judge(by_vllm):
    judged = read_judged(by_vllm / "judged.jsonl")
    assert len(judged.of) == 12 and {each.letter for each in judged.of.values()} <= set("ABCD")
    for opinion in judged.of.values():
        assert opinion.by == "model:mini-captioner"
        assert opinion.verdict == "wrong" or opinion.right_region is None
        assert len(opinion.word) <= 60 and (opinion.verdict == "false" or not opinion.word)


@pytest.mark.engine
def test_vllm_through_its_http_server(pictures, captions, tmp_path, forks_with_vllm):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "server.log"
    words = [
        "--model", mini_model("captioner"), "--served-model-name", "mini",
        "--host", "127.0.0.1", "--port", port, "--enforce-eager",
        "--dtype", "float32", "--kv-cache-memory-bytes", 64 << 20,
        "--limit-mm-per-prompt", '{"image": 1}',
    ]  # fmt: skip
    number = forks_with_vllm.start("http", words, log)
    try:
        wait_until_up(lambda: forks_with_vllm.is_running(number), port, log)
        config = CaptionConfig(
            backend="endpoint", endpoint=f"http://127.0.0.1:{port}/v1", model="mini",
            max_tokens=300, batch_size=4,
        )  # fmt: skip
        made = CAPTIONERS["endpoint"].make(config, None, "Describe it.")
        found = made.caption(pictures, seeds=[0] * 8, temperature=0.0)
    finally:
        os.kill(number, signal.SIGTERM)
        forks_with_vllm.wait(number)
    assert [caption.text.strip() for caption in found] == [c.strip() for c in captions]


def wait_until_up(is_running: Callable[[], bool], port: int, log: Path) -> None:
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        assert is_running(), log.read_text()[-3000:]
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])
