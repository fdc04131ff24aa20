"""A model on a server is asked about every pair; it knows the truth, and sometimes lies."""

from __future__ import annotations

import base64
import fcntl
import io
import json
import re
from pathlib import Path

import pytest
from chat_server import Server, ok
from PIL import Image

import glit
from glit.dataset.certificate import items_of
from glit.errors import InputError, RecipeError, RunError
from glit.review.label import judging_model
from glit.review.label.audit_server import AuditQuestions
from glit.review.label.judge import _LETTER
from glit.text.answers import clean_answer
from glit.verdicts.judged import read_judged
from glit.verdicts.record import Said, append, read_audit


class Witness(Server):
    """Says that some sentences are elsewhere in the picture; or always the same letter."""

    def __init__(self, wrong: set[str]) -> None:
        super().__init__()
        self.wrong, self.letter = wrong, ""

    def answer(self, body):
        if self.answers:
            return self.answers.pop(0)
        content = body["messages"][0]["content"]
        prompt = next(part["text"] for part in content if part["type"] == "text")
        sentence = re.search(r'Sentence: "(.*)"', prompt)
        assert sentence is not None
        meant = "not in the red box" if sentence[1] in self.wrong else "describes what is in"
        letter = re.search(rf"^([A-D]): .*{meant}", prompt, re.MULTILINE)
        assert letter is not None
        said = {"answer": self.letter or letter[1], "word": "none", "region": "1"}
        return ok(json.dumps(said))


@pytest.fixture(scope="module")
def built(built, tmp_path_factory) -> Path:
    """Fourteen samples of it: the model is asked about every pair."""
    output = tmp_path_factory.mktemp("some") / "dataset"
    glit.select(built, output, sample=14)
    return output


@pytest.fixture
def dataset(built):
    return glit.open_dataset(built)


def texts(dataset) -> list[str]:
    return sorted({each.text for row in dataset.rows(images=False) for each in row.sentences})


def settings(server: Server) -> list[str]:
    return [
        "caption.backend=endpoint", f"caption.endpoint={server.url}", "caption.model=witness",
        "caption.structured=true", "caption.retries=0",
    ]  # fmt: skip


def test_every_pair_is_judged_once_and_its_verdicts_narrow_a_claim(dataset, built, tmp_path):
    wrong = set(texts(dataset)[::9])
    judged = tmp_path / "judged.jsonl"
    with Witness(wrong) as server:
        part = glit.judge(built, judged, settings=settings(server), num=10)
        assert len(part.judged.of) == 10 and part.failed == 0
        whole = glit.judge(built, judged, settings=settings(server))
        asked = len(server.requests)
        again = glit.judge(built, judged, settings=settings(server))
        assert again.asked == 0 and len(server.requests) == asked
        picture = server.requests[0]["messages"][0]["content"][0]["image_url"]["url"]
        prompts = {each["messages"][0]["content"][1]["text"] for each in server.requests}
    pairs = [
        (row, pair) for row in dataset.rows(images=False) for pair in row.pairs
        if not pair.global_wins
    ]  # fmt: skip
    found = whole.judged
    assert len(found.of) == len(pairs) and asked == len(pairs) + len(found.again)
    assert found.consistency == 1 and len(found.again) > 0
    for row, pair in pairs:
        opinion = found.of[row.sample_id, (pair.sentence, pair.region)]
        is_wrong = row.sentences[pair.sentence].text in wrong
        assert opinion.verdict == ("wrong" if is_wrong else "right")
        assert (opinion.right_region is not None) is is_wrong and opinion.by == "model:witness"
    shown = Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2])))
    assert shown.width > 140 and shown.height >= 128  # the picture and the crop beside it
    assert {re.findall(r"^A: (.*)", each, re.MULTILINE)[0] for each in prompts} >= {
        "it cannot be told", "the sentence describes what is in the red box",
    }  # fmt: skip
    assert len({each.splitlines()[0] for each in prompts}) == 2  # the crop on either side
    certify(dataset, built, tmp_path, judged, wrong)


