"""The stage that looks for a caption's own phrases."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from building import Counting, data_bytes, run_build
from changed import rewrite
from scored import sentence
from tiny_grounders import dino, sam3

import glit
from glit.data.geometry import iou
from glit.data.records import Box, Caption, Region, Sample
from glit.data.rle import mask_text
from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.dataset.row import masks_of
from glit.dataset.verify import verify
from glit.errors import DatasetError, RecipeError, WeightsError
from glit.scenes import write_scenes
from glit.stages.ground import GroundConfig, GroundStage
from glit.view.explain import as_text, explain

ON = ("ground.enabled=true", "ground.model=mini-grounder")


def built(scenes, output, *settings: str, **rest) -> Dataset:
    run_build(
        scenes / "images", output, captions=scenes / "captions.jsonl", overrides=settings, **rest
    )
    return Dataset(str(output))


@pytest.fixture(scope="module")
def grounded(scenes, tmp_path_factory) -> Dataset:
    return built(scenes, tmp_path_factory.mktemp("grounded") / "dataset", *ON)


def test_phrases_stand_in_the_caption_and_groundings_name_what_is_there(grounded):
    assert not list(verify(grounded.path))
    for row in grounded:
        for phrase in row.extra["phrases"]:
            start, end = phrase["char_start"], phrase["char_end"]
            sentence = row.sentences[phrase["sentence"]]
            assert row.caption.text[start:end] == phrase["text"]
            assert sentence.char_start <= start < end <= sentence.char_end
            assert sentence.token_start <= phrase["token_start"] < phrase["token_end"]
            assert phrase["token_end"] <= sentence.token_end
        keys = [(each["phrase"], each["region"]) for each in row.extra["groundings"]]
        assert len({*keys}) == len(keys) > 0
        for each in row.extra["groundings"]:
            assert 0 <= each["phrase"] < len(row.extra["phrases"])
            assert 0 <= each["region"] < len(row.regions) and 0.3 <= each["score"] <= 1
        for region in row.regions:
            assert region.source != "phrase" or region.label in row.caption.text


def test_the_regions_before_it_stay_and_the_scores_count_all(grounded, built_plain):
    for row, plain in zip(grounded, built_plain, strict=True):
        assert row.regions[: len(plain.regions)] == plain.regions
        assert row.similarity.shape == row.agreement.shape == (len(row.sentences), len(row.regions))
        # rounded to five decimals, and computed in another batch
        before = row.similarity[:, : len(plain.regions)]
        np.testing.assert_allclose(before, plain.similarity, rtol=0, atol=1.1e-5)
        added = [region for region in row.regions if region.source == "phrase"]
        assert len(row.regions) == len(plain.regions) + len(added)
        boxes = np.array([r.box.xyxy for r in row.regions if not r.is_grid])
        assert (np.triu(iou(boxes, boxes), 1) < 0.9).all()


@pytest.fixture(scope="module")
def built_plain(scenes, tmp_path_factory) -> Dataset:
    return built(scenes, tmp_path_factory.mktemp("plain") / "dataset")


def test_fingerprints_change_from_there_on(grounded, built_plain):
    before, now = (each.manifest.fingerprints for each in (built_plain, grounded))
    same = {name for name in before if now[name] == before[name]}
    assert same == {"ingest", "caption", "split", "propose"}
    assert "ground" not in before and "grounder" in grounded.manifest.models


def test_without_added_regions_only_what_fits_together_is_kept(scenes, tmp_path, built_plain):
    found = built(scenes, tmp_path / "out", *ON, "ground.add_regions=false", limit=6)
    before = {row.sample_id: row.regions for row in built_plain}
    assert {row.sample_id: row.regions for row in found}.items() <= before.items()
    assert any(row.extra["groundings"] for row in found)


@pytest.mark.slow
def test_stopped_anywhere_it_goes_on_to_the_same_bytes(scenes, tmp_path, grounded):
    with pytest.raises(KeyboardInterrupt):
        built(scenes, tmp_path / "out", *ON, executor=Counting(9))
    built(scenes, tmp_path / "out", *ON)
    assert data_bytes(tmp_path / "out") == data_bytes(Path(grounded.path))


def test_phrases_and_groundings_in_sql_and_explain(grounded):
    [(phrases, found)] = query(
        grounded.path, "SELECT (SELECT count(*) FROM phrases), (SELECT count(*) FROM groundings)"
    ).fetchall()
    assert phrases == sum(len(row.extra["phrases"]) for row in grounded)
    assert found == sum(len(row.extra["groundings"]) for row in grounded)
    text = as_text(explain(grounded, grounded[0].source_path))
    assert f"{grounded[0].extra['phrases'][1]['text']!r}: " in text and "groundings:" not in text


@pytest.mark.parametrize("to", ["mdetr", "grit", "odvg"])
def test_exports_at_the_level_of_phrases(grounded, tmp_path, to):
    glit.export(grounded.path, to=to, output=tmp_path / "out")
    row = grounded[0]
    spans = {
        (phrase["char_start"], phrase["char_end"])
        for number, phrase in enumerate(row.extra["phrases"])
        if any(each["phrase"] == number for each in row.extra["groundings"])
    }
    assert spans and spans == _spans(to, tmp_path / "out", row)


def _spans(to, folder, row) -> set[tuple[int, int]]:
    """Characters that have a box in the first row's export."""
    if to == "odvg":
        line = json.loads((folder / "annotations.jsonl").read_text().splitlines()[0])
        for region in line["grounding"]["regions"]:
            [(start, end)] = region["tokens_positive"]
            assert line["grounding"]["caption"][start:end] == region["phrase"]
        return {tuple(r["tokens_positive"][0]) for r in line["grounding"]["regions"]}
    if to == "grit":
        import pyarrow.parquet as pq

        chunks = pq.read_table(folder / "grit-00000.parquet")["noun_chunks"][0].as_py()
        assert all(0 <= edge <= 1 for chunk in chunks for edge in chunk[2:6])
        return {(int(chunk[0]), int(chunk[1])) for chunk in chunks}
    found = json.loads((folder / "annotations.json").read_text())
    return {tuple(s) for a in found["annotations"] if a["image_id"] == 1
            for s in a["tokens_positive"]}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "change", "fault"),
    [
        ("groundings", {"region": 99}, "a grounding names a region that the sample does not have"),
        ("groundings", {"phrase": -1}, "a grounding names a phrase that the sample does not have"),
        ("groundings", {"score": float("nan")}, "a grounding's score is not finite"),
        ("phrases", {"char_end": 10**6}, "a phrase's character span leaves the caption"),
        ("phrases", {"token_start": -2}, "a token span is empty or impossible"),
        ("phrases", {"sentence": 99}, "a phrase names a sentence that the sample does not have"),
    ],
)
def test_a_stranger_s_groundings_are_checked(grounded, tmp_path, column, change, fault):
    shutil.copytree(grounded.path, tmp_path / "copy")
    rewrite(tmp_path / "copy", lambda rows: rows[0][column][0].update(change))
    assert any(fault in line for line in verify(str(tmp_path / "copy")))
    for to in ("odvg", "mdetr"):
        with pytest.raises(DatasetError, match=fault):
            glit.export(tmp_path / "copy", to=to, output=tmp_path / to)


