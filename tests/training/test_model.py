"""One pass over globals and locals gives what separate passes of CLIPModel give."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import CLIPModel

from glit.dataset.reader import Dataset
from glit.images import decode
from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.pooling import patch_mask
from glit.models.clip.preprocess import crop, fit_image
from glit.models.clip.text_window import stretch_model
from glit.training.batch import Batch, collate
from glit.training.model import TrainedModel
from glit.training.objective import InputSpec
from glit.training.objectives.goal import FastGoal
from glit.training.planning import plan_sample
from glit.training.sample import PlannedSample

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling(FastGoal):
    """Wants so many local pairs, pooled."""

    num_local: int

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_local=self.num_local, pooled_patches=True, pooled_tokens=True)


def trained(model: CLIPModel, *, num_local: int) -> TrainedModel:
    encoder = ClipEncoder(model, mean=MEAN, std=STD)
    return TrainedModel(encoder, Pooling(num_local=num_local))


def first_samples(folder, tokenizer, *, num_local, context) -> tuple[list[PlannedSample], Batch]:
    """All samples of the first row group, alone and as a batch."""
    objective = Pooling(num_local=num_local)
    group = Dataset(folder).row_group(0)
    samples = [
        plan_sample(group, row, objective, side=32, fit="resize", draw=np.random.default_rng(0))
        for row in range(len(group))
    ]
    batch, places = collate(
        samples,
        lambda texts: tokenizer.encode_closed(texts, context=context),
        objective.needs,
        side=32,
        context=context,
        pad_id=tokenizer.end_id,
    )
    for sample, place in zip(samples, places, strict=True):
        image = sample.encoded(crops=True)
        image.write_pixels(place.whole, place.crops, fit="resize")
    return samples, batch


def pixels_of(sample: PlannedSample) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The whole image and the crops, fitted one by one."""
    image = decode(sample.group.image(sample.row))
    cut = [crop(image, np.array(pair.box_xyxy)) for pair in sample.pairs]
    whole, *crops = (fit_image(each, side=32, fit="resize") for each in (image, *cut))
    return whole, crops


@pytest.fixture()
def setting(tiny_clip, tokenizer, make_dataset):
    model = CLIPModel.from_pretrained(tiny_clip)
    stretch_model(model, 248)
    samples, batch = first_samples(make_dataset(3), tokenizer, num_local=2, context=248)
    return model, trained(model.eval(), num_local=2), batch, samples


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(v)[:, None, None] for v in (MEAN, STD))
    return (pixels.float() / 255 - mean) / std


@torch.no_grad()
def test_embeddings_are_those_of_the_model(setting, tokenizer) -> None:
    model, encoder, batch, samples = setting
    features, scale = encoder(batch)
    for i, sample in enumerate(samples):
        image, crops = pixels_of(sample)
        whole = model.get_image_features(pixel_values=normalised(image)[None])
        torch.testing.assert_close(features.image_ND[i], F.normalize(whole.pooler_output)[0])
        ids = torch.tensor(tokenizer.encode_closed([sample.caption], context=248))
        text = model.get_text_features(input_ids=ids).pooler_output
        torch.testing.assert_close(features.text_ND[i], F.normalize(text)[0], rtol=1e-4, atol=1e-5)
        for k, pair in enumerate(sample.pairs):
            local = model.get_image_features(pixel_values=normalised(crops[k])[None]).pooler_output
            torch.testing.assert_close(features.local_image_NKD[i, k], F.normalize(local)[0])
            ids = torch.tensor(tokenizer.encode_closed([pair.sentence], context=248))
            text = model.get_text_features(input_ids=ids).pooler_output
            torch.testing.assert_close(
                features.local_text_NKD[i, k], F.normalize(text)[0], rtol=1e-4, atol=1e-5
            )
    assert scale.item() == pytest.approx(model.logit_scale.exp().item())


@torch.no_grad()
def test_pooled_tokens_are_pooled_normed_and_projected(setting, tokenizer) -> None:
    model, encoder, batch, samples = setting
    features, _ = encoder(batch)
    for i, sample in enumerate(samples):
        pixels = normalised(pixels_of(sample)[0])[None]
        patches = model.vision_model(pixel_values=pixels).last_hidden_state[0, 1:]
        ids = torch.tensor(tokenizer.encode_closed([sample.caption], context=248))
        tokens = model.text_model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]
        for k, pair in enumerate(sample.pairs):
            box = torch.from_numpy(sample.boxes_K4[k]).float()[None, None]
            inside = patch_mask(box, patch_size=8, grid=4)[0, 0]
            pooled = model.vision_model.post_layernorm(patches[inside].mean(dim=0))
            wanted = F.normalize(model.visual_projection(pooled), dim=-1)
            torch.testing.assert_close(
                features.pooled_patch_NKD[i, k], wanted, rtol=1e-4, atol=1e-5
            )
            start, end = pair.token_span
            assert ids[0, start:end].tolist() == tokenizer.encode([pair.sentence])[0]
            pooled = model.text_model.final_layer_norm(tokens[start:end].mean(dim=0))
            wanted = F.normalize(model.text_projection(pooled), dim=-1)
            torch.testing.assert_close(
                features.pooled_token_NKD[i, k], wanted, rtol=1e-4, atol=1e-5
            )
    assert bool(features.valid_patch_NK.all()) and bool(features.valid_token_NK.all())


@torch.no_grad()
def test_spans_that_do_not_fit_are_masked_out(setting) -> None:
    """Row 0 has no span; row 1's reaches its caption's end token."""
    _, encoder, batch, _ = setting
    spans = batch.spans_NK2.clone()
    spans[0, 0] = 0
    spans[1, 0, 1] = batch.texts.length_T[1]
    features, _ = encoder(replace(batch, spans_NK2=spans))
    assert features.valid_token_NK[:, 0].tolist() == [False, False, True]
    assert bool(features.valid_patch_NK.all())


@torch.no_grad()
def test_a_region_outside_the_square_is_masked_out(setting) -> None:
    _, encoder, batch, _ = setting
    boxes = batch.boxes_NK4.clone()
    boxes[1, 1] = torch.tensor([-20.0, 0.0, -2.0, 10.0])
    features, _ = encoder(replace(batch, boxes_NK4=boxes))
    assert features.valid_patch_NK.tolist() == [[True, True], [True, False], [True, True]]


def test_captions_longer_than_the_window(tiny_clip, tokenizer, make_dataset) -> None:
    """With a window of 24 the later sentences leave it: their spans are masked."""
    model = CLIPModel.from_pretrained(tiny_clip)
    stretch_model(model, 24)
    samples, batch = first_samples(make_dataset(2), tokenizer, num_local=4, context=24)
    features, _ = trained(model, num_local=4)(batch)
    ends = np.array([[pair.token_span[1] for pair in s.pairs] for s in samples])
    assert features.valid_token_NK.tolist() == (ends <= 23).tolist()
    assert 0 < int(features.valid_token_NK.sum()) < 8


def test_eager_attention_gives_the_same(setting) -> None:
    model, encoder, batch, _ = setting
    with torch.no_grad():
        before, _ = encoder(batch)
        model.set_attn_implementation("eager")
        after, _ = encoder(batch)
    torch.testing.assert_close(before.text_ND, after.text_ND, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        before.pooled_token_NKD, after.pooled_token_NKD, rtol=1e-4, atol=1e-5
    )
