"""SmolVLM-256M's captions by glit and by other engines: ``python -m tools.measure.engines -o OUT``.

Equal work: the shapes and random weights of ``tools.measure.laptop``, photographs of 512 by 512,
one prompt, greedy, 250 tokens. A row has a process and a thread of its own; loading does not count.
Other engines want environments of their own: ``--python ENGINE=PATH`` names the Python of
``openvino`` (optimum-intel, nncf, transformers 4.57), ``onnxruntime`` (onnxruntime-genai,
onnxscript, transformers 5) and ``llama`` (llama-cpp-python), whose files ``onnxruntime`` writes by
the converter in the folder LLAMA_CPP. They run this module: on top are modules of everybody.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tools.measure.engine_files import PROMPT

_TOKENS = 250
_ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",  # no laptop has AMX
}
_WAYS = (
    ("glit", "float32"), ("glit", "int8"), ("transformers", "float32"), ("vllm", "float32"),
    ("openvino", "float32"), ("openvino", "int8"), ("onnxruntime", "float32"),
    ("onnxruntime", "int8"), ("llama", "float32"), ("llama", "int8"),
)  # fmt: skip
_BATCHES = (1, 4, 16)

Write = Callable[[slice, int], list[Any]]
"""Of images and a number of tokens: a caption each, as a text or as ids."""


def glit(work: Path, how: str, given: Any) -> Write:
    """By the captioner of ``caption.backend = "transformers"``."""
    from dataclasses import replace

    from glit.backends.captioners.transformers_generate import TransformersCaptioner

    config = _config(f"caption.precision={how}")
    captioner = TransformersCaptioner(config, _model(work), PROMPT)

    def write(some: slice, tokens: int) -> list[str]:
        captioner._config = replace(config, max_tokens=tokens)
        images = list(given["images"][some])
        return _texts(captioner.caption(images, seeds=[0] * len(images), temperature=0.0))

    return write


def vllm(work: Path, how: str, given: Any) -> Write:
    """By the captioner of ``caption.backend = "vllm"``: a batch is handed over at once."""
    from dataclasses import replace

    from glit.backends.captioners.vllm_engine import VllmCaptioner

    config = _config("caption.backend=vllm", f"caption.precision={how}")
    captioner = VllmCaptioner(config, _model(work), PROMPT)

    def write(some: slice, tokens: int) -> list[str]:
        captioner._config = replace(config, max_tokens=tokens)
        images = list(given["images"][some])
        coming = [captioner.submit(each, seed=0, temperature=0.0) for each in images]
        return _texts(each.result() for each in coming)

    return write


def _config(*settings: str) -> Any:
    from glit.planning.recipe import load_recipe

    return load_recipe("laptop", overrides=["caption.device=cpu", *settings]).caption


def _model(work: Path) -> Any:
    from glit.models.weights import resolve

    return resolve(str(work / "smolvlm-256m"))


def _texts(captions: Any) -> list[str]:
    found = list(captions)
    assert all(each.cut for each in found), "a caption ended early"
    return [each.text for each in found]


def transformers(work: Path, how: str, given: Any) -> Write:
    """By ``generate`` with the layers of torch."""
    import torch
    from transformers import Idefics3ForConditionalGeneration as Model

    return _generate(
        Model.from_pretrained(work / "smolvlm-256m", dtype=torch.float32).eval(), given
    )


def openvino(work: Path, how: str, given: Any) -> Write:
    """By optimum-intel's ``generate``; int8 is its weights in 8 bits."""
    from optimum.intel import OVModelForVisualCausalLM as Model

    precision: Any = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": 1,
        "KV_CACHE_PRECISION": "f32",
    }
    return _generate(Model.from_pretrained(work / f"openvino-{how}", ov_config=precision), given)


def _generate(model: Any, given: Any) -> Write:
    import torch

    def write(some: slice, tokens: int) -> list[Any]:
        names = ("input_ids", "attention_mask", "pixel_values", "pixel_attention_mask")
        inputs: Any = {name: torch.from_numpy(given[name][some]) for name in names}
        with torch.inference_mode():
            found = model.generate(
                **inputs, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens
            )
        return found[:, given["input_ids"].shape[1] :].tolist()

    return write


