"""Regions by one pass over the image: whose mean they are, at any side and in any batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from building import run_build
from tiny_siglip import write_siglip
from torch.nn.functional import normalize

from glit.dataset.reader import Dataset
from glit.dataset.recorded_rules import scores_of
from glit.errors import RecipeError
from glit.models.backends.matchers import MATCHERS
from glit.models.backends.matchers.clip import ClipMatcher
from glit.models.clip.kinds import open_model
from glit.models.weights import resolve
from glit.recipes.config import as_table
from glit.rules.calibration import Calibration
from glit.rules.logistic import Logistic
from glit.stages.pair import PairConfig
from glit.stages.score import ScoreConfig


def matcher_of(name: str, size: int = 16):
    return ClipMatcher(ScoreConfig(batch_size=size, device="cpu"), resolve(name))


def normalised(image, preprocessing):
    mean, std = (
        torch.tensor(each).view(3, 1, 1) for each in (preprocessing.mean, preprocessing.std)
    )
    return (torch.from_numpy(image).permute(2, 0, 1) / 255 - mean) / std


@torch.no_grad()
def test_they_are_the_unmixed_patches_of_training_under_the_box(tiny_clip) -> None:
    image = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)
    boxes = np.array([[0.0, 0, 8, 8], [8, 8, 24, 16], [4, 0, 12, 8], [0, 0, 32, 32]])
    matcher = matcher_of(str(tiny_clip))
    ((*found, whole),) = matcher.embed_dense([image], [boxes], scale=1)
    model = open_model(tiny_clip)
    model.set_attn_implementation("eager")
    pixels = normalised(image, matcher.preprocessing)[None]
    output = model.vision_model(pixel_values=pixels, output_hidden_states=True)
    before = output.hidden_states[-2]
    itself = torch.full((before.shape[1],) * 2, -torch.inf).fill_diagonal_(0)[None, None]
    last = model.vision_model.encoder.layers[-1](before, attention_mask=itself)
    tokens = (last[0] if isinstance(last, tuple) else last)[0, 1:]
    wanted = [tokens[0], tokens[[5, 6]].mean(0), tokens[:2].mean(0), tokens.mean(0)]
    for own, each in zip(found, wanted, strict=True):
        projected = model.visual_projection(model.vision_model.post_layernorm(each))
        np.testing.assert_allclose(own, normalize(projected, dim=-1).numpy(), atol=1e-5)
    embedding = model.visual_projection(output.pooler_output)[0]
    np.testing.assert_allclose(whole, normalize(embedding, dim=-1).numpy(), atol=1e-5)


@torch.no_grad()
def test_at_another_side_the_positions_are_interpolated_as_transformers_does(tiny_clip) -> None:
    image = np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8)
    matcher = matcher_of(str(tiny_clip))
    ((_, whole),) = matcher.embed_dense([image], [np.array([[0.0, 0, 9, 9]])], scale=2)
    pixels = normalised(image, matcher.preprocessing)
    model = open_model(tiny_clip)
    wanted = model.get_image_features(pixel_values=pixels[None], interpolate_pos_encoding=True)
    np.testing.assert_allclose(whole, normalize(wanted.pooler_output)[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_a_region_does_not_know_what_shares_its_batch(scale) -> None:
    draw = np.random.default_rng(2)
    images = [draw.integers(0, 255, (90, w, 3), np.uint8) for w in (70, 128, 40, 128, 99)]
    boxes = [np.array([[1.5, 2, 30, 40], [0, 0, 39, 89], [8, 8, 9, 9]])] * 5
    many, one = matcher_of("mini-matcher", 64), matcher_of("mini-matcher", 1)
    together = many.embed_dense(images, boxes, scale=scale)
    for own, theirs in zip(one.embed_dense(images, boxes, scale=scale), together, strict=True):
        assert np.isfinite(own).all() and np.array_equal(own, theirs)


def test_a_build_and_what_its_calibrations_are_bound_to(scenes, tmp_path) -> None:
    run_build(
        scenes / "images", tmp_path / "d", captions=scenes / "captions.jsonl", limit=4,
        overrides=["score.crop=dense", "score.dense_scale=1.5", "pair.rule=centred"],
    recipe="mini")  # fmt: skip
    made = Dataset(tmp_path / "d")
    manifest = made.manifest
    assert manifest.recipe.tables["pair"]["logit_scale"] == manifest.logit_scale == 40.3
    assert all(np.isfinite(row.similarity).all() for row in made.rows(images=False))
    scores = scores_of(manifest)
    assert (scores["crop"], scores["dense_scale"]) == ("dense", 1.5)
    config = PairConfig(rule="centred").with_scale(40.3)
    fitted = Calibration(
        rule=config.rule_table(), scores=scores, fitted_on={},
        pair=Logistic(evidence=("value",), mean=(0.0,), scale=(1.0,), weight=(1.0,), bias=0.0),
    )  # fmt: skip
    config.check_calibration(fitted, scores)
    for other in ({"sha256": "0"}, {"dense_scale": 2.0}, {"crop": "tight"}):
        with pytest.raises(RecipeError, match="is for scores of the matcher"):
            config.check_calibration(fitted, {**scores, **other})


def test_a_rule_without_a_scale_takes_the_matchers() -> None:
    config = PairConfig(rule="sinkhorn")
    assert config.with_scale(None) is config.with_scale(100.0) is config
    assert config.rule_table()["logit_scale"] == 100.0
    assert config.with_scale(117.0).make_rule().scale == 117.0
    given = dataclasses.replace(config, options=config.with_scale(40.0).options)
    assert given.with_scale(117.0).make_rule().scale == 40.0
    assert as_table(PairConfig(rule="argmax").with_scale(117.0)) == as_table(PairConfig())


def test_what_cannot_be_dense_is_refused(tmp_path) -> None:
    check = MATCHERS["clip"].check
    assert check is not None
    model = resolve(str(write_siglip(tmp_path)))
    with pytest.raises(RecipeError, match="is a SigLIP"):
        check(ScoreConfig(crop="dense"), model)
    check(ScoreConfig(), model)
    with pytest.raises(RecipeError, match="dense_scale: found 9"):
        ScoreConfig(dense_scale=9)
