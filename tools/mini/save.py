"""Exports: half-precision safetensors and the files each model class expects beside them."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import (
    CLIPImageProcessor,
    CLIPModel,
    CLIPTokenizer,
    LlavaNextForConditionalGeneration,
    LlavaNextProcessor,
    PreTrainedModel,
    YolosForObjectDetection,
    YolosImageProcessor,
)

from tools.mini.pool import IMAGE_PX

MEAN = STD = (0.5, 0.5, 0.5)


def replace_folder(new: Path, folder: Path) -> None:
    """Put a finished export where readers look for it."""
    if folder.exists():
        shutil.rmtree(folder)
    new.rename(folder)


def save_model(model: PreTrainedModel, folder: Path) -> None:
    """Weights in fp16, to be loaded as float32: the config says so, and small models can afford it.

    Whoever reads the folder on a CPU then computes in float32 without asking.
    """
    copy.deepcopy(model).half().save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    _declare_float32(config)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")


def _edit_json(path: Path, **changes: str | None) -> None:
    """Set keys of a JSON object; None takes a key out."""
    values = json.loads(path.read_text("utf-8")) | changes
    kept = {key: value for key, value in values.items() if key not in changes or value is not None}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _declare_float32(config: dict) -> None:
    for key, value in config.items():
        if key in ("dtype", "torch_dtype"):
            config[key] = "float32"
        elif isinstance(value, dict):
            _declare_float32(value)


def save_matcher(model: CLIPModel, tokenizer: CLIPTokenizer, folder: Path) -> None:
    """``CLIPModel``, ``CLIPTokenizer`` and ``CLIPImageProcessor`` files in one folder."""
    new = folder.with_name(folder.name + ".part")
    save_model(model, new)
    tokenizer.save_pretrained(new)
    shutil.copy(Path(tokenizer.name_or_path) / "vocab.json", new)
    shutil.copy(Path(tokenizer.name_or_path) / "merges.txt", new)
    _edit_json(new / "tokenizer_config.json", is_local=None, local_files_only=None)
    CLIPImageProcessor(
        size={"shortest_edge": IMAGE_PX},
        crop_size={"height": IMAGE_PX, "width": IMAGE_PX},
        image_mean=list(MEAN),
        image_std=list(STD),
    ).save_pretrained(new)
    replace_folder(new, folder)


def save_proposer(model: YolosForObjectDetection, folder: Path) -> None:
    """``YolosForObjectDetection`` and ``YolosImageProcessor`` files in one folder."""
    new = folder.with_name(folder.name + ".part")
    save_model(model, new)
    YolosImageProcessor(
        size={"height": IMAGE_PX, "width": IMAGE_PX},
        do_pad=False,
        image_mean=list(MEAN),
        image_std=list(STD),
    ).save_pretrained(new)
    replace_folder(new, folder)


def save_captioner(
    model: LlavaNextForConditionalGeneration, processor: LlavaNextProcessor, folder: Path
) -> None:
    """``LlavaNextForConditionalGeneration`` and ``LlavaNextProcessor`` files in one folder.

    transformers 5 leaves ``vision_model`` out of the tower's key names, vLLM loads only names that
    have it, transformers reads both: so the names of the hub's checkpoints are written.
    """
    new = folder.with_name(folder.name + ".part")
    save_model(model, new)
    weights = load_file(new / "model.safetensors")
    renamed = {hub_name(name): value for name, value in weights.items()}
    save_file(renamed, new / "model.safetensors", metadata={"format": "pt"})
    (new / "model.safetensors").chmod(0o644)
    processor.save_pretrained(new)
    _edit_json(new / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    replace_folder(new, folder)


def hub_name(name: str) -> str:
    """The name a weight has in checkpoints on the hub.

    >>> hub_name("vision_tower.embeddings.class_embedding")
    'vision_tower.vision_model.embeddings.class_embedding'
    """
    prefix = "vision_tower."
    if name.startswith(prefix) and not name.startswith(prefix + "vision_model."):
        return prefix + "vision_model." + name.removeprefix(prefix)
    return name