def onnxruntime(work: Path, how: str, given: Any) -> Write:
    """By the decoder that onnxruntime-genai makes, with its keys and values kept in place."""
    import onnxruntime as ort

    options, folder = ort.SessionOptions(), work / "onnxruntime"
    options.intra_op_num_threads = 1
    eyes, decoder = (
        ort.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
        for name in ("vision.onnx", f"{how}/model.onnx")
    )
    table = np.load(folder / "embeddings.npy")
    ids, pixels = given["input_ids"], given["pixel_values"][:, 0]
    [place] = {tuple(np.flatnonzero(row == given["image_token"])) for row in ids}

    def write(some: slice, tokens: int) -> list[list[int]]:
        [seen] = eyes.run(None, {"pixels": pixels[some]})
        embeds, number = table[ids[some]], ids.shape[1]
        embeds[:, list(place)] = seen
        bound, found = decoder.io_binding(), []
        shape = (len(embeds), 3, number + tokens, 64)
        for layer, kind in itertools.product(range(30), ("key", "value")):
            kept = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
            bound.bind_ortvalue_input(f"past_key_values.{layer}.{kind}", kept)
            bound.bind_ortvalue_output(f"present.{layer}.{kind}", kept)
        for length in range(number, number + tokens):
            bound.bind_cpu_input("inputs_embeds", embeds)
            bound.bind_cpu_input("attention_mask", np.ones((len(embeds), length), np.int64))
            bound.bind_output("logits", "cpu")
            decoder.run_with_iobinding(bound)
            logits = next(x for x in bound.get_outputs() if x.shape()[-1] == len(table))
            found.append(logits.numpy()[:, -1].argmax(-1))
            embeds = table[found[-1]][:, None]
        return np.stack(found, 1).tolist()

    return write


def llama(work: Path, how: str, given: Any) -> Write:
    """By llama.cpp; int8 is its q8_0."""
    from tools.measure.engine_llama import Llama

    return Llama(work / "llama", how, given).write


def run(work: Path, engine: str, how: str, batch: int) -> Any:
    """Write captions in one batch; seconds an image, memory, and the captions."""
    write = globals()[engine](work, how, dict(np.load(work / "inputs.npz")))
    write(slice(1), 2)
    cpu, wall = time.process_time(), time.perf_counter()
    found = write(slice(batch), _TOKENS)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "engine": engine, "precision": how, "batch": batch, "cpu_s": cpu / batch,
        "wall_s": wall / batch, "captions": found,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }  # fmt: skip


def rows(work: Path, pythons: dict[str, str]) -> Iterator[Any]:
    """Each from a process of its own; captions are compared with glit's in float32."""
    from transformers import AutoTokenizer

    environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": str(Path(__file__).parents[2])}
    for engine in ("openvino", "onnxruntime"):
        if engine in pythons and not (done := work / f"{engine}-made").exists():
            command = [pythons[engine], "-m", "tools.measure.engine_files", work, engine]
            subprocess.run(command, check=True, env=environment)
            done.touch()
    pythons = {**dict.fromkeys(("glit", "transformers", "vllm"), sys.executable), **pythons}
    tokenizer: Any = AutoTokenizer.from_pretrained(work / "smolvlm-256m")
    for batch in _BATCHES:
        ours: list[str] = []
        for engine, how in (way for way in _WAYS if way[0] in pythons):
            done = subprocess.run(
                [pythons[engine], "-m", "tools.measure.engines", "--run", work, engine, how,
                 str(batch)], stdout=subprocess.PIPE, check=True, env=environment,
            )  # fmt: skip
            row = json.loads(done.stdout.splitlines()[-1])
            texts = [
                each if isinstance(each, str) else tokenizer.decode(each, skip_special_tokens=True)
                for each in row.pop("captions")
            ]
            ours = ours or texts
            alike = [_alike(*two) for two in zip(texts, ours, strict=True)]
            yield {**row, "equal": alike.count(1), "same_up_to": sum(alike) / len(alike)}


def _alike(text: str, ours: str) -> float:
    """The share of our text up to the first letter that differs."""
    differing = (at for at, two in enumerate(zip(text, ours, strict=False)) if two[0] != two[1])
    return next(differing, len(ours)) / len(ours)


def main() -> None:
    """Measure, print and write."""
    from tools.measure.clock import printed
    from tools.measure.engine_files import make

    parser = argparse.ArgumentParser(prog="python -m tools.measure.engines", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PATH")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    if not (given.output / "inputs.npz").exists():
        make(given.output)
    pythons = dict(each.split("=", 1) for each in given.python)
    printed(rows(given.output, pythons), given.output / "engines.json")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        folder, engine, how, batch = sys.argv[2:]
        print(json.dumps(run(Path(folder), engine, how, int(batch))))
    else:
        main()
