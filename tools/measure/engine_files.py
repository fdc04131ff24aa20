"""What ``tools.measure.engines`` measures with: one model, as each engine wants it.

``make`` runs in glit's environment. The Python of another engine runs the module, with a folder and
the engine's name: on top are modules of everybody.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

IMAGES, SIDE = 16, 512
PROMPT = "Describe this image."
CONVERTER = "LLAMA_CPP"
"""Variable that names a folder of llama.cpp's source, whose converter writes its files."""


def make(work: Path) -> None:
    """Write the model, the same for transformers 4, and the inputs of all."""
    from PIL import Image
    from transformers import AutoProcessor

    from glit.images import decode
    from tools.measure.laptop import smolvlm

    photographs = work / "photographs"
    subprocess.run([sys.executable, "-m", "glit", "sample", "-o", photographs], check=True)
    folder = smolvlm("smolvlm-256m", work / "smolvlm-256m")
    files = sorted((photographs / "images").glob("*.jpg"))
    shown = [Image.fromarray(decode(file.read_bytes())).resize((SIDE, SIDE)) for file in files]
    shown = [*shown, *(each.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for each in shown)][:IMAGES]
    processor: Any = AutoProcessor.from_pretrained(folder)
    content = [{"type": "image"}, {"type": "text", "text": PROMPT}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True
    )
    size = {"longest_edge": SIDE}
    inputs = processor(
        images=[[each] for each in shown], text=[text] * IMAGES, return_tensors="np", size=size
    )
    np.savez(
        work / "inputs.npz", **inputs, images=np.stack([np.asarray(each) for each in shown]),
        image_token=processor.image_token_id,
    )  # fmt: skip
    _write_for_older(folder, work / "older")


def _write_for_older(folder: Path, older: Path) -> None:
    """Write a copy that transformers 4 reads, and that makes one tile of an image."""
    older.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if file.suffix != ".json":
            shutil.copy(file, older)
    for name in ("config", "tokenizer_config", "processor_config", "generation_config"):
        told = json.loads((folder / f"{name}.json").read_text())
        if name == "config":
            told["text_config"]["rope_theta"] = 10000.0
            del told["text_config"]["rope_parameters"]
        elif name == "tokenizer_config":
            told["tokenizer_class"] = "PreTrainedTokenizerFast"
            told["additional_special_tokens"] = told.pop("extra_special_tokens")
        elif name == "processor_config":
            pictures = told.pop("image_processor")
            pictures["size"] = {"longest_edge": SIDE}
            (older / "preprocessor_config.json").write_text(json.dumps(pictures))
        (older / f"{name}.json").write_text(json.dumps(told))
    shutil.copy(folder / "tokenizer.json", older)


def openvino(work: Path) -> None:
    """Write what optimum-intel makes of it, in 32 and in 8 bits."""
    from optimum.intel import OVModelForVisualCausalLM as Model

    for how in ("float32", "int8"):
        model = Model.from_pretrained(work / "older", export=True, load_in_8bit=how == "int8")
        model.save_pretrained(work / f"openvino-{how}")


def onnxruntime(work: Path) -> None:
    """Write the decoder as onnxruntime-genai makes it, and the encoder by torch's exporter."""
    import torch
    from transformers import Idefics3ForConditionalGeneration, LlamaForCausalLM

    folder = work / "onnxruntime"
    whole: Any = Idefics3ForConditionalGeneration.from_pretrained(work / "smolvlm-256m").eval()
    decoder = LlamaForCausalLM(whole.config.text_config)
    decoder.model, decoder.lm_head = whole.model.text_model, whole.lm_head
    decoder.save_pretrained(folder / "decoder")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(work / "smolvlm-256m" / name, folder / "decoder")
    np.save(folder / "embeddings.npy", whole.get_input_embeddings().weight.detach().numpy())

    class Eyes(torch.nn.Module):
        def forward(self, pixels: Any) -> Any:
            all_of_it = torch.ones(len(pixels), SIDE // 16, SIDE // 16, dtype=torch.bool)
            seen = whole.model.vision_model(pixel_values=pixels, patch_attention_mask=all_of_it)
            return whole.model.connector(seen.last_hidden_state)

    rows: Any = {"pixels": {0: torch.export.Dim("rows", min=1, max=64)}}
    eyes = Eyes().eval()
    eyes.whole = whole
    torch.onnx.export(
        eyes, (torch.zeros(2, 3, SIDE, SIDE),), folder / "vision.onnx", dynamo=True,
        dynamic_shapes=rows, verbose=False,
    )  # fmt: skip
    for how, precision in (("float32", "fp32"), ("int8", "int8")):
        subprocess.run(
            [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", folder / "decoder",
             "-o", folder / how, "-p", precision, "-e", "cpu", "--extra_options",
             "exclude_embeds=true", "prune_lm_head=true", "accuracy_level=4"],
            check=True,
        )  # fmt: skip


def llama(work: Path) -> None:
    """Write llama.cpp's files by its converter, which must be lied to: it knows tokenizers by a sum
    and wants a merge. Captions are written from and as ids, so neither matters."""
    sys.path[:0] = [os.environ[CONVERTER], os.path.join(os.environ[CONVERTER], "gguf-py")]
    import convert_hf_to_gguf as converter
    import gguf
    from conversion.base import TextModel

    add = gguf.SpecialVocab.add_to_gguf

    def with_a_merge(words: Any, *arguments: Any) -> None:
        words.merges = ["a a"]
        add(words, *arguments)

    gguf.SpecialVocab.add_to_gguf = with_a_merge
    TextModel.get_vocab_base_pre = lambda *_: "smollm"
    decoder, folder = work / "onnxruntime" / "decoder", work / "llama"
    folder.mkdir(exist_ok=True)
    for source, name, how in (
        (decoder, "float32", ["f32"]), (decoder, "int8", ["q8_0"]),
        (work / "older", "eyes", ["f32", "--mmproj"]),
    ):  # fmt: skip
        sys.argv[1:] = [str(source), "--outfile", str(folder / f"{name}.gguf"), "--outtype", *how]
        converter.main()


if __name__ == "__main__":
    {"openvino": openvino, "onnxruntime": onnxruntime}[sys.argv[2]](Path(sys.argv[1]))
    if sys.argv[2] == "onnxruntime" and CONVERTER in os.environ:
        llama(Path(sys.argv[1]))
