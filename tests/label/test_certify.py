"""An audit from its plan to a certified dataset, with the truth of scenes as the verdicts."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import threading
from pathlib import Path

import httpx
import pytest
from huggingface_hub import snapshot_download

import glit
from glit.cli import main as command_line
from glit.dataset.certificate import items_of
from glit.dataset.reader import Dataset
from glit.errors import DatasetError, InputError
from glit.review.label.audit_server import AuditQuestions
from glit.review.label.server import LabelSite
from glit.runtime.local_server import address_of, loopback_server
from glit.verdicts.record import Said, append, read_audit
from tools.measure.audits import of_scenes
from tools.measure.judged_pairs import judged


def how_to() -> list[list[str]]:
    """The page's commands from scenes to a fetched dataset."""
    page = (Path(__file__).parents[2] / "docs" / "certify.md").read_text(encoding="utf-8")
    first, second = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[:2]
    lines = (first + second).replace("OWNER/NAME", "me/certified").splitlines()
    return [shlex.split(line, comments=True) for line in lines]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Eighty hard scenes as a dataset with probabilities, and whether each pair is right; by the
    first commands of the page."""
    folder = tmp_path_factory.mktemp("certified")
    draw, build = how_to()[:2]
    for words in (draw[1:], [*build[1:], "--executor", "local", "--quiet"]):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit, match="^0$"):
            patch.chdir(folder)
            patch.setattr("sys.argv", ["glit", *words])
            command_line.main()
    dataset = glit.open_dataset(folder / "dataset")
    truth = judged(dataset, folder / "scenes" / "ground_truth.parquet")
    right = {
        row.sample_id: known.right
        for row, known in zip(dataset.rows(images=False), truth, strict=True)
    }
    return dataset, right


def judge(dataset: Dataset, right, file, *, num: int, by: str = "ann", wrong: int = 0) -> None:
    """Give verdicts in the order of the plan; of the first ``wrong`` ones the opposite."""
    plan = read_audit([file]).plan
    items = items_of(dataset, plan.claim)
    ids = dataset.table(["sample_id"]).column("sample_id").to_pylist()
    order = items.population.order(seed=plan.claim.seed, num=num).tolist()
    for number, at in enumerate(order):
        sample_id, place = ids[items.row[at]], (int(items.first[at]), int(items.second[at]))
        is_right = bool(right[sample_id][place]) ^ (number < wrong)
        verdict = "right" if is_right else "wrong"
        append(
            file,
            Said(sample_id=sample_id, sentence=place[0], region=place[1], verdict=verdict, by=by),
        )


def test_from_the_plan_to_a_certified_dataset(scenes, tmp_path, run_glit):
    dataset, right = scenes
    file, path = tmp_path / "v.jsonl", dataset.path
    certify = ("pairs", "certify", path, "--verdicts", file)
    planned = run_glit(*certify, "--part", "largest", "--error", "0.1", "--num", "150")
    assert planned.code == 0 and "plan to judge 150 of " in planned.output
    assert f"glit pairs label {path} --verdicts {file}" in planned.output
    early = run_glit(*certify, "-o", tmp_path / "early")
    assert early.code == 2 and "verdicts at the least" in early.errors
    few = run_glit("pairs", "certify", path, "--verdicts", tmp_path / "few.jsonl", "--num", "5")
    assert few.code == 2 and "--num 5: a claim of 0.05" in few.errors
    assert not (tmp_path / "few.jsonl").exists()
    judge(dataset, right, file, num=150)
    told = run_glit(*certify, "--json")
    found = json.loads(told.output)["certificate"]
    claimed, share = found["items"], found["min_probability"]
    made = tmp_path / "made"
    done = run_glit(*certify, "-o", made)
    assert done.code == 0 and "proved, to be quoted: at least 90 % of " in done.output
    certified = glit.open_dataset(made)
    kept = [
        bool(right[row.sample_id][pair.sentence][pair.region])
        for row in certified.rows(images=False)
        for pair in row.pairs
        if not pair.global_wins
    ]
    assert len(kept) == claimed < len(items_of(dataset, read_audit([file]).plan.claim))
    assert sum(kept) / len(kept) >= 0.9 and share > 0.5
    assert [*glit.verify(made)] == []
    card = (made / "README.md").read_text()
    assert "## Certified" in card and f"of {claimed:,} pairs" in " ".join(card.split())
    described = json.loads((made / "croissant.json").read_text())
    assert "Certified: at least 90 % of" in described["rai:dataAnnotationAnalysis"][0]
    assert {each["name"] for each in described["distribution"]} >= {"verdicts-pairs.jsonl"}
    assert made.joinpath("verdicts-pairs.jsonl").read_bytes().count(b"\n") == 151


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the Hub's client
def test_the_page_from_a_build_to_the_hub(scenes, tmp_path, run_glit, hub, monkeypatch):
    dataset, right = scenes
    monkeypatch.chdir(tmp_path)
    shutil.copytree(dataset.path, "dataset")
    ran = []
    for program, *words in how_to()[2:]:
        if words[:2] == ["pairs", "label"]:
            judge_on_the_page(dataset, right, Path(words[words.index("--verdicts") + 1]))
        elif program == "hf":
            snapshot_download(
                words[1], repo_type="dataset", local_dir=words[-1], endpoint=hub.address
            )
        else:
            done = run_glit(*words)
            assert done.code == 0, (words, done.errors)
        ran.append(" ".join([program, *words[:2]]))
    assert ran == [
        "glit pairs certify", "glit pairs label", "glit pairs certify", "glit pairs certify",
        "glit verify certified/",
        "glit pairs certify", "glit pairs label", "glit pairs certify",
        "glit verify certified-part/", "glit push certified-part/", "hf download me/certified",
        "glit verify fetched/",
    ]  # fmt: skip
    (said,) = glit.open_dataset("fetched").manifest.certificates
    assert said == glit.open_dataset("certified-part").manifest.certificates[0]
    assert said.judges == ("ann",) and said.judged > 0 and said.min_probability
    there = "hf://datasets/me/certified"
    assert run_glit("verify", there).code == 0
    hub.repositories["me/certified"].files["verdicts-pairs.jsonl"] += b"{}"
    assert run_glit("verify", there).code == 1


def judge_on_the_page(dataset: Dataset, right, file: Path) -> None:
    """Answer every question by the truth: most as if it had been yesterday, the last ones on the
    page."""
    ids = dataset.table(["sample_id"]).column("sample_id").to_pylist()
    plan = read_audit([file]).plan
    items = items_of(dataset, plan.claim)
    order = items.population.order(seed=plan.claim.seed, num=plan.verdicts).tolist()
    verdicts = []
    for at in order:
        place = int(items.first[at]), int(items.second[at])
        verdicts.append("right" if right[ids[items.row[at]]][place] else "wrong")
    before = max(0, len(order) - 10)
    for at, verdict in zip(order[:before], verdicts, strict=False):
        name = {"sentence": int(items.first[at]), "region": int(items.second[at])}
        append(file, Said(sample_id=ids[items.row[at]], **name, verdict=verdict, by="ann"))
    with served(AuditQuestions(dataset, file, by="ann")) as client:
        for number in range(before, len(order)):
            said = {"number": number, "verdict": verdicts[number]}
            assert client.post("/verdict", json=said).status_code == 200


@pytest.fixture(scope="module")
def certified(scenes, tmp_path_factory):
    """The same with a certificate on all pairs."""
    dataset, right = scenes
    folder = tmp_path_factory.mktemp("whole")
    glit.certify(dataset.path, folder / "v.jsonl", error=0.15, num=120)
    judge(dataset, right, folder / "v.jsonl", num=120)
    outcome = glit.certify(dataset.path, folder / "v.jsonl", output=folder / "made")
    assert outcome.certificate is not None and outcome.certificate.min_probability is None
    return folder / "made"


def test_a_certificate_on_all_pairs_changes_no_data_file(scenes, certified):
    before, after = scenes[0].manifest, glit.open_dataset(certified).manifest
    assert after.data_files == before.data_files and [*glit.verify(certified)] == []
    (said,) = after.certificates
    assert said.at_least <= said.estimate <= said.at_most <= 0.15 and said.judges == ("ann",)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("at_most", 0.01, "the verdicts prove that"),
        ("wrong", 0, "the verdicts prove that"),
        ("judges", ["somebody"], "the verdicts prove that"),
        ("items_sha256", "0" * 64, "or their probabilities, are others now"),
        ("plan", None, "its plan is not that of the verdicts"),
    ],
)
def test_a_certificate_edited_by_hand_does_not_hold(certified, tmp_path, key, value, message):
    folder = shutil.copytree(certified, tmp_path / "edited")
    manifest = json.loads((folder / "manifest.json").read_text())
    if key == "plan":
        manifest["certificates"][0]["plan"]["claim"]["error"] = 0.1
    else:
        manifest["certificates"][0][key] = value
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (fault,) = glit.verify(folder)
    assert fault.startswith("the certificate of pairs does not hold: ") and message in fault


@pytest.mark.parametrize(
    ("key", "value"), [("verdicts", "../../elsewhere"), ("opinions", "/etc/passwd"), ("part", 7)]
)
def test_a_certificate_that_leads_elsewhere_is_refused(certified, tmp_path, key, value):
    folder = shutil.copytree(certified, tmp_path / "edited")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["certificates"][0][key] = value
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match="certificates"):
        glit.open_dataset(folder)


def test_verdicts_edited_by_hand_are_noticed(certified, tmp_path):
    folder = shutil.copytree(certified, tmp_path / "edited")
    file = folder / "verdicts-pairs.jsonl"
    file.write_text(file.read_text().replace('"wrong", "by"', '"right", "by"'))
    faults = [*glit.verify(folder)]
    assert len(faults) == 2 and "verdicts-pairs.jsonl" in faults[0]
    assert "does not hold" in faults[1]


def test_other_pairs_void_it_aloud(scenes, certified, tmp_path, run_glit):
    plain = scenes[0].path
    for number, words in enumerate((
        ("select", certified, "--sample", "20"),
        ("pair", certified, "--set", "pair.min_probability=0.9"),
        ("merge", plain, certified),
    )):  # fmt: skip
        folder = tmp_path / f"{number}"
        with pytest.warns(UserWarning, match="the certificate is void here"):
            assert run_glit(*words, "-o", folder).code == 0
        assert glit.open_dataset(folder).manifest.certificates == ()
        assert not (folder / "verdicts-pairs.jsonl").exists() and [*glit.verify(folder)] == []


def test_verdicts_of_another_dataset_or_plan_are_refused(scenes, certified, tmp_path):
    dataset, right = scenes
    file = tmp_path / "v.jsonl"
    glit.certify(dataset.path, file, num=60, where="width > 0")
    judge(dataset, right, file, num=3)
    with pytest.raises(InputError, match=r"its plan has error 0\.05, not 0\.2"):
        glit.certify(dataset.path, file, error=0.2)
    other = tmp_path / "other"
    glit.pair(dataset.path, other, settings=["pair.min_probability=0.9"])
    with pytest.raises(InputError, match="the verdicts are of another dataset"):
        glit.certify(other, file)
    strange = file.read_bytes() + b'{"sample_id": "x", "sentence": 0, "region": 0, '
    (tmp_path / "strange.jsonl").write_bytes(strange + b'"verdict": "right", "by": "ann"}\n')
    with pytest.raises(InputError, match="x: 0 0 is none of the pairs to judge"):
        glit.certify(dataset.path, tmp_path / "strange.jsonl")
    append(file, Said(sample_id="0" * 64, sentence=0, region=0, verdict="right", by="ann"))
    with pytest.raises(InputError, match="0 0 is none of the pairs to judge"):
        glit.certify(dataset.path, file)
    with pytest.raises(InputError, match="a claim of 'error'"):
        glit.certify(dataset.path, tmp_path / "new.jsonl", error=1.5)
    with pytest.raises(InputError, match="a claim of 'of'"):
        glit.certify(dataset.path, tmp_path / "new.jsonl", of="captions")
    assert not (tmp_path / "new.jsonl").exists()


def test_what_cannot_be_reached_says_so(scenes, tmp_path):
    dataset, right = scenes
    file = tmp_path / "v.jsonl"
    glit.certify(dataset.path, file, error=0.02)
    judge(dataset, right, file, num=160, wrong=60)
    found = glit.certify(dataset.path, file)
    assert found.certificate is None and "cannot be proved" in found.not_proved


def test_people_judge_on_the_page_disagree_and_settle(scenes, tmp_path, run_glit):
    dataset, _ = scenes
    file = tmp_path / "v.jsonl"
    glit.certify(dataset.path, file, error=0.5, confidence=0.5, num=6)
    for by, verdicts in (("ann", ["right"] * 6), ("bo", ["right", "unsure"] + ["right"] * 4)):
        questions = AuditQuestions(dataset, file, by=by)
        with served(questions) as client:
            for number, verdict in enumerate(verdicts):
                assert client.get("/next").json() == number
                asked = client.get(f"/question/{number}").json()
                assert asked["total"] == 6 and asked["verdict"] is None
                assert [word for word, _ in asked["answers"]][-1] == "unsure"
                said = {"number": number, "verdict": verdict}
                assert client.post("/verdict", json=said).status_code == 200
            assert client.get("/question/0").json()["status"].startswith("Enough: ")
    told = run_glit("pairs", "certify", dataset.path, "--verdicts", file)
    assert "6 judged by two or more" in told.output and "1 of them disputed" in told.output
    with served(AuditQuestions(dataset, file, by="ann", settle=True)) as client:
        asked = client.get("/question/0").json()
        assert asked["others"] == {"ann": "right", "bo": "unsure"} and asked["total"] == 1
        client.post("/verdict", json={"number": 0, "verdict": "wrong"})
    assert glit.certify(dataset.path, file).agreement.disputed == ()
    with pytest.raises(InputError, match="nobody disagrees"):
        AuditQuestions(dataset, file, by="ann", settle=True)
    with served(AuditQuestions(dataset, file, by="ann")) as client:  # ann changes her mind
        client.post("/verdict", json={"number": 3, "verdict": "false"})
    assert glit.certify(dataset.path, file).wrong == 2


class served:
    """The page of questions on loopback, and a client for it."""

    def __init__(self, questions: AuditQuestions) -> None:
        self._questions = questions

    def __enter__(self) -> httpx.Client:
        self._server = loopback_server(LabelSite(self._questions), port=0)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._client = httpx.Client(base_url=address_of(self._server), timeout=60)
        return self._client

    def __exit__(self, *_) -> None:
        self._client.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.mark.parametrize(("of", "words"), [("sentences", "Right: all of it"), ("boxes", "this")])
def test_sentences_and_boxes_are_judged_too(scenes, tmp_path, of, words):
    dataset, _ = scenes
    file = tmp_path / "v.jsonl"
    glit.certify(dataset.path, file, of=of, error=0.3, confidence=0.8, num=8)
    questions = AuditQuestions(dataset, file, by="ann")
    for number in range(8):
        asked = questions.question(number)
        assert words in asked["answers"][0][1] and asked["sentence"]
        assert (asked["box"] is None) is (of == "sentences")
        questions.answer(number, "right")
    with pytest.raises(InputError, match="want one of right"):
        questions.answer(0, "none")
    made = glit.certify(dataset.path, file, output=tmp_path / of)
    assert made.certificate is not None and [*glit.verify(tmp_path / of)] == []
    assert f"verdicts-{of}.jsonl" in glit.open_dataset(tmp_path / of).manifest.files


def test_simulated_audits_know_the_truth_of_scenes(scenes):
    dataset, right = scenes
    folder = Path(dataset.path)
    of, wrong = of_scenes(folder, folder.parent / "scenes" / "ground_truth.parquet")
    truth = [
        bool(right[row.sample_id][pair.sentence, pair.region])
        for row in dataset.rows(images=False)
        for pair in row.pairs
        if not pair.global_wins
    ]
    assert len(of) == len(wrong) == len(truth)
    assert wrong.sum() == len(truth) - sum(truth) > 0
