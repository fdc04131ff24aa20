"""CLIP embeddings of files and captions, ViT-B/16 with random weights, float32."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from tools.measure.peers.inputs import BATCH, CONTEXT, captions
from tools.measure.peers.way import Comparison, Way, Work

_FEW = 48


def _some(inputs: Path) -> tuple[list[Path], list[str]]:
    images = sorted((inputs / "scenes" / "images").iterdir())[:_FEW]
    return images, captions(inputs)[:_FEW]


def _rounded(images: Any, texts: Any) -> list[list[float]]:
    """Cosines of eight images and texts, which all ways should agree on."""
    from torch.nn.functional import normalize

    found = normalize(images[:8].float(), dim=-1) @ normalize(texts[:8].float(), dim=-1).T
    return [[round(value, 2) for value in row] for row in found.tolist()]


def _glit_clip(inputs: Path, out: Path) -> Work:
    import numpy as np
    import torch

    from glit.clip.embedder import Embedder
    from glit.images import decode

    model = Embedder.open(str(inputs / "clip"), device="cpu", batch_size=BATCH)
    images, texts = _some(inputs)

    def work() -> Any:
        found = list(model.pixels(decode(path.read_bytes()) for path in images))
        return _rounded(torch.from_numpy(np.concatenate(found)), model.texts(texts))

    return work


def _transformers_clip(inputs: Path, out: Path) -> Work:
    import torch
    from transformers import AutoTokenizer, CLIPImageProcessor, CLIPModel

    model = CLIPModel.from_pretrained(inputs / "clip", local_files_only=True).eval()
    processor = CLIPImageProcessor.from_pretrained(inputs / "clip", local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(inputs / "clip", local_files_only=True)
    paths, texts = _some(inputs)

    @torch.inference_mode()
    def work() -> Any:
        pictures, words = [], []
        for start in range(0, _FEW, BATCH):
            batch = [Image.open(path).convert("RGB") for path in paths[start : start + BATCH]]
            pixels = processor(images=batch, return_tensors="pt")
            pictures.append(_features(model.get_image_features(**pixels)))
            ids = tokenizer(
                texts[start : start + BATCH], padding=True, truncation=True, max_length=CONTEXT,
                return_tensors="pt",
            )  # fmt: skip
            words.append(_features(model.get_text_features(**ids)))
        return _rounded(torch.cat(pictures), torch.cat(words))

    return work


def _features(found: Any) -> Any:
    """The embeddings, which newer versions wrap."""
    return getattr(found, "pooler_output", found)


def _sentence_transformers_clip(inputs: Path, out: Path) -> Work:
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(inputs / "clip"), device="cpu", local_files_only=True)
    model.max_seq_length = CONTEXT
    paths, texts = _some(inputs)

    def work() -> Any:
        images = [Image.open(path).convert("RGB") for path in paths]
        options: Any = {"batch_size": BATCH, "convert_to_tensor": True}
        pictures = model.encode(images, show_progress_bar=False, **options)
        words = model.encode(texts, show_progress_bar=False, **options)
        return _rounded(torch.as_tensor(pictures), torch.as_tensor(words))

    return work


def make(inputs: Path) -> None:
    """Write both towers as ONNX, for any number of images and texts."""
    if not importlib.util.find_spec("onnxscript"):
        return
    import torch
    from transformers import CLIPModel

    model = CLIPModel.from_pretrained(inputs / "clip", local_files_only=True).eval()
    vision: Any = model.config.vision_config
    model.set_attn_implementation("eager")

    class Tower(torch.nn.Module):
        def __init__(self, features: Callable[[Any], Any]) -> None:
            super().__init__()
            self.model, self.features = model, features

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return _features(self.features(given))

    examples = {
        "image": (
            model.get_image_features,
            torch.zeros(2, 3, vision.image_size, vision.image_size),
        ),
        "text": (model.get_text_features, torch.ones(2, CONTEXT, dtype=torch.long)),
    }
    for name, (features, example) in examples.items():
        rows = {0: torch.export.Dim("rows", min=1, max=1024)}
        torch.onnx.export(
            Tower(features).eval(), (example,), inputs / f"{name}.onnx", dynamo=True,
            dynamic_shapes={"given": rows}, verbose=False,
        )  # fmt: skip


def _runtime(run: Callable[[Path], Callable[[Any], Any]]) -> Callable[[Path, Path], Work]:
    """Encode by two files of ONNX; images and texts are prepared as transformers does."""

    def prepare(inputs: Path, out: Path) -> Work:
        import torch
        from transformers import AutoTokenizer, CLIPImageProcessor

        image, text = run(inputs / "image.onnx"), run(inputs / "text.onnx")
        processor = CLIPImageProcessor.from_pretrained(inputs / "clip", local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(inputs / "clip", local_files_only=True)
        paths, texts = _some(inputs)

        def work() -> Any:
            pictures, words = [], []
            for start in range(0, _FEW, BATCH):
                batch = [Image.open(path).convert("RGB") for path in paths[start : start + BATCH]]
                pixels = processor(images=batch, return_tensors="np")["pixel_values"]
                pictures.append(torch.from_numpy(image(pixels)))
                ids = tokenizer(
                    texts[start : start + BATCH], padding="max_length", truncation=True,
                    max_length=CONTEXT, return_tensors="np",
                )  # fmt: skip
                words.append(torch.from_numpy(text(ids["input_ids"])))
            return _rounded(torch.cat(pictures), torch.cat(words))

        return work

    return prepare


def _onnxruntime(path: Path) -> Callable[[Any], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    [argument] = session.get_inputs()
    return lambda values: session.run(None, {argument.name: values})[0]


def _openvino(path: Path) -> Callable[[Any], Any]:
    import openvino

    threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    return lambda values: compiled([values])[0].copy()


def _open_clip(inputs: Path, out: Path) -> Work:
    import open_clip as peer
    import torch

    open_clip: Any = peer
    model, _, fit = open_clip.create_model_and_transforms("ViT-B-16-quickgelu")
    tokenize = open_clip.get_tokenizer("ViT-B-16-quickgelu")
    paths, texts = _some(inputs)
    model.eval()

    @torch.inference_mode()
    def work() -> Any:
        for start in range(0, _FEW, BATCH):
            batch = [fit(Image.open(path)) for path in paths[start : start + BATCH]]
            model.encode_image(torch.stack(batch))
            model.encode_text(tokenize(texts[start : start + BATCH]))
        return None

    return work


COMPARISON = Comparison(
    title="48 images and captions encoded by CLIP ViT-B/16",
    make=make,
    ways=(
        Way(name="glit", prepare=_glit_clip),
        Way(name="transformers", prepare=_transformers_clip, package="transformers"),
        Way(
            name="sentence-transformers", prepare=_sentence_transformers_clip,
            package="sentence_transformers",
        ),
        Way(
            name="ONNX Runtime", prepare=_runtime(_onnxruntime), package="onnxruntime",
            note="texts padded to 77",
        ),
        Way(
            name="OpenVINO", prepare=_runtime(_openvino), package="openvino",
            note="texts padded to 77",
        ),
        Way(name="open_clip", prepare=_open_clip, package="open_clip", note="other weights"),
    ),
)  # fmt: skip
