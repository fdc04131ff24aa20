"""Datasets of captions alone: no regions, no pairs, no matcher, and everything else as ever."""

from __future__ import annotations

import json
import math
import shutil

import pytest
from building import Counting, counts, data_bytes, models_of, quiet, run_build
from changed import rewrite

from glit.api import statistics
from glit.curate.merge import merge
from glit.curate.pair_again import pair_again
from glit.dataset.card import dataset_card
from glit.dataset.manifest import read_manifest
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.doctor.examine import examine
from glit.errors import InputError, RecipeError, RunError, UserError
from glit.exporters import EXPORTERS, export
from glit.pipeline.add import add
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.planning.recipe import load_recipe, recipe_from_dict
from glit.pipeline.retry import retry
from glit.pipeline.stage_task import StageWorker
from glit.storage.store import Store
from glit.training import setup
from glit.training.config import TrainConfig
from glit.training.loop import train
from glit.view.explain import as_text, explain
from glit.view.report import write_report

SMALL = ["ingest.chunk_size=5"]
STEPS = ("ingest", "caption", "split")


@pytest.fixture(scope="module")
def alone(scenes, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "out"
    run_build(
        scenes / "images",
        out,
        recipe="captions-only",
        captions=scenes / "captions.jsonl",
        overrides=SMALL,
    )
    return out


@pytest.fixture(scope="module")
def several(scenes, tmp_path_factory):
    """With a short caption beside the long one."""
    folder = tmp_path_factory.mktemp("several")
    with (folder / "captions.jsonl").open("w") as file:
        for line in (scenes / "captions.jsonl").read_text().splitlines():
            row = json.loads(line)
            short = {**row, "caption": f"A picture, {row['path']}.", "kind": "short"}
            file.writelines(json.dumps(each) + "\n" for each in ({**row, "kind": "long"}, short))
    run_build(
        scenes / "images",
        folder / "out",
        recipe="captions-only",
        captions=folder / "captions.jsonl",
        limit=8,
    )
    assert list(verify(str(folder / "out"))) == []
    return folder / "out"


def test_it_has_every_column_and_runs_three_stages(alone, built):
    manifest = read_manifest(Store(alone))
    assert not manifest.recipe.has_regions and manifest.recipe.tables["propose"] == {
        "enabled": False
    }
    assert set(manifest.fingerprints) == {*STEPS, "pack"}
    assert manifest.recipe.tables.keys().isdisjoint({"score", "pair"})
    assert set(manifest.models) == {"tokenizer"}
    dataset = Dataset(alone)
    assert dataset.schema.names == Dataset(built).schema.names
    row = dataset[0]
    assert (row.regions, row.pairs, row.image_similarity) == ((), (), None)
    assert row.similarity.shape == (len(row.sentences), 0) and row.sentences
    assert list(verify(str(alone))) == []


def test_no_matcher_is_asked_for():
    recipe = load_recipe("flism", overrides=["propose.enabled=false", "caption.backend=provided"])
    assert {role: each.name for role, each in models_of(recipe).items()} == {
        "tokenizer": "clip-tokenizer"
    }
    again = recipe_from_dict(recipe.as_dict())
    assert again.as_dict() == recipe.as_dict()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("pair.rule=lism", r"propose\.enabled = false turns \[pair\] off"),
        ("score.model=clip-vit-b-16", r"turns \[score\] off"),
        ("propose.backend=grid", r"turns \[propose\] off"),
    ],
)
def test_settings_of_what_is_off_are_refused(setting, said):
    with pytest.raises(RecipeError, match=said):
        load_recipe("captions-only", overrides=[setting])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[ground]\nenabled = true\n", r"\[ground\] reads 'regions', which no enabled step"),
        ("[score]\nmin_caption_similarity = 0.2\n", "propose.enabled = false turns score off"),
    ],
)
def test_tables_that_want_regions_are_refused(scenes, tmp_path, text, said):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'base = "captions-only"\n{text}')
    with pytest.raises(RecipeError, match=said):
        run_build(
            scenes / "images",
            tmp_path / "out",
            recipe=str(recipe),
            captions=scenes / "captions.jsonl",
        )


def test_false_sentences_need_no_regions(scenes, tmp_path):
    run_build(
        scenes / "images",
        tmp_path / "out",
        recipe="captions-only",
        captions=scenes / "captions.jsonl",
        overrides=["negatives.enabled=true"],
        limit=4,
    )
    assert list(verify(str(tmp_path / "out"))) == []
    assert any(row.extra["negatives"] for row in Dataset(tmp_path / "out"))


def test_a_build_that_was_stopped_goes_on_to_the_same_bytes(scenes, alone, tmp_path, monkeypatch):
    run = StageWorker.run
    seen = []

    def stopped(self, unit, excluded):
        seen.append(unit)
        if self._name == "split" and len(seen) > 8:
            raise RunError("stopped")
        return run(self, unit, excluded)

    words = {
        "recipe": "captions-only",
        "captions": scenes / "captions.jsonl",
        "overrides": SMALL,
    }
    with monkeypatch.context() as patched, pytest.raises(RunError, match="stopped"):
        patched.setattr(StageWorker, "run", stopped)
        run_build(scenes / "images", tmp_path / "out", **words)
    executor = Counting()
    run_build(scenes / "images", tmp_path / "out", executor=executor, **words)
    assert 0 < sum(executor.stages.values()) < 15  # of three stages and five chunks
    assert data_bytes(tmp_path / "out") == data_bytes(alone)