def certify(dataset, built, tmp_path, judged, wrong) -> None:
    """With opinions as good as the truth the same verdicts prove more."""
    most = {}
    for name, opinions in (("plain", None), ("with", judged)):
        file = tmp_path / f"{name}.jsonl"
        glit.certify(built, file, judged=opinions, error=0.5, num=60)
        plan = read_audit([file]).plan
        items = items_of(dataset, plan.claim)
        rows = [*dataset.rows(images=False)]
        for at in items.population.order(seed=0, num=60).tolist():
            row, sentence = rows[items.row[at]], int(items.first[at])
            verdict = "wrong" if row.sentences[sentence].text in wrong else "right"
            append(
                file,
                Said(
                    sample_id=row.sample_id, sentence=sentence, region=int(items.second[at]),
                    verdict=verdict, by="ann",
                ),
            )  # fmt: skip
        made = glit.certify(built, file, judged=opinions, output=tmp_path / f"{name}-made")
        assert made.certificate is not None
        most[name] = made.certificate.at_most
        assert [*glit.verify(tmp_path / f"{name}-made")] == []
    assert most["with"] < most["plain"]
    assert (tmp_path / "with-made" / "judged-pairs.jsonl").exists()
    again = tmp_path / "again"
    glit.certify(tmp_path / "with-made", tmp_path / "plain.jsonl", output=again)
    assert [*glit.verify(again)] == [] and not (again / "judged-pairs.jsonl").exists()
    assert "judged-pairs.jsonl" not in glit.open_dataset(again).manifest.files
    with pytest.raises(InputError, match="wants the file that it was made with"):
        glit.certify(built, file)


def test_a_judge_that_answers_by_place_is_refused(built, tmp_path):
    judged = tmp_path / "judged.jsonl"
    with Witness(set()) as server:
        server.letter = "A"
        with pytest.raises(RunError, match="the model gave the letter 'A' to"):
            glit.judge(built, judged, settings=settings(server), num=40)
        server.letter = ""
        good = glit.judge(built, tmp_path / "right.jsonl", settings=settings(server), num=40)
        assert good.judged.note == "all 40 verdicts are 'right': they narrow no bound"
    with pytest.raises(InputError, match="its opinions say nothing"):
        glit.certify(built, tmp_path / "v.jsonl", judged=judged)


def test_answers_that_are_none_are_asked_again(built, tmp_path, dataset):
    judged = tmp_path / "judged.jsonl"
    with Witness(set(texts(dataset)[::9])) as server:
        server.answers = [ok("I cannot say."), ok('{"answer": "E"}'), ok("")]
        first = glit.judge(built, judged, settings=[*settings(server)], num=12)
        assert first.failed == 3
        with judged.open("ab") as stream:
            stream.write(b'{"sample_id"')
        second = glit.judge(built, judged, settings=settings(server), num=12)
        assert second.failed == 0 and len(second.judged.of) == 12
        with pytest.raises(InputError, match="another model, or another prompt"):
            glit.judge(built, judged, settings=[*settings(server), "caption.model=other"], num=12)
    assert len(read_judged(judged).of) == 12
    with pytest.raises(InputError, match="the model judged all but"):
        glit.certify(built, tmp_path / "v.jsonl", judged=judged)


def test_a_judge_without_a_usable_answer_ends_with_its_cause(built, tmp_path):
    with Witness(set()) as server:
        server.answers = [ok("I cannot say.") for _ in range(8)]
        with pytest.raises(RunError, match=r"witness: gave no usable .* caption.max_tokens"):
            glit.judge(built, tmp_path / "judged.jsonl", settings=settings(server), num=4)


@pytest.fixture(scope="module")
def repairing(built, tmp_path_factory) -> Path:
    """Opinions on all pairs, of which every fourth is wrong; not to be written into."""
    judged = tmp_path_factory.mktemp("repairing") / "judged.jsonl"
    with Witness(set(texts(glit.open_dataset(built))[::4])) as server:
        glit.judge(built, judged, settings=settings(server))
    return judged


