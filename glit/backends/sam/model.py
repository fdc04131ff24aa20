"""Segment-anything models of any size, built from a small config and kept as safetensors.

The published builders know three sizes and read pickles; here a frozen config gives the shape, so
that a small model, MobileSAM and ViT-H are the same code, and a folder holds
``model.safetensors`` beside ``config.json``, which also carries the automatic-mask thresholds
fitted to the weights (Segment Anything, Kirillov et al. 2023, sections 3 and B). The published
files, which are pickles, are read by :func:`load_checkpoint`.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from glit.errors import MissingExtraError, WeightsError

if TYPE_CHECKING:
    from segment_anything.modeling import Sam

WEIGHTS_NAME = "model.safetensors"
CONFIG_NAME = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamConfig:
    """The shape of a segment-anything model."""

    encoder: Literal["vit", "tiny_vit"] = "vit"
    """``tiny_vit`` is MobileSAM's, in its published shape with patches of 16: of the fields
    down to ``use_rel_pos`` it takes ``image_size`` alone."""
    image_size: int = 1024
    """Side of the square input in pixels."""
    patch_size: int = 16
    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    global_attn_indexes: tuple[int, ...] = (2, 5, 8, 11)
    """Blocks with global attention; the others use windows."""
    window_size: int = 14
    """Side of the attention window in patches; 0 makes every block global."""
    use_rel_pos: bool = True
    prompt_dim: int = 256
    """Width of the image embedding, the prompt encoder and the decoder."""
    decoder_mlp_dim: int = 2048
    decoder_num_heads: int = 8
    iou_head_dim: int = 256
    pixel_mean: tuple[float, float, float] = (123.675, 116.28, 103.53)
    pixel_std: tuple[float, float, float] = (58.395, 57.12, 57.375)


PRESETS: dict[str, SamConfig] = {
    "vit_b": SamConfig(),
    "vit_l": SamConfig(embed_dim=1024, depth=24, num_heads=16, global_attn_indexes=(5, 11, 17, 23)),
    "vit_h": SamConfig(embed_dim=1280, depth=32, num_heads=16, global_attn_indexes=(7, 15, 23, 31)),
    "mobile_sam": SamConfig(encoder="tiny_vit"),
    "mini": SamConfig(
        image_size=128,
        patch_size=8,
        embed_dim=160,
        depth=4,
        num_heads=4,
        global_attn_indexes=(),
        window_size=0,
        use_rel_pos=False,
        prompt_dim=128,
        decoder_mlp_dim=256,
        decoder_num_heads=4,
        iou_head_dim=128,
        pixel_mean=(127.5, 127.5, 127.5),
        pixel_std=(127.5, 127.5, 127.5),
    ),
}
"""The published sizes, and the mini pack's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskThresholds:
    """Settings of automatic masks that belong to the weights; the defaults are the paper's."""

    points_per_side: int = 32
    """Of the grid of prompts; three masks a point."""
    pred_iou_thresh: float = 0.88
    """Masks must be better than this by the model's own estimate."""
    stability_score_thresh: float = 0.95
    """Least IoU of a mask cut a little higher with the same cut a little lower."""
    stability_score_offset: float = 1.0
    """That little, in logits."""
    box_nms_thresh: float = 0.7
    """Of two masks whose boxes overlap more (IoU), the better one stays."""


def build_sam(config: SamConfig) -> Sam:
    """An untrained model of this shape, in evaluation mode.

    Raises:
        MissingExtraError: when segment-anything is not installed
    """
    try:
        from segment_anything.modeling import MaskDecoder, PromptEncoder, Sam, TwoWayTransformer
    except ImportError as error:
        raise MissingExtraError(
            "segment-anything", extra="sam", needed_for="propose.backend = 'sam'"
        ) from error
    side = config.image_size // config.patch_size
    prompts = PromptEncoder(
        embed_dim=config.prompt_dim,
        image_embedding_size=(side, side),
        input_image_size=(config.image_size, config.image_size),
        mask_in_chans=16,
    )
    decoder = MaskDecoder(
        num_multimask_outputs=3,
        transformer=TwoWayTransformer(
            depth=2,
            embedding_dim=config.prompt_dim,
            mlp_dim=config.decoder_mlp_dim,
            num_heads=config.decoder_num_heads,
        ),
        transformer_dim=config.prompt_dim,
        iou_head_depth=3,
        iou_head_hidden_dim=config.iou_head_dim,
    )
    model = Sam(
        image_encoder=_encoder(config),
        prompt_encoder=prompts,
        mask_decoder=decoder,
        pixel_mean=list(config.pixel_mean),
        pixel_std=list(config.pixel_std),
    )
    return model.eval()


