"""The comparison of objectives: its intervals, its choices, its runs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import glit.bench.objectives.run as module
from glit.bench.objectives.datasets import Datasets
from glit.bench.objectives.job import COST, keep_model_alone, trained
from glit.bench.objectives.measure import Measured
from glit.bench.objectives.run import ComparisonRequest, climbed, run
from glit.bench.objectives.table import ObjectiveRow, difference, page
from glit.bench.objectives.variants import Variant
from glit.errors import InputError, RunError, UserError
from glit.evaluation.scorers.cosine import Cosine
from glit.evaluation.scorers.finelip import FineLipScore
from glit.evaluation.scorers.sentence_patches import SentencePatches
from glit.pipeline.planning.recipe import load_table
from glit.runtime.tables import markdown
from glit.training.config import TrainConfig
from glit.training.run_file import settings


def row(name: str, hits: list[list[bool]], **more) -> ObjectiveRow:
    found = [np.array([each, each]) for each in hits]
    figures = [{"t2i": float(each.mean()), "i2t": 0.5} for each in found]
    return ObjectiveRow(name=name, lr=1e-4, figures=figures, found=found, **more)


def test_a_difference_is_paired_and_certain_where_it_always_is_there() -> None:
    half, all_of_them = [True, False] * 50, [True] * 100
    baseline = row("clip", [half, half])
    found = difference(row("better", [all_of_them, all_of_them]), baseline)
    assert found.mean == pytest.approx(50) and found.certain
    assert found.low == pytest.approx(40, abs=3) and found.high == pytest.approx(60, abs=3)
    same = difference(row("same", [half, half]), baseline)
    assert (same.mean, same.low, same.high) == (0, 0, 0) and not same.certain
    # as much better with one seed as worse with the other: pairing by scene does not hide it
    mixed = difference(row("mixed", [all_of_them, [False] * 100]), baseline)
    assert mixed.mean == pytest.approx(0) and mixed.low < -40 and mixed.high > 40


def test_the_table_says_what_was_found() -> None:
    rows = [
        row("clip", [[True, False]] * 2),
        row("other", [[True, True]] * 2, seconds_a_step=0.5, peak_memory_mb=900.0,
            parameters_added=1200),
    ]  # fmt: skip
    lines = markdown(page("Two scenes", rows, ["A note."])).splitlines()
    assert lines[0] == "## Two scenes" and lines[-1] == "A note."
    assert "One seed" not in "".join(lines)
    one = [row("clip", [[True, False]]), row("other", [[True, True]])]
    assert "One seed each" in markdown(page("Two scenes", one))
    assert lines[2].startswith("|  | lr | T2I R@1 | I2T R@1 | difference from clip | s a step |")
    assert lines[5].startswith("| other | 0.0001 | 100.0 ± 0.0 | 50.0 ± 0.0 |")
    assert lines[5].endswith("| 0.50 | 900 | 1,200 |")


@pytest.fixture
def datasets(make_dataset) -> Datasets:
    train, test, others = (
        str(make_dataset(number, name=name))
        for name, number in (("train", 5), ("test", 4), ("others", 3))
    )
    return Datasets(train=train, test=test, validation=others)


@pytest.fixture
def pretended(monkeypatch):
    """Training and measuring replaced: validation is best at 1e-3, and 1 fails."""
    done: list[str] = []

    def train(folder, dataset, words):
        done.append(f"{folder.parent.name} {folder.name}")
        assert Path(dataset).name == "train"
        if folder.name.startswith("1-"):
            return None
        (folder / "last").mkdir(parents=True, exist_ok=True)
        return {"seconds_a_step": 0.1, "peak_memory_mb": 100, "parameters_added": 0}

    def score(embedder, config, collection):
        assert len(collection.names) == 3
        of = {"0.01": 0.2, "0.001": 0.6, "0.0001": 0.4}
        return np.array(of.get(embedder.split("/")[-2][:-2], 0.3))

    hits = np.array([[True, False, True]] * 2)
    monkeypatch.setattr(module, "trained", train)
    monkeypatch.setattr(module, "open_embedder", lambda model, config: str(model))
    monkeypatch.setattr(module, "hits", score)
    monkeypatch.setattr(module, "remove_models", lambda folder: done.append(f"- {folder.name}"))
    monkeypatch.setattr(
        module, "measure", lambda *_: Measured(figures={"t2i": 0.5, "i2t": 0.5}, found=hits)
    )
    monkeypatch.setattr(module, "of_regions", lambda *_: done.append("regions") or {"joint": 0.125})
    return done


def test_the_best_rate_is_run_with_every_seed(tmp_path, pretended, datasets) -> None:
    request = ComparisonRequest(
        datasets=datasets,
        output=tmp_path,
        objectives=("clip", "siglip"),
        lrs=(1.0, 1e-2, 1e-3, 1e-4),
        num_seeds=2,
    )
    reports: list[str] = []
    text = run(request, reports.append)
    assert pretended.count("regions") == 5
    pretended[:] = [each for each in pretended if each != "regions"]
    assert pretended[:4] == ["clip 0.01-0", "clip 0.001-0", "clip 1-0", "clip 0.0001-0"]
    assert sorted(pretended[4:7]) == ["- 0.0001-0", "- 0.01-0", "- 1-0"]
    assert pretended[7:9] == ["clip 0.001-0", "clip 0.001-1"]
    assert "| siglip | 0.001 | 50.0 ± 0.0 |" in text and "| none |  | 50.0 |" in text
    assert "clip with 1: the loss was no longer finite." in text
    found = "siglip, R@1 on validation samples by learning rate: 0.0001 40.0, 0.001 60.0, 0.01 20.0"
    assert found in text
    assert "end of the grid" not in text and reports[0] == "mini-matcher as it is"
    assert (tmp_path / "objectives.md").read_text() == text
    kept = json.loads((tmp_path / "objectives.json").read_text())
    assert [each["name"] for each in kept] == ["none", "clip", "siglip"]
    taught = ("local", "glit negative_weight=0 batch_size=64")
    assert "| local |" in run(replace(request, objectives=taught), reports.append)
    config = load_table(TrainConfig, "mini", overrides=["train.objective=siglip"])
    earlier = {"train": settings(replace(config, batch_size=64))}
    folder = tmp_path / "runs" / "siglip" / "0.001-0"
    (folder / "run.json").write_text(json.dumps(earlier))
    with pytest.raises(InputError, match=r"now wanted .*train.batch_size = \d+ \(run: 64\)"):
        run(request, reports.append)
    with pytest.raises(InputError, match=r"holds a comparison with epochs None, now 5"):
        run(replace(request, epochs=5), reports.append)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("clpi", "'clpi': wanted one of clip"),
        ("", "wanted one of clip"),
        ("clip short", r"'short' is no key=value of \[train\]"),
        ("clip 'a", "No closing quotation"),
        ("clip lr=1", "lr is the same for all rows"),
        ("long-clip lambda_shrt=0", "did you mean 'lambda_short'"),
        ("clip context=abc", "want int"),
    ],
)
def test_a_variant_that_cannot_be_is_refused_before_anything_is_trained(
    name, said, tmp_path, pretended, datasets
) -> None:
    with pytest.raises(UserError, match=said):
        run(
            ComparisonRequest(
                datasets=datasets, output=tmp_path, objectives=("clip", name), lrs=[1e-3]
            ),
            print,
        )
    assert not pretended


def test_an_objective_takes_settings_and_finelip_is_measured_by_three_scores(
    tmp_path, pretended, datasets, monkeypatch
) -> None:
    words: list[str] = []
    train = module.trained
    monkeypatch.setattr(
        module, "trained", lambda folder, *how: (words.extend(how[1]), train(folder, *how))[1]
    )
    named = "finelip refinement_lr=0.01 margin=0.5"
    text = run(
        ComparisonRequest(
            datasets=datasets, output=tmp_path, objectives=(named,), lrs=(1e-3, 1e-4), num_seeds=1
        ),
        lambda _: None,
    )
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| finelip")]
    assert rows == [f"| {named}", f"| {named}, starred score", f"| {named}, cosine"]
    assert text.count("12.5") == 4 and pretended.count("regions") == 2  # once of every model
    assert {"train.refinement_lr=0.01", "train.margin=0.5", "train.objective=finelip"} <= set(words)
    assert (tmp_path / "runs/finelip_refinement_lr=0.01_margin=0.5/0.001-0").is_dir()
    assert not [word for word in words if "refinement_lr" in word and "=0.01" not in word]


def test_a_grid_is_climbed_to_its_summit() -> None:
    summit = {1e-4: 1, 3e-4: 2, 1e-3: 5, 3e-3: 7, 1e-2: -math.inf, 3e-2: 0}
    assert list(climbed(list(summit), summit.__getitem__)) == [3e-3, 1e-3, 1e-2]
    low = {rate: 1 - rate for rate in summit}
    assert list(climbed(list(summit), low.__getitem__)) == [3e-3, 1e-3, 1e-2, 3e-4, 1e-4]
    lost = climbed(list(summit), lambda _: -math.inf)
    assert set(lost.values()) == {-math.inf} and 1e-4 in lost and 3e-2 not in lost
    assert climbed([1e-3], summit.__getitem__) == {1e-3: 5}


@pytest.mark.slow
def test_a_run_is_trained_once_and_says_what_it_cost(tiny_clip, make_dataset, tmp_path) -> None:
    dataset, folder = make_dataset(8), tmp_path / "run"
    words = ["-r", "siglip"]
    for setting in (
        f"model={tiny_clip}", "batch_size=4", "epochs=1", "num_workers=0", "trackers=[]",
    ):  # fmt: skip
        words += ["--set", f"train.{setting}"]
    ours = np.ones(3 << 29, np.uint8)  # the memory of whoever starts it is not its own
    cost = trained(folder, dataset, words)
    assert cost is not None and cost["parameters_added"] == 2
    assert cost["seconds_a_step"] > 0 and 100 < cost["peak_memory_mb"] < len(ours) >> 20
    keep_model_alone(folder)
    assert not list(folder.rglob("optimizer.pt")) and (folder / "last/model.safetensors").is_file()
    assert trained(folder, dataset, ["nonsense"]) == cost
    (folder / COST).write_text('{"failed": "the loss became NaN"}')
    assert trained(folder, dataset, words) is None
    with pytest.raises(RunError, match="its settings cannot be"):
        trained(tmp_path / "other", dataset, ["-r", "nonsense"])


@pytest.mark.slow
def test_objectives_are_compared_on_datasets_of_the_users(
    tiny_clip, make_dataset, tmp_path, run_glit
) -> None:
    train, test = make_dataset(8, name="train"), make_dataset(6, name="test")
    words = ["bench", "objectives", "-o", tmp_path / "out", "--train", train, "--test", test]
    words += ["--objective", "clip", "--objective", "siglip", "--seeds", 1, "--epochs", 1]
    for setting in (f"train.model={tiny_clip}", "train.batch_size=4", "train.num_workers=0"):
        words += ["--set", setting]
    assert run_glit(*words, "--lr", "1e-3", "--lr", "1e-4")[0] == 2
    code, _, said = run_glit(*words, "--lr", "1e-3", "--objective", "fg-clip")
    assert code == 2 and "--objective fg-clip" in said and "negatives.enabled=true" in said
    assert not (tmp_path / "out" / "runs").exists()
    code, _, said = run_glit(*words, "--lr", "1e-3", "--test", train)
    assert code == 2 and "--test: is the dataset that is trained on" in said
    code, said, _ = run_glit(*words, "--lr", "1e-3")
    assert code == 0 and "## 8 samples, 1 epochs in batches of 4, 1 seeds; 6 searched" in said
    assert "| siglip | 0.001 |" in said and "localisation@5" in said
    code, _, said = run_glit(*words, "--lr", "1e-3", "--set", "evaluate.limit=3")
    assert code == 2 and "comparison with" in said


def test_datasets_are_measured_as_they_are_trained_at_the_rates_of_the_recipe(
    make_dataset, tmp_path, monkeypatch
) -> None:
    train, test = str(make_dataset(4, name="train")), str(make_dataset(3, name="test"))
    keys = ("train.lr=2e-6", "train.epochs=7", "train.context=77", "train.image_fit=centre-crop",
            "evaluate.scorer=sentence-patches", "evaluate.window=1")  # fmt: skip
    world = Datasets(train=train, test=test, overrides=keys)
    assert world.config().epochs == 7 and world.lrs() == [2e-6]
    assert replace(world, validation=test).lrs() == [6e-8, 2e-7, 6e-7, 2e-6, 6e-6, 2e-5]
    assert not world.has_negatives and "fg-clip" not in module.WITHOUT_NEGATIVES
    for key, option in (("train.seed=3", "--seeds"), ("train.objective=clip", "--objective")):
        with pytest.raises(UserError, match=option):
            Datasets(train=train, test=test, overrides=(key,))
    monkeypatch.setattr(module, "open_embedder", lambda model, config: None)
    request = ComparisonRequest(output=tmp_path, datasets=world, lrs=[1e-3])
    for score, wanted in module._SCORES["finelip"].items():
        _, config = module._embedder(request, Variant("finelip"), "", wanted)
        scorer = config.make_scorer()
        assert (config.context, config.image_fit) == (77, "centre-crop")
        assert type(scorer) is (Cosine if score == "cosine" else FineLipScore)
    _, config = module._embedder(request, Variant("glit context=128"), "", {})
    assert config.context == 128 and config.make_scorer() == SentencePatches(window=1)
