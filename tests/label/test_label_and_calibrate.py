"""Pairs judged over HTTP as a person would in the browser, and a calibration of the verdicts."""

from __future__ import annotations

import json
import threading

import httpx
import numpy as np
import pytest

import glit
from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError
from glit.pipeline.planning.recipe import load_recipe
from glit.review.label.calibrate import calibrate
from glit.review.label.choose import choose
from glit.review.label.server import LabelSite, PairQuestions
from glit.review.label.verdicts import JudgedPair, add_verdict, read_verdicts
from glit.rules.calibration import read_calibration
from glit.runtime.local_server import address_of, loopback_server, shown
from glit.scenes import write_scenes
from glit.stages.pair import PairConfig
from tools.measure.judged_pairs import judged


@pytest.fixture(scope="module")
def scored_scenes(tmp_path_factory):
    """Forty hard scenes, scored by the mini matcher, with their own captions."""
    folder = tmp_path_factory.mktemp("judged")
    write_scenes(folder, num=40, seed=1_000_300, level="hard")
    dataset = glit.build(
        folder / "images", folder / "dataset", recipe="glit-mini", executor="local", quiet=True,
        captions=folder / "captions.jsonl", settings=["pair.min_probability=0"],
    )  # fmt: skip
    return folder, dataset


@pytest.fixture
def server(scored_scenes, tmp_path):
    questions = PairQuestions(scored_scenes[1], tmp_path / "verdicts.jsonl", num=10, seed=0)
    with loopback_server(LabelSite(questions), port=0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        with httpx.Client(base_url=address_of(running), timeout=60) as client:
            yield client, tmp_path / "verdicts.jsonl"
        running.shutdown()
        thread.join()


def test_a_person_answers_goes_back_and_goes_on_another_day(server, scored_scenes):
    client, file = server
    assert "is this right?" in client.get("/").text
    for number, verdict in ((0, "right"), (1, "none"), (0, "wrong")):
        question = client.get(f"/question/{number}").json()
        assert question["total"] == 10 and question["sentence"]
        left, top, right, bottom = question["box"]
        assert 0 <= left < right <= question["size"][0] and 0 <= top < bottom <= 128
        answer = {"number": number, "verdict": verdict}
        assert client.post("/verdict", json=answer).status_code == 200
    picture = client.get("/image/0")
    assert picture.headers["content-type"] == "image/png" and picture.content[1:4] == b"PNG"
    assert sorted(v.verdict for v in read_verdicts(file).values()) == ["none", "wrong"]
    again = PairQuestions(scored_scenes[1], file, num=10, seed=0)
    assert again.first_open() == 2
    assert again.question(0)["verdict"] == "wrong"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/verdict", {"number": 0, "verdict": "maybe"}, 404),
        ("/verdict", {"number": "0", "verdict": "right"}, 404),
        ("/verdict", {"number": 10, "verdict": "right"}, 404),
        ("/verdict", [], 404),
    ],
)
def test_answers_that_are_none_are_not_kept(server, path, body, status):
    client, file = server
    assert client.post(path, json=body).status_code == status
    assert not file.exists()


def test_nobody_else_can_ask_or_answer(server):
    client, file = server
    assert client.get("/question/0", headers={"Host": "evil.example"}).status_code == 421
    form = client.post("/verdict", data={"number": "0", "verdict": "right"})
    assert form.status_code == 404 and not file.exists()
    assert client.get("/question/-1").status_code == 404
    assert client.get("/../../etc/passwd").status_code == 404
    assert "default-src 'none'" in client.get("/").headers["content-security-policy"]


def test_formats_that_browsers_do_not_show_become_png(tmp_path):
    from PIL import Image

    Image.new("RGB", (8, 6), (200, 10, 10)).save(tmp_path / "a.tiff")
    data, kind = shown((tmp_path / "a.tiff").read_bytes())
    assert kind == "image/png" and data[1:4] == b"PNG"


def test_more_questions_keep_the_first(scored_scenes):
    dataset = scored_scenes[1]
    assert choose(dataset, num=20, seed=3)[:5] == choose(dataset, num=5, seed=3)
    assert len(set(choose(dataset, num=1000, seed=3))) == 40