class Told:
    """A grounder that answers what it is told."""

    def __init__(self, *boxes: tuple[float, float, float, float], masks=()) -> None:
        from glit.models.backends.protocols import PhraseDetections

        scores = np.linspace(0.9, 0.5, len(boxes), dtype=np.float32)
        self.answer = PhraseDetections(
            boxes=np.array(boxes, dtype=np.float64).reshape(-1, 4), scores=scores, masks=masks
        )

    def find(self, images, phrases):
        return [[self.answer] * len(each) for each in phrases]


def sample(*regions: Region) -> Sample:
    text = "A small dog sleeps."
    caption = Caption(text=text, kind="", model="", revision="", prompt_sha256="")
    return Sample(
        sample_id="0" * 64, source_path="a.png", width=100, height=100, num_bytes=1,
        caption=caption, sentences=(sentence(text, token_end=6),), regions=regions,
    )  # fmt: skip


def region(*box: float, source: str = "yolos") -> Region:
    return Region(
        box=Box(x0=box[0], y0=box[1], x1=box[2], y1=box[3]), score=0.5, label="", source=source
    )


class Images:
    def each(self, samples):
        return (np.zeros((100, 100, 3), dtype=np.uint8) for _ in samples)


def ground(grounder, *regions: Region, **options) -> Sample:
    from glit.models.tokenizer import TextTokenizer
    from glit.recipes.resources import mini_model

    tokenizer = TextTokenizer(mini_model("matcher"))
    stage = GroundStage(GroundConfig(**options), grounder, tokenizer)
    [found] = stage.process([sample(*regions)], Images())
    return found


