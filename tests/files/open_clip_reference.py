"""Tiny checkpoints by the package open_clip_torch, with what it answers, for the tests.

    pip install open_clip_torch
    python tests/files/open_clip_reference.py

Writes ``tests/files/open-clip/``: a configuration and weights as its ``push_to_hf_hub`` names them,
for both activations the same weights, and ``answers.safetensors`` with inputs and embeddings.
Prints how far the new answers are from those that were there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

FOLDER = Path(__file__).resolve().parent / "open-clip"
CONFIG: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 24, "patch_size": 8, "head_width": 12},
    "text_cfg": {
        "context_length": 77,
        "vocab_size": 647,
        "width": 16,
        "heads": 2,
        "layers": 2,
    },
}
PREPROCESSING = {
    "mean": [0.5, 0.4, 0.3],
    "std": [0.2, 0.3, 0.4],
    "interpolation": "bicubic",
    "resize_mode": "squash",
}


def main() -> None:
    """Write the checkpoint and the answers."""
    from open_clip.model import CLIP

    torch.manual_seed(0)
    model = CLIP(**CONFIG).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases begin at one and zero
            parameter.add_(0.1 * torch.randn_like(parameter))
    ids = torch.randint(1, 645, (3, 77))
    ids[:, 0] = 645
    for row, end in enumerate((4, 20, 76)):
        ids[row, end], ids[row, end + 1 :] = 646, 0
    pixels = torch.randn(3, 3, 32, 32)
    answers = {"input_ids": ids, "pixel_values": pixels}
    for activation in ("gelu", "quick_gelu"):
        other = CLIP(**CONFIG, quick_gelu=activation == "quick_gelu").eval()
        other.load_state_dict(model.state_dict())
        with torch.no_grad():
            answers[f"{activation}.image"] = other.encode_image(pixels)
            answers[f"{activation}.text"] = other.encode_text(ids)
    path = FOLDER / "answers.safetensors"
    before = load_file(path) if path.is_file() else {}
    FOLDER.mkdir(parents=True, exist_ok=True)
    settings = {"model_cfg": CONFIG, "preprocess_cfg": PREPROCESSING}
    (FOLDER / "open_clip_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    save_file(model.state_dict(), FOLDER / "open_clip_model.safetensors")
    save_file(answers, path)
    for name, value in answers.items():
        far = (value - before[name]).abs().max().item() if name in before else "new"
        print(f"{name}: {tuple(value.shape)}, {far}")


if __name__ == "__main__":
    main()