def told(scored_scenes, file, *, false_of=()) -> dict[tuple[str, int], JudgedPair]:
    """What a person who knows the truth would say of every pair."""
    folder, dataset = scored_scenes
    known = judged(dataset, folder / "ground_truth.parquet")
    for row, truth in zip(dataset.rows(images=False), known, strict=True):
        for pair in row.pairs:
            right = truth.right[pair.sentence]
            verdict = "right" if right[pair.region] else "wrong" if right.any() else "none"
            if (row.source_path, pair.sentence) in false_of:
                verdict = "false"
            add_verdict(
                file,
                JudgedPair(
                    sample_id=row.sample_id,
                    sentence=pair.sentence,
                    region=pair.region,
                    verdict=verdict,
                ),
            )
    return read_verdicts(file)


def rule(*words: str) -> PairConfig:
    bare = ["pair.calibration=", "pair.min_probability=0"]
    return load_recipe("glit-mini", overrides=[*bare, *words]).of(PairConfig)


def test_verdicts_become_a_calibration_that_a_build_takes(scored_scenes, tmp_path, run_glit):
    folder, dataset = scored_scenes
    told(scored_scenes, tmp_path / "v.jsonl", false_of=[(f"{n:06d}.png", 2) for n in range(20)])
    made = tmp_path / "mine.json"
    done = run_glit(
        "pairs", "calibrate", dataset.path, "--verdicts", tmp_path / "v.jsonl", "-o", made
    )
    assert done.code == 0, done.errors
    assert "average precision 0.9" in done.output and "sentences: " in done.output
    assert "left as right: " in done.output and "by probability" in done.output
    calibration = read_calibration(made)
    assert calibration.support is not None
    again = glit.pair(
        dataset.path, tmp_path / "again",
        settings=[f"pair.calibration={made}", "pair.min_probability=0.5"],
    )  # fmt: skip
    pairs = [pair for row in again.rows(images=False) for pair in row.pairs]
    assert all(pair.support is not None and pair.probability is not None for pair in pairs)
    truth = judged(again, folder / "ground_truth.parquet")
    hits = [
        t.right[p.sentence, p.region] != p.global_wins
        for row, t in zip(again.rows(images=False), truth, strict=True)
        for p in row.pairs
    ]
    assert np.mean(hits) > 0.9


def test_another_rule_is_judged_only_where_the_verdict_holds_for_it(scored_scenes, tmp_path):
    verdicts = told(scored_scenes, tmp_path / "v.jsonl")
    own = calibrate(scored_scenes[1], verdicts, rule())
    other = calibrate(scored_scenes[1], verdicts, load_recipe("mini").of(PairConfig))
    assert own.left_out == 0 < other.left_out
    assert own.pairs.cases == len(verdicts) == other.pairs.cases + other.left_out
    assert own.sentences is None and own.calibration.support is None


def test_what_cannot_be_fitted_is_refused(scored_scenes, built, tmp_path):
    dataset = scored_scenes[1]
    verdicts = told(scored_scenes, tmp_path / "v.jsonl")
    few = dict(list(verdicts.items())[:5])
    with pytest.raises(InputError, match="5 verdicts .* want 20 or more"):
        calibrate(dataset, few, rule())
    right = {key: v for key, v in verdicts.items() if v.verdict == "right"}
    with pytest.raises(RecipeError, match="right ones only"):
        calibrate(dataset, right, rule())
    with pytest.raises(InputError, match="not in .*name the dataset"):
        calibrate(Dataset(built), verdicts, rule("pair.phrase_weight=0"))


@pytest.mark.parametrize(
    "line",
    ['{"sample_id": "a"}', "[1]", "{", json.dumps({"sample_id": "a", "sentence": -1, "region": 0,
     "verdict": "right"}), json.dumps({"sample_id": "a", "sentence": 1, "region": 0, "verdict": 1})],
)  # fmt: skip
def test_a_damaged_file_of_verdicts_is_refused_by_its_line(tmp_path, line):
    (tmp_path / "v.jsonl").write_text("\n" + line + "\n")
    with pytest.raises(InputError, match="line 2"):
        read_verdicts(tmp_path / "v.jsonl")


@pytest.mark.parametrize("number", ["10", "-1", "x", "", "9" * 5000])
@pytest.mark.parametrize("what", ["question", "image"])
def test_questions_that_are_not_there(server, what, number):
    answer = server[0].get(f"/{what}/{number}")
    assert answer.status_code == 404 and len(answer.content) <= 300