def test_repairs_are_taken_when_people_have_proved_them(
    built, dataset, tmp_path, run_glit, repairing
):
    judged, file, made = repairing, tmp_path / "v.jsonl", tmp_path / "made"
    repairs = read_judged(judged).repairs
    assert len(repairs) > 8
    take = ("pairs", "apply", built, "--judged", judged, "-o", made)
    nobody = run_glit(*take)
    assert nobody.code == 2 and "want --verdicts" in nobody.errors
    claim = ("--of", "repairs", "--error", "0.4", "--confidence", "0.6", "--num", "4")
    without = run_glit("pairs", "certify", built, "--verdicts", file, *claim)
    assert without.code == 2 and "--judged" in without.errors and not file.exists()
    certify = ("pairs", "certify", built, "--verdicts", file, "--judged", judged)
    planned = run_glit(*certify, *claim)
    assert f"plan to judge 4 of {len(repairs)} repairs" in planned.output
    assert f"glit pairs label {built} --verdicts {file} --judged {judged}" in planned.output
    early = run_glit(*take, "--verdicts", file)
    assert early.code == 2 and "0 of 0 repairs judged" in early.errors and not made.exists()
    questions = AuditQuestions(dataset, file, by="ann", judged=judged)
    asked = questions.question(0)
    (row,) = [row for row in dataset.rows(images=False) if row.source_path == asked["path"]]
    (new,) = [
        r for (sample, (s, _)), r in repairs.items()
        if sample == row.sample_id and row.sentences[s].text == asked["sentence"]
    ]  # fmt: skip
    assert asked["of"] == "repairs" and asked["box"] == list(row.regions[new].box.xyxy)
    for number in range(4):
        questions.answer(number, "right")
    told = run_glit(*certify)
    assert f"glit pairs apply {built} --verdicts {file} --judged {judged} -o NEW" in told.output
    assert run_glit(*certify, "-o", made).code == 2
    done = run_glit(*take, "--verdicts", file)
    assert done.code == 0, done.errors
    changed = {
        (after.sample_id, sentence): {p.sentence: p for p in after.pairs}[sentence].region
        for after in glit.open_dataset(made).rows(images=False)
        for sample, (sentence, _) in repairs
        if sample == after.sample_id
    }
    assert changed == {(sample, s): region for (sample, (s, _)), region in repairs.items()}
    assert [*glit.verify(made)] == []
    (source,) = glit.open_dataset(made).manifest.corrections
    (by_model,) = source.more["files"]
    assert by_model["by"] == ["model:witness"] and "repairs" in by_model["certified"]
    card = " ".join((made / "README.md").read_text().split())
    assert "A model's repairs changed" in card and "People looked at" not in card
    assert "model:witness named regions in place of wrong ones: at least 60 % of" in card
    another = run_glit("pairs", "certify", made, "--verdicts", file, "--judged", judged)
    assert another.code == 2 and "of another dataset" in another.errors


def test_repairs_that_people_call_wrong_are_not_taken(
    built, dataset, tmp_path, run_glit, repairing
):
    judged, file, made = repairing, tmp_path / "v.jsonl", tmp_path / "made"
    glit.certify(
        built, file, of="repairs", error=0.4, confidence=0.6, num=4, judged=judged
    )  # fmt: skip
    questions = AuditQuestions(dataset, file, by="ann", judged=judged)
    for number, verdict in enumerate(["wrong", "none", "wrong", "unsure"]):
        questions.answer(number, verdict)
    done = run_glit(
        "pairs", "apply", built, "--judged", judged, "--verdicts", file, "-o", made
    )  # fmt: skip
    assert done.code == 2 and "4 of 4 repairs judged are wrong" in done.errors
    assert not made.exists()


def test_two_judges_do_not_write_into_one_file(built, dataset, tmp_path):
    judged = tmp_path / "judged.jsonl"
    with Witness(set(texts(dataset)[::9])) as server:
        glit.judge(built, judged, settings=settings(server), num=3)
        with judged.open("ab") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(InputError, match="another process writes into it"):
                glit.judge(built, judged, settings=settings(server), num=5)
        assert len(glit.judge(built, judged, settings=settings(server), num=5).judged.of) == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["caption.backend=transformers"], "'transformers' cannot be asked"),
        (["pair.rule=lism"], r"only keys of \[caption\]"),
    ],
)
def test_models_that_cannot_be_asked_are_named(built, tmp_path, words, message):
    with pytest.raises(RecipeError, match=message):
        glit.judge(built, tmp_path / "judged.jsonl", settings=words)


def test_the_command(built, dataset, tmp_path, run_glit):
    with Witness(set(texts(dataset)[::9])) as server:
        words = [word for each in settings(server) for word in ("--set", each)]
        done = run_glit("pairs", "judge", built, "--judged", tmp_path / "j.jsonl", *words, "-q")
    assert done.code == 0, done.errors
    assert "pairs judged (" in done.output and "asked twice 100% got the same" in done.output


@pytest.mark.parametrize(("words", "side"), [([], 1356), (["caption.max_image_side=600"], 600)])
def test_the_side_that_a_recipe_gives_one_picture_does_not_shrink_two(words, side):
    words = ["caption.backend=vllm", "caption.model=m", *words]
    assert judging_model._config("laptop", words).max_image_side == side


@pytest.mark.parametrize(
    ("said", "letter"),
    [("A", "A"), ("B.", "B"), ("**C**", "C"), ("A: the sentence is right", "A"), ("(D)", "D"),
     ("B) it is", "B"), ("Answer: A", "A"), ("A\nBecause", "A"), ("<think>B</think>C", "C"),
     ("A - right", "A"), ("A dog is in the red box.", None), ("A-frame.", None), ("Box", None)],
)  # fmt: skip
def test_an_article_is_no_letter(said, letter):
    found = _LETTER.match(clean_answer(said).text)
    assert (found and found[1]) == letter
