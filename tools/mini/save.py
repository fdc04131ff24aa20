"""Exports: half-precision safetensors and the files each model class expects beside them."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer, PreTrainedModel

from tools.mini.pool import IMAGE_PX

SQUARE = {"height": IMAGE_PX, "width": IMAGE_PX}
NORMALISATION: dict[str, Any] = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


@contextlib.contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """An empty folder that takes the place of ``folder`` once it is filled."""
    new = folder.with_name(folder.name + ".part")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    yield new
    shutil.rmtree(folder, ignore_errors=True)
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


def edit_json(path: Path, **changes: str | None) -> None:
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


def save_clip(model: CLIPModel, tokenizer: CLIPTokenizer, folder: Path) -> None:
    """``CLIPModel``, ``CLIPTokenizer`` and ``CLIPImageProcessor`` files in one folder."""
    save_model(model, folder)
    tokenizer.save_pretrained(folder)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(Path(tokenizer.name_or_path) / name, folder)
    edit_json(folder / "tokenizer_config.json", is_local=None, local_files_only=None)
    size = {"shortest_edge": IMAGE_PX}
    CLIPImageProcessor(size=size, crop_size=SQUARE, **NORMALISATION).save_pretrained(folder)
