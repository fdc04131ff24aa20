"""A stage is one file and one line in the flow: it drops, adds a column, or adds regions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pytest
from building import Counting, counts, data_bytes, quiet, run_build

import glit
from glit import stages
from glit.data.records import Box, Drop, Region, Sample
from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import RecipeError
from glit.exporters import EXPORTERS
from glit.pipeline.add import add
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.status import status
from glit.recipes.config import is_enabled
from glit.stages.base import Outcome, Stage
from glit.stages.flow import make_flow
from glit.stages.plan import Plan
from glit.view.explain import as_text, explain
from glit.view.report import report_data


@dataclass(frozen=True, slots=True, kw_only=True)
class BrightConfig:
    """How bright an image has to be."""

    enabled: bool = False
    """Whether images are looked at."""
    least: float = 0.0
    """Mean of all pixels, 0 to 255."""


class Bright(Stage):
    """Leaves out images that are too dark."""

    name, version, config = "bright", 1, BrightConfig
    reads, filters, retryable = ("image",), True, True
    reasons: ClassVar = {"too_dark": "its pixels are darker than bright.least"}
    title, shows = "Brightness", "least"

    def __init__(self, least: float) -> None:
        self._least = least

    @classmethod
    def open(cls, plan: Plan) -> Bright:
        return cls(plan.config(BrightConfig).least)

    def process(self, samples: Sequence[Sample], images) -> Iterator[Outcome]:
        for sample, pixels in zip(samples, images.each(samples), strict=True):
            mean = float(pixels.mean())
            low = mean < self._least
            yield Drop(reason="too_dark", message=f"mean {mean:.1f}") if low else sample


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsConfig:
    """Counts words."""

    enabled: bool = False
    """Whether words are counted."""


class Words(Stage):
    """Adds a column with the number of a caption's words."""

    name, version, config = "words", 1, WordsConfig
    reads, makes = ("caption",), ("words",)
    columns = dataset_columns = (("words", pa.int16()),)
    title = "Words"

    @classmethod
    def open(cls, plan: Plan) -> Words:
        return cls()

    def process(self, samples: Sequence[Sample], images) -> Iterator[Outcome]:
        for sample in samples:
            number = len(sample.caption.text.split())
            yield dataclasses.replace(sample, extra={**sample.extra, "words": number})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftConfig:
    """Adds a region."""

    enabled: bool = False
    """Whether it is added."""


class LeftHalf(Stage):
    """Adds the left half of every image to its regions."""

    name, version, config = "left", 1, LeftConfig
    reads = makes = ("regions",)
    columns = stages.ProposeStage.columns

    @classmethod
    def open(cls, plan: Plan) -> LeftHalf:
        return cls()

    def process(self, samples: Sequence[Sample], images) -> Iterator[Outcome]:
        for sample in samples:
            box = Box(x0=0, y0=0, x1=sample.width / 2, y1=sample.height)
            region = Region(box=box, score=1.0, label="left half", source="provided")
            yield dataclasses.replace(sample, regions=(*sample.regions, region))

    row = stages.ProposeStage.row
    with_row = stages.ProposeStage.with_row


ON = ("bright.enabled=true", "bright.least=60", "words.enabled=true", "left.enabled=true")


@pytest.fixture
def open_flow(monkeypatch):
    """Filter after ingest, regions after propose, words at the end: one line each."""
    at = [step.name for step in stages.FLOW].index("propose") + 1
    ingest, *before = stages.FLOW[:at]
    *rest, pack = stages.FLOW[at:]
    steps = (ingest, Bright, *before, LeftHalf, *rest, Words, pack)
    monkeypatch.setattr(stages, "FLOW", steps)


def means(scenes) -> list[float]:
    from glit.images import decode

    return sorted(float(decode(p.read_bytes()).mean()) for p in (scenes / "images").iterdir())


@pytest.fixture
def settings(scenes) -> list[str]:
    """Of 24 scenes seven are too dark."""
    found = means(scenes)
    least = (found[6] + found[7]) / 2
    return [ON[0], f"bright.least={least}", *ON[2:]]


def build(scenes, output, settings=(), **rest):
    return run_build(
        scenes / "images",
        output,
        captions=scenes / "captions.jsonl",
        overrides=list(settings),
        **rest,
    )


def test_steps_that_are_off_change_nothing(open_flow, built, scenes, tmp_path):
    manifest = build(scenes, tmp_path / "out")
    assert manifest.fingerprints == Dataset(built).manifest.fingerprints
    assert data_bytes(tmp_path / "out") == data_bytes(built)
    assert "bright" not in manifest.recipe.tables and not manifest.columns


def test_a_step_that_is_on_changes_fingerprints_from_there_on(open_flow, built, scenes, tmp_path):
    before = Dataset(built).manifest.fingerprints
    found = build(scenes, tmp_path / "out", [ON[3]]).fingerprints
    same = {name for name in before if found[name] == before[name]}
    assert same == {"ingest", "caption", "split", "propose"}


