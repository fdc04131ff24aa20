"""The dataset card: README.md with the YAML header that the Hugging Face hub reads."""

from __future__ import annotations

import json
from typing import Any

from glit.schema import hf_features


def dataset_card(manifest: dict[str, Any]) -> str:
    """Markdown for people, YAML for the hub; derived from the manifest alone."""
    counts = manifest["counts"]
    recipe = manifest["recipe"]
    models = "\n".join(
        f"| {role} | `{model['name']}` | {model['revision']} | {model['licence'] or 'unknown'} |"
        for role, model in sorted(manifest["models"].items())
    )
    drops = "\n".join(f"| {key} | {number} |" for key, number in sorted(counts["drops"].items()))
    balance = (
        f"{counts['ingested']} found = {counts['shipped']} shipped + {counts['dropped']} dropped "
        f"+ {counts['duplicates']} duplicates."
    )
    features = json.dumps(_yaml_features(), ensure_ascii=False)
    return f"""---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
dataset_info:
  features: {features}
  splits:
  - name: train
    num_examples: {counts["shipped"]}
task_categories:
- image-to-text
- zero-shot-image-classification
tags:
- long-captions
- region-grounding
- glit
---

# A region-grounded long-caption dataset

{counts["shipped"]} images, each with a long caption, its sentences, candidate regions, and the
best region of every sentence. Built by glit {manifest["glit_version"]} with the recipe
`{recipe["name"]}`.

```python
from datasets import load_dataset

dataset = load_dataset("parquet", data_files="data/*.parquet", split="train")
sample = dataset[0]
best = sample["pairs"][0]
print(sample["sentences"][best["sentence"]]["text"], sample["regions"][best["region"]])
```

## Where it comes from

| role | model | revision | licence |
|---|---|---|---|
{models}

Captions: `{recipe["caption"]["backend"]}`. Regions: `{recipe["propose"]["backend"]}`.
Token spans are those of `{manifest["tokenizer"]["name"]}` in a window of
{manifest["tokenizer"]["context"]} tokens, the start token counted as 0.

## What became of the images

{balance}

`drops.parquet` and `duplicates.parquet` name each of them.
{counts.get("without_pair", 0)} of the shipped have no local pair: every sentence lacks a region.

| stage/reason | dropped |
|---|---|
{drops or "| none | 0 |"}

Captions written by a model, and regions chosen by one, contain mistakes; similarities are CLIP
cosines, not probabilities. The licences of the images are those of their sources.
"""


def _yaml_features() -> list[dict[str, Any]]:
    """The features in the hub's YAML shape (a list of named fields); JSON is valid YAML."""
    return [_named(name, value) for name, value in hf_features().items()]


def _named(name: str, feature: Any) -> dict[str, Any]:
    return {"name": name, **_plain(feature)}


def _plain(feature: Any) -> dict[str, Any]:
    if feature.get("_type") == "Image":
        return {"dtype": "image"}
    if feature.get("_type") == "Value":
        return {"dtype": feature["dtype"]}
    if feature.get("_type") == "List":
        inner = _plain(feature["feature"])
        return {"list": inner["struct"] if "struct" in inner else inner["dtype"]}
    return {"struct": [_named(name, value) for name, value in feature.items()]}
