"""Segment-anything models: built from a config, saved as safetensors, loaded.

A model folder holds ``model.safetensors`` and ``config.json``: the shape of the model
(:class:`SamConfig`) and the automatic-mask thresholds fitted to its weights
(:class:`MaskThresholds`; Segment Anything, Kirillov et al. 2023, sections 3 and B). The published
checkpoints, which are pickles, are read by :func:`load_checkpoint`.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from glit.errors import WeightsError
from glit.recipes.extras import require

if TYPE_CHECKING:
    from segment_anything.modeling import Sam

WEIGHTS_NAME = "model.safetensors"
CONFIG_NAME = "config.json"
MODEL_TYPE = "segment-anything"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamConfig:
    """The shape of a segment-anything model."""

    encoder: Literal["vit", "tiny_vit"] = "vit"
    """``vit`` is ``ImageEncoderViT``. ``tiny_vit`` is MobileSAM's encoder, whose published shape is
    fixed: of the fields down to ``use_rel_pos`` only ``image_size`` has an effect."""
    image_size: int = 1024
    """Side of the square input in pixels."""
    patch_size: int = 16
    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    global_attn_indexes: tuple[int, ...] = (2, 5, 8, 11)
    """Blocks with global attention; the others have window attention."""
    window_size: int = 14
    """Side of the attention windows in patches; with 0 every block has global attention."""
    use_rel_pos: bool = True
    """Decomposed relative position embeddings in the attention."""
    prompt_dim: int = 256
    """Width of the image embedding, the prompt embeddings and the mask decoder."""
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
"""``vit_b``, ``vit_l``, ``vit_h`` and ``mobile_sam`` are published; ``mini`` is glit's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskThresholds:
    """Arguments of ``SamAutomaticMaskGenerator`` that belong to the weights, with its defaults."""

    points_per_side: int = 32
    """The grid has the square of this many point prompts; each gives three masks."""
    pred_iou_thresh: float = 0.88
    """Masks with a predicted IoU up to this are dropped."""
    stability_score_thresh: float = 0.95
    """Masks with a stability score below this are dropped."""
    stability_score_offset: float = 1.0
    """In logits. The stability score is the IoU of the mask binarised at the mask threshold plus
    this with the mask binarised at the mask threshold minus this."""
    box_nms_thresh: float = 0.7
    """Non-maximum suppression: of two masks whose boxes have a higher IoU, the one with the lower
    predicted IoU is dropped."""


def build_sam(config: SamConfig) -> Sam:
    """A model with random weights, in evaluation mode.

    Raises:
        MissingExtraError: segment-anything is not installed.
    """
    require("sam", needed_for="propose.backend = 'sam'")
    from segment_anything.modeling import MaskDecoder, PromptEncoder, Sam, TwoWayTransformer

    side = config.image_size // config.patch_size
    prompt_encoder = PromptEncoder(
        embed_dim=config.prompt_dim,
        image_embedding_size=(side, side),
        input_image_size=(config.image_size, config.image_size),
        mask_in_chans=16,
    )
    mask_decoder = MaskDecoder(
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
        image_encoder=build_image_encoder(config),
        prompt_encoder=prompt_encoder,
        mask_decoder=mask_decoder,
        pixel_mean=list(config.pixel_mean),
        pixel_std=list(config.pixel_std),
    )
    return model.eval()


def build_image_encoder(config: SamConfig) -> Any:
    """The image encoder alone, with random weights."""
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
    """Write a folder for :func:`load_sam`; floating-point weights are rounded to float16."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: (value.half() if value.is_floating_point() else value).contiguous()
        for name, value in model.state_dict().items()
    }
    save_file(weights, folder / WEIGHTS_NAME, metadata={"format": "pt"})
    (folder / WEIGHTS_NAME).chmod(0o644)
    described = {
        "model_type": MODEL_TYPE,
        "model": asdict(config),
        "thresholds": asdict(thresholds or MaskThresholds()),
    }
    text = json.dumps(described, indent=2, sort_keys=True)
    (folder / CONFIG_NAME).write_text(text + "\n", encoding="utf-8")


def read_sam_config(folder: Path) -> tuple[SamConfig, MaskThresholds]:
    """The shape and the thresholds of a saved model.

    Raises:
        WeightsError: ``config.json`` is missing or has another format.
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
        SamConfig(**_checked(SamConfig, shape, path)),
        MaskThresholds(**_checked(MaskThresholds, thresholds, path)),
    )


def load_sam(folder: Path) -> tuple[Sam, SamConfig, MaskThresholds]:
    """A saved model in float32 and evaluation mode, with its config and thresholds.

    Raises:
        WeightsError: a file is missing or incomplete, or the weights have another shape than
            the config says.
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


# a weight of each image encoder, by which its checkpoints are recognised
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
    """A published ``sam_vit_{b,l,h}*.pth`` or ``mobile_sam.pt``, recognised by its weights' names.

    The file is a pickle; it is read with ``weights_only``, which runs no code of the file.

    Raises:
        WeightsError: the file is not one of these.
    """
    import torch

    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        model = build_sam(_checkpoint_config(weights))
        model.load_state_dict(_without_classifier(weights))
    except _UNREADABLE as error:
        raise WeightsError(
            f"{path}: not a published segment-anything checkpoint of ViT-B, L or H, nor of "
            f"MobileSAM ({type(error).__name__}); give another file as the model"
        ) from error
    return model


def _checkpoint_config(weights: dict[str, Any]) -> SamConfig:
    if _TINY_VIT_KEY in weights:
        return PRESETS["mobile_sam"]
    width = int(weights[_VIT_KEY].shape[0])
    return {PRESETS[name].embed_dim: PRESETS[name] for name in ("vit_b", "vit_l", "vit_h")}[width]


def _without_classifier(weights: dict[str, Any]) -> dict[str, Any]:
    from glit.backends.sam.tiny_vit import CLASSIFIER

    unused = tuple(f"image_encoder.{name}" for name in CLASSIFIER)
    return {name: value for name, value in weights.items() if not name.startswith(unused)}


def _checked(kind: type, values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Arguments of the dataclass ``kind``, lists as tuples; an unknown key is a WeightsError."""
    names = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - names)
    if unknown:
        raise WeightsError(
            f"{path}: unknown key {unknown[0]!r}; the keys are {', '.join(sorted(names))}"
        )
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