@pytest.mark.slow
def test_a_dropping_a_column_and_a_region_stage(open_flow, scenes, settings, tmp_path):
    out = tmp_path / "out"
    manifest = build(scenes, out, settings)
    assert counts(manifest) == (24, 17, 7, 0)
    assert manifest.counts.drops == {"bright/too_dark": 7}
    assert list(verify(str(out))) == []
    stage = {each["stage"]: each for each in status(str(out))["stages"]}
    assert stage["bright"]["drops"] == {"too_dark": 7}
    assert stage["caption"]["rows"] == stage["propose"]["rows"] == stage["words"]["rows"] == 17

    dataset = Dataset(out)
    for row in dataset:
        assert row.extra == {"words": len(row.caption.text.split())}
        assert row.regions[-1].label == "left half"
        assert row.similarity.shape == (len(row.sentences), len(row.regions))
    assert query(str(out), "SELECT min(words) > 5 FROM samples").fetchall() == [(True,)]
    dropped = query(str(out), "SELECT source_path FROM drops ORDER BY 1 LIMIT 1").fetchall()[0][0]
    assert "its pixels are darker" in as_text(explain(dataset, dropped))
    assert f"words: {dataset[0].extra['words']}" in as_text(
        explain(dataset, dataset[0].source_path)
    )
    page = report_data(dataset, most=5, seed=0, where="words > 5")
    assert {"title": "Brightness"}.items() <= page["story"]["steps"][0].items()
    assert page["left_out"]["drops"][0]["meaning"] == Bright.reasons["too_dark"]
    card = (out / "README.md").read_text()
    assert "Brightness: " in card and '"words"' in card
    for to in EXPORTERS:
        glit.export(out, to=to, output=tmp_path / to)
    paired = glit.pair(out, tmp_path / "paired", settings=["pair.rule=mutual"])
    assert paired[0].extra == dataset[0].extra
    assert list(verify(str(tmp_path / "paired"))) == []


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [1, 3, 5, 8, 12, 16])
def test_stopped_anywhere_it_goes_on_to_the_same_bytes(
    open_flow, scenes, settings, tmp_path, stop_after
):
    build(scenes, tmp_path / "whole", settings)
    with pytest.raises(KeyboardInterrupt):
        build(scenes, tmp_path / "out", settings, executor=Counting(stop_after))
    build(scenes, tmp_path / "out", settings)
    assert data_bytes(tmp_path / "out") == data_bytes(tmp_path / "whole")


@pytest.mark.slow
def test_drops_of_an_added_stage_are_retried_with_its_own_keys(
    open_flow, scenes, settings, tmp_path
):
    out = tmp_path / "out"
    build(scenes, out, settings)
    found = means(scenes)
    least = (found[2] + found[3]) / 2
    manifest = retry(
        str(out), LocalExecutor(), quiet(), reason="too_dark", settings=[f"bright.least={least}"]
    )
    assert counts(manifest) == (24, 21, 3, 0)
    assert list(verify(str(out))) == []
    build(scenes, tmp_path / "once", [ON[0], f"bright.least={least}", *ON[2:]])
    assert data_bytes(out) == data_bytes(tmp_path / "once")


def test_images_can_be_added(open_flow, scenes, settings, tmp_path):
    import shutil

    folder = tmp_path / "in"
    shutil.copytree(scenes / "images", folder)
    late = sorted(folder.iterdir())[20:]
    for path in late:
        path.rename(tmp_path / path.name)
    run_build(folder, tmp_path / "out", captions=scenes / "captions.jsonl", overrides=settings)
    for path in late:
        (tmp_path / path.name).rename(path)
    found = add(str(tmp_path / "out"), LocalExecutor(), quiet())
    assert counts(found.manifest) == (24, 17, 7, 0)
    assert list(verify(str(tmp_path / "out"))) == []


class _Reads(Bright):
    name, reads, filters = "reads", ("masks",), False


class _Replaces(Words):
    name, reads, makes = "replaces", ("image",), ("caption",)


class _Twice(Words):
    name, makes = "again", ("again",)


class _Half(Words):
    name, makes = "half", ("half",)
    columns = dataset_columns = (("half", pa.list_(pa.float16())),)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            _Reads,
            r"\[reads\] reads 'masks', which no enabled step before it makes .they make image",
        ),
        (_Replaces, r"\[replaces\] makes 'caption', which caption has made, without reading it"),
        (stages.CaptionStage, r"\[caption\]: two steps of the flow have this name"),
        (_Half, r"\[half\] adds the column 'half' as list<item: halffloat>; want text"),
        (_Twice, "two stages add the column 'words' to the dataset"),
    ],
)
def test_a_flow_that_does_not_fit_together_is_refused(step, message):
    *most, pack = stages.FLOW
    with pytest.raises(RecipeError, match=message):
        make_flow([*most, Words, step, pack])


@pytest.mark.parametrize("place", range(1, 7))
def test_pack_and_all_that_follows_depend_on_a_filter_wherever_it_stands(place):
    found = make_flow([*stages.FLOW[:place], Bright, *stages.FLOW[place:]])
    for step in stages.FLOW[place:]:
        assert "bright" in found.upstream[step.name]
    assert set(found.upstream["pack"]) == set(found.stages)


def test_what_steps_wait_for_is_as_it_always_was():
    """Without the steps that are off unless a recipe turns them on."""
    everything = make_flow(stages.FLOW).direct
    assert everything["negatives"] == ("split",)
    assert everything["ground"] == ("split", "propose") and everything["score"] == ("ground",)
    found = make_flow([step for step in stages.FLOW if is_enabled(step.config())])
    assert found.direct == {
        "ingest": (), "caption": ("ingest",), "split": ("caption",), "propose": ("ingest",),
        "score": ("split", "propose"), "pair": ("score",), "pack": ("pair",),
    }  # fmt: skip