def test_a_box_that_is_a_region_joins_it_and_another_is_added():
    found = ground(Told((0, 0, 50, 50), (50, 50, 99, 99)), region(0, 0, 50, 48))
    assert [r.source for r in found.regions] == ["yolos", "phrase"]
    assert found.regions[1].label == "A small dog" and found.regions[1].score == 0.5
    assert [g["region"] for g in found.extra["groundings"]] == [0, 1]


def test_a_cell_of_the_grid_never_takes_the_place_of_a_box():
    cell = region(0, 0, 50, 50, source="quadrant")
    assert len(ground(Told((0, 0, 50, 50)), cell).regions) == 2
    kept = ground(Told((0, 0, 50, 50)), cell, add_regions=False)
    assert kept.regions == (cell,) and len(kept.extra["groundings"]) == 1


def test_two_boxes_on_one_region_count_once():
    found = ground(Told((0, 0, 50, 50), (0, 0, 50, 47)), region(0, 0, 50, 49), same_iou=0.5)
    assert [g["score"] for g in found.extra["groundings"]] == [pytest.approx(0.9)]


def test_masks_are_kept_of_regions_that_are_added_and_marked():
    """The first box is a region already; the third's mask is beside it, the fourth has none."""
    boxes = (0, 0, 50, 50), (50, 50, 90, 90), (0, 60, 20, 90), (60, 0, 90, 20)
    inside = [np.zeros((100, 100), dtype=bool) for _ in boxes]
    for mask, (x0, y0, x1, y1) in zip(inside, [*boxes[:2], boxes[0], boxes[3]], strict=True):
        mask[y0:y1, x0:x1] = True
    masks = tuple(mask_text(mask, height=100, width=100) for mask in inside[:3])
    found = ground(
        Told(*boxes, masks=(*masks, "")), region(0, 0, 50, 48), backend="sam3", keep_masks=True
    )
    assert [r.source for r in found.regions] == ["yolos", "phrase", "phrase", "phrase"]
    assert found.extra["masks"] == [{"region": 1, "counts": masks[1]}]
    assert "masks" not in ground(Told(*boxes), region(0, 0, 50, 48)).extra


