"""Adapters of low rank in CLIP's towers, by peft (LoRA; Hu et al., ICLR 2022, section 4.1).

y = W x + b + (alpha / r) B A x;  A [r, in] is drawn at random, B [out, r] begins at zero.

Every linear layer of every block that ``train.lock_image`` and ``train.lock_text`` leave to
training has its A and B: queries, keys, values and outputs of attention, both layers of the MLP. W
and everything else of the towers stay as they were (norms, embeddings, stretched positions,
projections); the logit scale and what the objective brings are learned as without adapters.

A checkpoint's model has W + (alpha / r) B A instead of W, so that whoever loads it needs no
peft. Its ``adapter/`` holds A and B, in peft's own layout; from these training goes on.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glit.errors import InputError, first_line
from glit.recipes.extras import require
from glit.training.config import TrainConfig

if TYPE_CHECKING:
    from transformers import CLIPModel

ADAPTER = "adapter"
"""Folder of a checkpoint with its adapters."""
BESIDE = ("logit_scale", "logit_bias")
"""Parameters that train beside the adapters and are not merged; the bias is SigLIP's."""
_NAME = "default"
"""peft's name for the only adapter of a model."""


def add_adapters(clip: CLIPModel, config: TrainConfig) -> None:
    """Add adapters to a model in place, and freeze the rest of its towers.

    Args:
        clip: whose parameters say which blocks are trained (see :mod:`glit.training.optim`).
        config: rank, alpha, and the seed that A is drawn by.

    Raises:
        MissingExtraError: peft is not installed.
    """
    require("lora", needed_for=f"train.lora_rank = {config.lora_rank}")
    from peft import LoraConfig, inject_adapter_in_model

    chosen = [
        name
        for name, layer in clip.named_modules()
        if isinstance(layer, nn.Linear) and ".layers." in name and layer.weight.requires_grad
    ]
    learns_scale = clip.logit_scale.requires_grad
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        settings = LoraConfig(
            r=config.lora_rank,
            lora_alpha=config.lora_alpha or config.lora_rank,  # pyright: ignore[reportArgumentType]
            target_modules=chosen,
            base_model_name_or_path=config.model,
        )
        inject_adapter_in_model(settings, clip)
    settings.target_modules = sorted(settings.target_modules or ())  # the file is always the same
    clip.logit_scale.requires_grad_(learns_scale)


def has_adapters(clip: CLIPModel) -> bool:
    """Return whether a model has adapters."""
    return hasattr(clip, "peft_config")


@torch.no_grad()
def merged(clip: CLIPModel) -> CLIPModel:
    """A plain model equal to the one with adapters; unadapted parameters are shared."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    weights = {
        name.replace(".base_layer.", "."): value
        for name, value in clip.state_dict().items()
        if ".lora_" not in name
    }
    for name, layer in clip.named_modules():
        if isinstance(layer, BaseTunerLayer):
            adapted: Any = layer
            weights[f"{name}.weight"] = adapted.base_layer.weight + adapted.get_delta_weight(_NAME)
    with torch.device("meta"):
        plain = type(clip)(clip.config)
    plain.load_state_dict(weights, assign=True)
    for name, numbers in clip.named_buffers():  # of positions; no weights, so they are in no dict
        module, _, own = name.rpartition(".")
        plain.get_submodule(module).register_buffer(own, numbers, persistent=False)
    return plain


def write_adapters(folder: Path, clip: CLIPModel) -> None:
    """Write the adapters in the layout of ``PeftModel.from_pretrained``."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    made: Any = clip
    made.peft_config[_NAME].save_pretrained(str(folder))
    weights: dict[str, Tensor] = get_peft_model_state_dict(clip)
    named = {f"base_model.model.{name}": value.contiguous() for name, value in weights.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def read_adapters(checkpoint: Path, clip: CLIPModel) -> None:
    """Load a checkpoint's adapters and logit scale into a model that has adapters, in place.

    Raises:
        InputError: they are missing, damaged, or of other layers or another rank.
    """
    from peft import set_peft_model_state_dict
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    path = checkpoint / ADAPTER / "adapter_model.safetensors"
    try:
        found = {k.removeprefix("base_model.model."): v for k, v in load_file(path).items()}
        with safe_open(checkpoint / "model.safetensors", framework="pt") as whole:
            beside = {n: whole.get_tensor(n) for n in BESIDE if n in set(whole.keys())}
        wanted = {name for name, _ in clip.named_parameters() if ".lora_" in name}
        if {name.replace(".weight", f".{_NAME}.weight") for name in found} != wanted:
            raise ValueError("adapters of other layers than this run's")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the model's own weights are not in the file
            set_peft_model_state_dict(clip, found)
        with torch.no_grad():
            for name, value in beside.items():
                clip.get_parameter(name).copy_(value)
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{path}: these adapters cannot be used ({first_line(error)}), so the run "
            " cannot be resumed from here; start a new run folder"
        ) from error
