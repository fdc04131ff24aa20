import dataclasses
import math

import numpy as np
import pytest
from building import run_build
from scored import sentence

import glit
from glit.data.records import Box, Caption, Drop, Region, Sample
from glit.dataset.reader import Dataset
from glit.errors import RecipeError
from glit.stages.score import ScoreCaptions, ScoreConfig, ScoreStage


class Directions:
    """A matcher whose embeddings are known: the box's left edge and the sentence's number."""

    def embed_regions(self, images, boxes):
        if any(image.sum() == 0 for image in images):
            raise RuntimeError("black")
        return [np.eye(8, dtype=np.float32)[each[:, 0].astype(int)] for each in boxes]

    def embed_sentences(self, sentences):
        rows = np.eye(8, dtype=np.float32)[[int(s) for s in sentences]]
        rows[[s == "7" for s in sentences]] = np.nan
        return rows


class Pictures:
    def each(self, samples):
        yield from (np.full((4, 4, 3), s.num_bytes, np.uint8) for s in samples)


def make(texts, lefts, value=1):
    regions = tuple(
        Region(box=Box(x0=x, y0=0, x1=x + 1, y1=1), score=1, label="", source="yolos")
        for x in lefts
    )
    return Sample(
        sample_id="0" * 64, source_path="x", width=8, height=8, num_bytes=value,
        sentences=tuple(map(sentence, texts)), regions=regions,
    )  # fmt: skip


def run(samples, **config):
    return list(
        ScoreStage(ScoreConfig(batch_size=3, **config), Directions()).process(samples, Pictures())
    )


def test_every_sample_gets_its_own_rows_whatever_the_batches():
    samples = [make(["1", "2"], [2, 1, 0]), make(["0"], [0]), make(["3", "0"], [3, 0])]
    found = [outcome.scores.similarity.tolist() for outcome in run(samples)]
    assert found == [[[0, 1, 0], [1, 0, 0]], [[1]], [[1, 0], [0, 1]]]


def test_the_whole_image_is_scored_as_well():
    """Its left edge is 0, so its embedding here is that of sentence 0."""
    (outcome,) = run([make(["0", "1"], [1, 2])])
    assert outcome.scores.similarity.tolist() == [[0, 0], [1, 0]]
    assert outcome.scores.image_similarity.tolist() == [1, 0]


def test_nan_and_broken_images_become_drops_and_nothing_shifts():
    outcomes = run(
        [make(["1"], [1]), make(["7"], [1]), make(["1"], [1], value=0), make(["2"], [2])]
    )
    assert [getattr(o, "reason", "") for o in outcomes] == ["", "not_finite", "model_error", ""]
    assert isinstance(outcomes[1], Drop)


def test_scores_come_back_from_their_row():
    (outcome,) = run([make(["1", "2"], [2, 1, 0])])
    row = ScoreStage.row(outcome)
    assert ScoreStage.with_row(make(["1", "2"], [2, 1, 0]), row).scores == outcome.scores


def captioned(text):
    caption = Caption(text=text, kind="provided", model="", revision="", prompt_sha256="")
    sample = make(["0", "1"], [1, 2])
    return dataclasses.replace(sample, caption=caption, sample_id=text.rjust(64, "0"))


def test_captions_below_the_threshold_are_drops_with_the_value():
    """The whole image is the direction 0; a caption of 7 is NaN, and NaN never passes."""
    config = ScoreConfig(batch_size=3, min_caption_similarity=0.5)
    samples = [captioned("0"), captioned("1"), captioned("7")]
    kept, low, nan = ScoreCaptions(config, Directions()).process(samples, Pictures())
    assert kept.extra["caption_similarity"] == 1
    assert low == Drop(
        reason="low_caption_similarity", message="cosine with the caption 0.0000, want 0.5 or more"
    )
    assert nan.reason == "not_finite"
    row = ScoreCaptions.row(kept)
    again = ScoreCaptions.with_row(captioned("0"), row)
    assert again.extra == kept.extra and again.scores == kept.scores


def test_a_build_keeps_the_values_and_drops_below_the_threshold(scenes, tmp_path):
    def build(name, least):
        run_build(
            scenes / "images", tmp_path / name, captions=scenes / "captions.jsonl", limit=6,
            overrides=[f"score.min_caption_similarity={least}"],
        )  # fmt: skip
        assert glit.verify(tmp_path / name) == []
        return Dataset(str(tmp_path / name))

    found = {row.source_path: row.extra["caption_similarity"] for row in build("all", -0.99)}
    assert len(found) == 6 and all(math.isfinite(value) for value in found.values())
    least = sorted(found.values())[3] - 1e-4
    some = build("some", f"{least:.6f}")
    assert {row.source_path for row in some} == {p for p, v in found.items() if v >= least}
    assert {row["reason"] for row in some.drops().to_pylist()} == {"low_caption_similarity"}


def test_off_it_drops_nothing_and_values_that_cannot_be():
    assert ScoreStage.chosen(ScoreConfig()) is ScoreStage
    for value in (math.nan, -2, 1.5):
        with pytest.raises(RecipeError, match="min_caption_similarity: found"):
            ScoreConfig(min_caption_similarity=value)
    with pytest.raises(RecipeError, match="backend = 'file' compares nothing"):
        ScoreConfig(backend="file", min_caption_similarity=0.1)
