"""Segment-anything's checkpoints as folders of transformers: the same answers, read whole or not."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import SamConfig

from glit.bench.lism_flism.published_sam import build_published
from glit.errors import InputError, WeightsError
from glit.models.backends.proposers import PROPOSERS
from glit.models.backends.sam.model import MaskThresholds, load_sam
from glit.models.importers.model import import_model
from glit.models.weights import resolve
from glit.stages.propose import ProposeConfig

_SIZES = {"image_size": 96, "patch_size": 8}
SMALL = SamConfig(
    vision_config={
        **_SIZES, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3,
        "global_attn_indexes": [1], "window_size": 5, "output_channels": 64, "num_pos_feats": 32,
    },
    prompt_encoder_config={**_SIZES, "hidden_size": 64},
    mask_decoder_config={"hidden_size": 64, "mlp_dim": 80, "iou_head_hidden_dim": 48},
)  # fmt: skip
"""Both kinds of attention; windows of 5 do not fit into 12 patches."""


@pytest.fixture
def theirs():
    """segment-anything's model; its weights are small, so that the smallest term counts."""
    torch.manual_seed(0)
    model = build_published(SMALL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.05)
        model.mask_decoder.mask_tokens.weight *= 1e-3
        model.mask_decoder.iou_token.weight *= 1e-3
    return model


@pytest.fixture
def checkpoint(theirs, tmp_path):
    torch.save(theirs.state_dict(), tmp_path / "sam_vit_b_own.pth")
    return tmp_path / "sam_vit_b_own.pth"


def test_it_answers_as_segment_anything_does(theirs, checkpoint, tmp_path, run_glit):
    done = run_glit("import-model", str(checkpoint), "-o", str(tmp_path / "model"))
    assert done.code == 0, done.errors
    number = sum(each.numel() for each in theirs.state_dict().values())
    assert done.output.startswith(f"{number:,} parameters, SHA-256 of the file ")
    sam = load_sam(resolve(str(tmp_path / "model")))
    assert (sam.side, sam.thresholds) == (96, MaskThresholds())
    np.testing.assert_allclose(sam.pixel_mean, theirs.pixel_mean.flatten(), rtol=1e-6)
    np.testing.assert_allclose(sam.pixel_std, theirs.pixel_std.flatten(), rtol=1e-6)
    assert sam.model.config.mask_decoder_config.layer_norm_eps == 1e-5
    pixels, points = torch.randn(1, 3, 96, 96), torch.rand(4, 1, 2) * 96
    with torch.inference_mode():
        found = sam.model(pixel_values=pixels, input_points=points[None])
        embedding = theirs.image_encoder(pixels)
        labels = torch.ones(4, 1)
        sparse, dense = theirs.prompt_encoder(points=(points, labels), boxes=None, masks=None)
        logits, scores = theirs.mask_decoder(
            image_embeddings=embedding,
            image_pe=theirs.prompt_encoder.get_dense_pe(),
            sparse_prompt_embeddings=sparse,
            dense_prompt_embeddings=dense,
            multimask_output=True,
        )
        same = sam.model.vision_encoder(pixels).last_hidden_state
    np.testing.assert_allclose(same, embedding, atol=1e-5)
    np.testing.assert_allclose(found.pred_masks[0], logits, atol=1e-5)
    np.testing.assert_allclose(found.iou_scores[0], scores, atol=1e-5)


def test_a_build_wants_the_folder_and_says_how_to_make_it(checkpoint, tmp_path):
    make = PROPOSERS["sam"].make
    with pytest.raises(WeightsError, match=rf"single file, .*import-model {checkpoint} -o FOLDER"):
        make(ProposeConfig(device="cpu"), resolve(str(checkpoint)))
    import_model(checkpoint, tmp_path / "model")
    config = ProposeConfig(device="cpu")
    detector = make(config, resolve(str(tmp_path / "model")))
    assert len(detector.masks.model.vision_encoder.layers) == 3


def test_what_is_no_whole_checkpoint_of_it(theirs, tmp_path):
    weights = theirs.state_dict()
    noisy = weights | {"prompt_encoder.no_mask_embed.weight": torch.full((1, 64), torch.nan)}
    few = {name: value for name, value in weights.items() if "hypernetworks_mlps.2" not in name}
    mobile = {"image_encoder.patch_embed.seq.0.c.weight": torch.zeros(32, 3, 3, 3)}
    more = weights | {"mask_decoder.hf_token.weight": torch.zeros(1, 64)}
    for changed, message in (
        (noisy, "no_mask_embed.weight is not finite"),
        (few, "output_hypernetworks_mlps.2"),
        (more, "mask_decoder.hf_token.weight"),
        (mobile, "not a checkpoint of segment-anything's ViT-B, L or H"),
    ):
        torch.save(changed, tmp_path / "x.pth")
        with pytest.raises(WeightsError, match=message):
            import_model(tmp_path / "x.pth", tmp_path / "out")
        assert not (tmp_path / "out").exists()
    torch.save(weights, tmp_path / "x.pth")
    for like, activation in (("clip-vit-b-16", None), ("", "gelu")):
        with pytest.raises(InputError, match="no --like and no --activation"):
            import_model(tmp_path / "x.pth", tmp_path / "out", like=like, activation=activation)


@pytest.mark.parametrize("kind, layers", [("b", 12), ("l", 24), ("h", 32)])
def test_the_shape_of_published_checkpoints_is_read_from_their_tensors(kind, layers):
    from glit.models.importers.sam import sam_config, sam_weights

    shapes = {"b": (768, 12, [2, 5, 8, 11]), "l": (1024, 16, [5, 11, 17, 23])}
    width, heads, globally = shapes.get(kind, (1280, 16, [7, 15, 23, 31]))
    wanted = SamConfig(
        vision_config={
            "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
            "global_attn_indexes": globally,
        }
    )  # fmt: skip
    with torch.device("meta"):
        weights = sam_weights(build_published(wanted).state_dict())
    found = sam_config(weights).to_dict()
    found["mask_decoder_config"]["layer_norm_eps"] = 1e-6
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(wanted.to_dict()))
    number = {"b": 93_735_472, "l": 312_342_832, "h": 641_090_608}[kind]
    assert sum(each.numel() for each in weights.values()) == number + 256