@pytest.mark.slow
def test_masks_of_proposer_and_grounder_share_a_column(tmp_path):
    write_scenes(tmp_path / "scenes", num=3, seed=2_000_300, masks=True)
    model = sam3(tmp_path / "sam3")
    settings = [
        "propose.backend=sa1b", "ground.enabled=true", "ground.backend=sam3",
        f"ground.model={model}", "ground.threshold=0",
    ]  # fmt: skip

    def made(name: str, *more: str) -> Dataset:
        return glit.build(
            tmp_path / "scenes" / "images", tmp_path / name, recipe="lism-mini",
            captions=tmp_path / "scenes" / "captions.jsonl", settings=[*settings, *more],
            executor="local", quiet=True,
        )  # fmt: skip

    both = made("both", "propose.keep_masks=true", "ground.keep_masks=true")
    proposed, found = made("one", "propose.keep_masks=true"), made("two", "ground.keep_masks=true")
    for dataset in (both, proposed, found):
        assert list(verify(dataset.path)) == []
        assert dataset.schema.names.count("masks") == 1
    number = 0
    for row, of_proposer, of_grounder in zip(both, proposed, found, strict=True):
        masks = masks_of(row)
        assert masks == masks_of(of_proposer) | masks_of(of_grounder)
        first = [i for i, each in enumerate(row.regions) if each.source != "phrase"]
        assert sorted(masks_of(of_proposer)) == first
        number += len(row.regions) - len(first)
    assert number > 0


def test_masks_of_regions_that_are_not_added_are_refused():
    with pytest.raises(RecipeError, match=r"keep_masks: add_regions = false adds no region"):
        GroundConfig(backend="sam3", keep_masks=True, add_regions=False)


def test_a_phrase_that_is_not_found_is_no_error():
    found = ground(Told(), region(0, 0, 50, 50))
    assert len(found.extra["phrases"]) == 1 and found.extra["groundings"] == []


def test_a_detector_that_fails_drops_the_sample_with_its_message():
    class Broken:
        def find(self, images, phrases):
            raise FloatingPointError("the detector answered NaN or infinity")

    assert ground(Broken(), region(0, 0, 9, 9)).reason == "model_error"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("ground.threshold=2", r"threshold: found 2.0, want 0 to 1"),
        ("ground.max_boxes=0", r"max_boxes: found 0, want >= 1"),
        ("ground.same_iou=0", r"same_iou: found 0.0"),
        ("ground.backend=sam", r"backend: found 'sam'"),
        ("ground.keep_masks=true", r"backend = 'zero-shot' has no masks; take sam3"),
        ("pair.grounding_weight=-1", "grounding_weight: found -1"),
    ],
)
def test_values_that_cannot_be(scenes, tmp_path, setting, message):
    rule = ("pair.rule=centred",)
    with pytest.raises(RecipeError, match=message):
        built(scenes, tmp_path / "out", *ON, *rule, setting)


def test_a_rule_that_wants_a_grounder_is_refused_without_one(scenes, tmp_path, built_plain):
    wanted = ["pair.rule=centred", "pair.grounding_weight=5"]
    with pytest.raises(RecipeError, match="grounding_weight: wants a build with ground.enabled"):
        built(scenes, tmp_path / "out", *wanted)
    with pytest.raises(RecipeError, match="grounding_weight: wants a build with ground.enabled"):
        glit.pair(built_plain.path, tmp_path / "again", settings=wanted)


def test_what_is_no_grounder_is_refused_before_the_first_image(scenes, tmp_path):
    with pytest.raises(WeightsError, match="model_type 'clip', but ground.backend"):
        built(scenes, tmp_path / "out", "ground.enabled=true", "ground.model=mini-matcher")


@pytest.mark.slow
def test_the_recipe_with_its_calibration(scenes, tmp_path):
    run_build(
        scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl",
        recipe="grounded-mini",
    )  # fmt: skip
    pairs = [pair for row in Dataset(str(tmp_path / "out")) for pair in row.pairs]
    assert all(pair.global_wins == (pair.probability < 0.5) for pair in pairs)
    assert not list(verify(str(tmp_path / "out")))


@pytest.mark.slow
def test_a_detector_of_another_architecture_builds_too(scenes, tmp_path):
    model = dino(tmp_path / "dino", mm=True)
    found = built(scenes, tmp_path / "out", "ground.enabled=true", f"ground.model={model}",
                  "ground.threshold=0.0", limit=3)  # fmt: skip
    assert not list(verify(found.path)) and len(found) == 3
