"""How long ``-r laptop`` takes without a GPU: ``python -m tools.measure.laptop -o OUT``.

The models have the published shapes and random weights, in one thread, on the photographs of
``glit sample``. A random captioner never ends, so every caption has all tokens that it may, and
would be refused; the stages after it run on the sample's own captions. The tokenizer is made up:
a prompt has other tokens than in the real one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console

from glit.bench.harness import Row
from glit.bench.lism_flism.models import FULL, random_yolos
from glit.clip.random_clip import VIT_B_16, write_random_clip
from glit.executors.process import prepare_own_process
from glit.images import Pixels, decode
from glit.models.weights import resolve
from glit.pipeline.build import BuildRequest, build
from glit.planning.recipe import load_recipe
from glit.runtime.progress import StageProgress
from tools.measure.build import Timed
from tools.measure.clock import printed, seconds

_YOLOS_TINY = {
    "image_size": [800, 1333], "hidden_size": 192, "num_attention_heads": 3,
    "intermediate_size": 768, "use_mid_position_embeddings": False, "num_labels": 91,
}  # fmt: skip
_VIT_B_32: Any = {**VIT_B_16, "vision_config": {"patch_size": 32}}
_TEXT = {
    "smolvlm-256m": {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3,
    },
    "smolvlm-500m": {
        "hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32,
        "num_attention_heads": 15, "num_key_value_heads": 5,
    },
}  # fmt: skip
_VISION = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "image_size": 512, "patch_size": 16,
}  # fmt: skip
_IMAGES = 16
_TEMPLATE = (
    "<|im_start|>{% for m in messages %}{{m.role}}:{% for c in m.content %}{% if c.type == 'text' "
    "%}{{c.text}}{% else %}<image>{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}Assistant:"
)


def smolvlm(name: str, folder: Path) -> Path:
    """Write SmolVLM with random weights and a made-up tokenizer of as many tokens."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessor,
        Idefics3Processor,
        PreTrainedTokenizerFast,
    )

    letters = ("".join(each) for each in itertools.product("abcdefghijklmnopqrst", repeat=4))
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *itertools.islice(letters, 48_896)]
    plain = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<end_of_utterance>", pad_token="<|endoftext|>",
        bos_token="<|im_start|>", additional_special_tokens=[
            "<image>", "<fake_token_around_image>", "<global-img>", *tiles,
        ],
    )  # fmt: skip
    pictures = Idefics3ImageProcessor(
        size={"longest_edge": 2048}, max_image_size={"longest_edge": 512}
    )
    Idefics3Processor(
        pictures, tokenizer, image_seq_len=64, chat_template=_TEMPLATE
    ).save_pretrained(folder)
    ids: Any = tokenizer.convert_tokens_to_ids
    ends: Any = {
        f"{each}_token_id": getattr(tokenizer, f"{each}_token_id") for each in ("eos", "bos")
    }
    text: Any = {
        "model_type": "llama", "vocab_size": 49_280, "head_dim": 64, **ends, **_TEXT[name],
        "max_position_embeddings": 8192, "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    config = Idefics3Config(
        text_config=text, vision_config=_VISION, scale_factor=4, image_token_id=ids("<image>"),
        pad_token_id=ids("<|endoftext|>"), tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Idefics3ForConditionalGeneration(config)
    assert model.generation_config is not None
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    return folder


def stages(work: Path, precision: str) -> dict[str, float]:
    """CPU seconds an image of the stages after the captions."""
    settings = [
        f"propose.model={work / 'yolos'}", f"score.model={work / 'clip'}",
        "propose.score_threshold=0.0", "caption.backend=provided",
        f"propose.precision={precision}", f"score.precision={precision}",
    ]  # fmt: skip
    photographs, timed = work / "photographs", Timed()
    silent = StageProgress(Console(quiet=True), quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        request = BuildRequest(
            images=str(photographs / "images"), output=f"{folder}/dataset",
            captions=str(photographs / "captions.jsonl"),
            recipe=load_recipe("laptop", overrides=settings),
        )  # fmt: skip
        number = build(request, timed, silent).counts.ingested
    return {name: took / number for name, took in timed.seconds.items()}


def shrunk(image: Pixels, side: int) -> Pixels:
    """The image with its longer side brought to so many pixels, as a build hands it over."""
    picture = Image.fromarray(image)
    picture.thumbnail((side, side))
    return np.asarray(picture)


def captions(folder: Path, precision: str, batch: int, images: list[Pixels]) -> dict[str, float]:
    """CPU seconds an image up to the first token, and of all tokens that the recipe allows."""
    from glit.backends.captioners.transformers_generate import TransformersCaptioner

    allowed = load_recipe("laptop").caption.max_tokens
    settings = [
        f"caption.precision={precision}", "caption.device=cpu", "caption.max_tokens=1",
    ]  # fmt: skip
    config = load_recipe("laptop", overrides=settings).caption
    captioner = TransformersCaptioner(config, resolve(str(folder)), "Describe this image.")

    def work() -> None:
        for start in range(0, len(images), batch):
            some = images[start : start + batch]
            captioner.caption(some, seeds=[0] * len(some), temperature=0.0)

    found = {}
    for tokens in (1, allowed):
        captioner._config = replace(config, max_tokens=tokens)
        found[f"{tokens} tokens"] = seconds(work)[1] / len(images)
    return found


def rows(work: Path) -> Iterator[Row]:
    """Each with a process of its own."""
    photographs = work / "photographs"
    if not photographs.exists():
        subprocess.run([sys.executable, "-m", "glit", "sample", "-o", photographs], check=True)
        random_yolos(
            replace(FULL, yolos=_YOLOS_TINY, shortest_px=512, longest_px=1333), work / "yolos"
        )
        corpus = (photographs / "captions.jsonl").read_text().splitlines()
        write_random_clip(
            work / "clip", _VIT_B_32, seed=0, corpus=corpus, vocabulary=1200, embedding_rows=49_408
        )
        for name in _TEXT:
            smolvlm(name, work / name)
    for precision in ("float32", "int8"):
        yield _run(work, "stages", precision)
    for name, precision, batch in itertools.product(_TEXT, ("float32", "int8"), ("4", "16")):
        yield _run(work, name, precision, batch)


def _run(work: Path, *words: str) -> Row:
    command = [sys.executable, "-m", "tools.measure.laptop", "-o", str(work), "--run", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.laptop", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    work = arguments.output
    work.mkdir(parents=True, exist_ok=True)
    if not arguments.run:
        printed(rows(work), work / "laptop.json")
        return
    prepare_own_process(for_model=True)
    what, *how = arguments.run
    if what == "stages":
        took = stages(work, how[0])
    else:
        kept = load_recipe("laptop").caption.max_image_side
        files = sorted((work / "photographs" / "images").glob("*.jpg"))
        images = [shrunk(decode(file.read_bytes()), kept) for file in files]
        took = captions(work / what, how[0], int(how[1]), [*images, *images][:_IMAGES])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"what": arguments.run, "s_an_image": took, "memory_bytes": most}))


if __name__ == "__main__":
    main()