def test_it_grows_and_drops_come_back(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    names = sorted(path.name for path in (scenes / "images").glob("*.png"))
    lines = (scenes / "captions.jsonl").read_text().splitlines(keepends=True)
    for name in names[:6]:
        shutil.copy2(scenes / "images" / name, images)
    captions = tmp_path / "captions.jsonl"
    captions.write_text("".join(line for line in lines if names[2] not in line))
    out = tmp_path / "out"
    run_build(images, out, recipe="captions-only", captions=captions)
    assert read_manifest(Store(out)).counts.drops == {"caption/no_caption": 1}
    captions.write_text("".join(lines))
    assert counts(retry(str(out), LocalExecutor(), quiet())) == (6, 6, 0, 0)
    for name in names[6:9]:
        shutil.copy2(scenes / "images" / name, images)
    added = add(str(out), LocalExecutor(), quiet())
    assert counts(added.manifest) == (9, 9, 0, 0)
    assert list(verify(str(out))) == []
    for setting in ("propose.enabled=true", "propose.backend=grid"):
        with pytest.raises(UserError):
            retry(str(out), LocalExecutor(), quiet(), settings=[setting])


def test_a_retry_cannot_turn_regions_off(built_copy):
    with pytest.raises(UserError, match="decides which steps the dataset has"):
        retry(str(built_copy), LocalExecutor(), quiet(), settings=["propose.enabled=false"])


def test_regions_of_a_file_are_refused(scenes, tmp_path):
    with pytest.raises(UserError, match=r"propose\.enabled = false"):
        run_build(
            scenes / "images",
            tmp_path / "out",
            recipe=load_recipe("captions-only", overrides=["caption.backend=provided"]).name,
            captions=scenes / "captions.jsonl",
            regions=scenes / "captions.jsonl",
        )


@pytest.mark.slow
def test_merged_with_others_each_row_keeps_what_it_has(scenes, alone, tmp_path):
    words = {"captions": scenes / "captions.jsonl", "limit": 4}
    tokens = ["split.tokenizer=clip-tokenizer"]
    run_build(scenes / "images", tmp_path / "with", recipe="mini", overrides=tokens, **words)
    run_build(scenes / "images", tmp_path / "first", recipe="captions-only", **words)
    for at, parts in enumerate((("with", alone), (alone, "with"), ("first", alone))):
        opened = [Dataset(tmp_path / part) for part in parts]
        out = tmp_path / f"merged-{at}"
        manifest = merge(opened, out, quiet())
        assert manifest.recipe.has_regions is ("with" in parts)
        assert list(verify(str(out))) == []
    without = [not row.regions for row in Dataset(tmp_path / "merged-0")]
    assert (without.count(False), without.count(True)) == (4, 20)


def test_rows_with_traces_of_regions_are_breaches(alone, tmp_path):
    copy = shutil.copytree(alone, tmp_path / "copy")
    region = {"x0": 0, "y0": 0, "x1": 9, "y1": 9, "score": 1, "label": "", "source": "grid"}

    def change(rows):
        for row, regions in ((rows[0], []), (rows[1], [region])):
            number = len(row["sentences"])
            row.update(regions=regions, image_similarity=[0.0] * number)
            row.update(similarity=[0.0] * number * len(regions))

    rewrite(copy, change)
    one, other = [line for line in verify(str(copy)) if "the number of" not in line]
    assert ": its image_similarity has " in one and " values, not 0 for " in one
    assert other.endswith(": 1 regions in a dataset of captions alone")


def test_every_reader_takes_it_or_says_why_not(alone, tmp_path):
    dataset = Dataset(alone)
    card = dataset_card(dataset.manifest, statistics(alone))
    assert "region-grounding" not in card and "without a pair" not in card
    told = as_text(explain(dataset, dataset[0].source_path))
    assert "no regions: a dataset of captions alone" in told and "rule" not in told
    page = write_report(dataset, tmp_path / "page.html")
    assert page["story"]["rule"] == "" and page["totals"]["pairs"] == 0
    for name in EXPORTERS:
        if EXPORTERS[name].needs_regions:
            with pytest.raises(InputError, match="a dataset of captions alone"):
                export(dataset, to=name, output=tmp_path / name)
        elif name != "lance":
            export(dataset, to=name, output=tmp_path / name)
            assert any((tmp_path / name).iterdir())
    captions = json.loads((tmp_path / "coco" / "captions.json").read_text())
    assert len(captions["annotations"]) == len(dataset)
    with pytest.raises(InputError, match="captions alone, and glit pair wants"):
        pair_again(dataset, tmp_path / "paired")


@pytest.mark.parametrize("objective", ["clip", "siglip", "finelip", "long-clip"])
def test_objectives_of_whole_images_train_on_it(several, tiny_clip, tmp_path, objective):
    config = TrainConfig(
        model=str(tiny_clip), objective=objective, batch_size=4, epochs=1, warmup_steps=0,
        num_workers=0, caption="sample" if objective == "clip" else "long",
    )  # fmt: skip
    result = train(config, str(several), tmp_path / "run")
    assert result.step == 2
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert all(math.isfinite(json.loads(line)["loss"]) for line in lines)


def test_objectives_of_regions_say_so(alone, monkeypatch):
    monkeypatch.setattr(setup, "open_model", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(InputError, match="captions alone, and train.objective = 'goal' learns"):
        setup.prepare(TrainConfig(model="mini-matcher", objective="goal", batch_size=4), str(alone))


def test_doctor_asks_for_no_matcher_and_warns_of_none(photographs):
    report = examine(
        "captions-only",
        settings=["caption.backend=sidecar"],
        images=str(photographs),
        all_recipes=False,
    )
    assert not any("procedural scenes" in each.found for each in report.findings)
    assert [m.name for m in report.models if "captions-only" in m.recipes] == ["clip-tokenizer"]
