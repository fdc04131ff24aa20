"""Write the mini models' cards from measured figures.

``python -m tools.mini.report --json > figures.json``
``python -m tools.mini.cards figures.json --date 2026-11-20``
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from glit.backends.device import has_bfloat16
from tools.mini import train_captioner, train_clip, train_matcher, train_proposer, train_segmenter
from tools.mini.evaluate import MINI
from tools.mini.report import WANTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a card says besides figures."""

    architecture: str
    shape: str
    """One line: widths, layers, input."""
    data: str
    steps: int
    use: str
    limits: str


CARDS: dict[str, Card] = {
    "matcher": Card(
        architecture="`CLIPModel` (transformers), with its own byte-level BPE, context 77",
        shape="vision 192 wide, 6 layers, patch 16 on 128 px; text 128 wide, 4 layers; "
        "embeddings 128",
        data="crops of objects and quadrants with one sentence each, whole scenes with one-line "
        "captions; long captions were left out on purpose",
        steps=train_matcher.DEFAULTS.steps,
        use='match sentences with regions: `score.model = "mini-matcher"`; a start for fine-tuning',
        limits="Sizes and places of objects cannot be told from a crop. Long captions are cut at "
        "77 tokens and were never seen in training.",
    ),
    "clip": Card(
        architecture="`CLIPModel` (transformers), the mini matcher's shape and tokenizer",
        shape="vision 192 wide, 6 layers, patch 16 on 128 px; text 128 wide, 4 layers; "
        "embeddings 128",
        data="whole pictures with one-line captions, three of eight of them close-ups of one "
        "object; no crop, no region, no attribute of a patch, no long caption",
        steps=train_clip.DEFAULTS.steps,
        use="a start for fine-tuning that has everything still to learn: "
        '`train.model = "mini-clip"`',
        limits="Patterns, sizes and places are words it has never read. It knows whole pictures: "
        "patch tokens point nowhere in particular.",
    ),
    "proposer": Card(
        architecture="`YolosForObjectDetection` (transformers), nine detection tokens, one class",
        shape="192 wide, 6 layers, patch 16 on 128 px",
        data="whole scenes with the boxes of their objects",
        steps=train_proposer.DEFAULTS.steps,
        use='find regions: `propose.model = "mini-proposer"`',
        limits="At most nine objects, one for each place of a 3 × 3 grid; every picture is "
        "warped to a square.",
    ),
    "segmenter": Card(
        architecture="segment-anything `Sam`, built by `glit.backends.sam.model`",
        shape="image encoder 160 wide, 4 layers, patch 8 on 128 px; decoder 128 wide",
        data="whole scenes, points on objects and on the background, their masks",
        steps=train_segmenter.DEFAULTS.steps,
        use="find regions by automatic masks, the LISM way; fitted thresholds are in `config.json`",
        limits="Trained on points alone: boxes and masks as prompts do not work.",
    ),
    "captioner": Card(
        architecture="`LlavaNextForConditionalGeneration` and `LlavaNextProcessor` (transformers); "
        'loads in vLLM with `dtype="float32"`',
        shape="CLIP vision tower 192 wide, 6 layers, patch 16 on 128 px; Llama 192 wide, 3 layers",
        data="whole scenes with captions in one fixed wording, objects in reading order; the "
        "vision tower started from a mini matcher's",
        steps=train_captioner.DEFAULTS.steps,
        use='caption scenes: `caption.model = "mini-captioner"`',
        limits="It describes and does not converse: its chat template drops the request's words.",
    ),
}

_TEMPLATE = """---
license: apache-2.0
language: en
tags: [glit, mini]
---

# glit mini {name}

A small model honestly trained on glit's procedural scenes. It understands those scenes and nothing
else: on photographs its answers mean nothing.

- **Architecture**: {architecture}; {shape}.
- **Size**: {millions:.1f} million weights, fp16, {megabytes:.1f} MB.
- **Data**: scenes painted by `glit.scenes` from training seeds: {data}.
- **Steps**: {steps}, one CPU thread, {precision}: `python -m tools.mini.train_{name}`.
- **Use**: {use}.
- **Limits**: {limits}
- **Date**: {date}.
- **Licence**: Apache-2.0, weights and code.

## Figures

Measured by `python -m tools.mini.report` on test scenes of level `normal` (seed 2,000,000), which
training never saw.

| figure | wanted | found |
|---|---|---|
{rows}
"""


def write_cards(models: Path, figures: dict[str, dict[str, float]], date: str) -> None:
    """A README.md in the folder of every model that was measured."""
    for name, card in CARDS.items():
        if name not in figures:
            continue
        weights = models / name / "model.safetensors"
        with safe_open(weights, framework="pt") as opened:
            names = opened.keys()
            shapes = [opened.get_slice(name).get_shape() for name in names]
        rows = [
            f"| {title} | {f'≥ {wanted:.2f}' if wanted else ''} | {figures[name][key]:.3f} |"
            for model, key, title, wanted in WANTED
            if model == name and key in figures[name]
        ]
        text = _TEMPLATE.format(
            name=name,
            architecture=card.architecture,
            shape=card.shape,
            data=card.data,
            steps=f"{card.steps:,}",
            precision="bf16 autocast" if has_bfloat16("cpu") else "float32",
            use=card.use,
            limits=card.limits,
            date=date,
            millions=sum(_product(shape) for shape in shapes) / 1e6,
            megabytes=weights.stat().st_size / 1e6,
            rows="\n".join(rows),
        )
        (models / name / "README.md").write_text(text, encoding="utf-8")


def _product(shape: list[int]) -> int:
    result = 1
    for side in shape:
        result *= side
    return result


def main() -> None:
    """Read figures, write cards."""
    parser = argparse.ArgumentParser(description="write the mini models' cards")
    parser.add_argument("figures", type=Path, help="what tools.mini.report --json printed")
    parser.add_argument("--date", required=True, help="of the training, YYYY-MM-DD")
    parser.add_argument("--models", type=Path, default=MINI)
    arguments = parser.parse_args()
    write_cards(arguments.models, json.loads(arguments.figures.read_text("utf-8")), arguments.date)


if __name__ == "__main__":
    main()