def _encoder(config: SamConfig) -> Any:
    if config.encoder == "tiny_vit":
        from glit.backends.sam.tiny_vit import TinyViT

        return TinyViT(img_size=config.image_size, out_chans=config.prompt_dim)
    from segment_anything.modeling import ImageEncoderViT
    from torch import nn

    norm: Any = partial(nn.LayerNorm, eps=1e-6)
    return ImageEncoderViT(
        img_size=config.image_size,
        patch_size=config.patch_size,
        embed_dim=config.embed_dim,
        depth=config.depth,
        num_heads=config.num_heads,
        mlp_ratio=4,
        norm_layer=norm,
        qkv_bias=True,
        use_rel_pos=config.use_rel_pos,
        global_attn_indexes=config.global_attn_indexes,
        window_size=config.window_size,
        out_chans=config.prompt_dim,
    )


def save_sam(
    model: Sam, config: SamConfig, folder: Path, *, thresholds: MaskThresholds | None = None
) -> None:
    """Write the weights in fp16 and the config; both are read back by :func:`load_sam`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: (value.half() if value.is_floating_point() else value).contiguous()
        for name, value in model.state_dict().items()
    }
    save_file(weights, folder / WEIGHTS_NAME, metadata={"format": "pt"})
    (folder / WEIGHTS_NAME).chmod(0o644)
    described = {
        "model_type": "segment-anything",
        "model": asdict(config),
        "thresholds": asdict(thresholds or MaskThresholds()),
    }
    text = json.dumps(described, indent=2, sort_keys=True)
    (folder / CONFIG_NAME).write_text(text + "\n", encoding="utf-8")


def read_sam_config(folder: Path) -> tuple[SamConfig, MaskThresholds]:
    """The shape and the thresholds of a saved model.

    Raises:
        WeightsError: when the file is missing or is not of this format
    """
    path = folder / CONFIG_NAME
    try:
        described: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        shape, thresholds = described["model"], described["thresholds"]
    except OSError as error:
        raise WeightsError(
            f"{folder}: no {CONFIG_NAME}, wanted a segment-anything folder with {WEIGHTS_NAME} "
            f"and {CONFIG_NAME}; check the path of the model"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(
            f"{path}: not a segment-anything config (wanted the tables model and thresholds); "
            "save the model again with glit.backends.sam.model.save_sam"
        ) from error
    return (
        SamConfig(**_known(SamConfig, shape, path)),
        MaskThresholds(**_known(MaskThresholds, thresholds, path)),
    )


def load_sam(folder: Path) -> tuple[Sam, SamConfig, MaskThresholds]:
    """A saved model in float32 and evaluation mode, with its config and thresholds.

    Raises:
        WeightsError: when weights are missing, half downloaded, or of another shape
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config, thresholds = read_sam_config(folder)
    path = folder / WEIGHTS_NAME
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(
            f"{path}: missing or incomplete ({error}); fetch or copy the weights again"
        ) from error
    model = build_sam(config)
    try:
        model.load_state_dict({name: value.float() for name, value in weights.items()})
    except RuntimeError as error:
        raise WeightsError(
            f"{path}: the weights do not have the shape {CONFIG_NAME} gives; "
            "weights and config must come from one model"
        ) from error
    return model.eval(), config, thresholds


_TINY_VIT_KEY = "image_encoder.patch_embed.seq.0.c.weight"
_VIT_KEY = "image_encoder.patch_embed.proj.weight"
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    pickle.UnpicklingError,
)


def load_checkpoint(path: Path) -> Sam:
    """A published ``sam_vit_{b,l,h}*.pth`` or ``mobile_sam.pt``, told by its own weights.

    The file is a pickle; it is read as plain tensors, without running code.

    Raises:
        WeightsError: when the file is not one of these
    """
    import torch

    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        model = build_sam(_published(weights))
        model.load_state_dict(_without_classifier(weights))
    except _UNREADABLE as error:
        raise WeightsError(
            f"{path}: not a published segment-anything checkpoint of ViT-B, L or H, nor of "
            f"MobileSAM ({type(error).__name__}); give another file as the model"
        ) from error
    return model


def _published(weights: dict[str, Any]) -> SamConfig:
    if _TINY_VIT_KEY in weights:
        return PRESETS["mobile_sam"]
    width = int(weights[_VIT_KEY].shape[0])
    return {PRESETS[name].embed_dim: PRESETS[name] for name in ("vit_b", "vit_l", "vit_h")}[width]


def _without_classifier(weights: dict[str, Any]) -> dict[str, Any]:
    from glit.backends.sam.tiny_vit import CLASSIFIER

    unused = tuple(f"image_encoder.{name}" for name in CLASSIFIER)
    return {name: value for name, value in weights.items() if not name.startswith(unused)}


def _known(kind: type, values: dict[str, Any], path: Path) -> dict[str, Any]:
    """The values with lists made tuples, once every key is known to ``kind``."""
    names = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - names)
    if unknown:
        raise WeightsError(
            f"{path}: unknown key {unknown[0]!r}; the keys are {', '.join(sorted(names))}"
        )
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
