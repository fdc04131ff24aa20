"""Write the dataset page for the Hub from the dataset's provenance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glit.dataset.card import (
    LICENCE_WARNING,
    balance,
    limits,
    paragraph,
    people_fields,
    shown_pictures,
    size_category,
    title,
    yaml_features,
)
from glit.dataset.manifest import Manifest
from glit.dataset.mini_models import dataset_caution

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset


def hub_card(
    dataset: Dataset,
    *,
    files: dict[str, int],
    features: dict[str, Any],
    preview_features: dict[str, Any],
    pictures: Sequence[str],
    previewed: int,
    figures: str,
) -> str:
    """Make the dataset page: Markdown with the Hub's YAML.

    Args:
        dataset: what was exported.
        files: bytes of the data files, by path.
        features: of the ``datasets`` library.
        preview_features: the same of the configuration ``preview``.
        pictures: paths of pictures for the page.
        previewed: rows of the configuration ``preview``.
        figures: tables.
    """
    manifest = dataset.manifest
    paired = manifest.recipe.has_regions
    counts = manifest.counts if paired else replace(manifest.counts, without_pair=0)
    size = sum(files.values())
    return f"""---
license: unknown
pretty_name: {title(paired)}
{people_fields(manifest)}
size_categories:
- {size_category(len(dataset))}
task_categories:
{_DETECTION if paired else ""}- image-to-text
tags:
- long-captions
{_GROUNDING if paired else ""}- glit
configs:
- config_name: default
  default: true
  data_files:
  - split: train
    path: data/train-*.parquet
{_preview_files(previewed)}dataset_info:
- config_name: default
  features: {json.dumps(yaml_features(features), ensure_ascii=False)}
  splits:
  - name: train
    num_bytes: {size}
    num_examples: {len(dataset)}
  download_size: {size}
  dataset_size: {size}
{_preview_info(preview_features if previewed else {})}---

# {"Long captions and the regions they describe" if paired else "Images with captions"}

{LICENCE_WARNING}

{len(dataset)} images, each with a long caption{_and_regions(paired)}.

{figures}

{shown_pictures(pictures, paired=paired)}

{paragraph(_about_pictures(previewed, paired=paired))}

```python
from datasets import load_dataset

rows = load_dataset("this repository or folder", split="train")
row = rows[0]
{_PRINT_PAIRS if paired else 'print(row["caption"])'}
```

## How it was made

By glit {manifest.glit_version} with the recipe `{manifest.recipe.name}`.

| what | how | model | revision | licence |
|---|---|---|---|---|
{_steps(manifest)}

{balance(counts, here=len(dataset))}

## What to know before use

{limits(manifest, dataset_caution(dataset))}
"""


_DETECTION, _GROUNDING = "- object-detection\n", "- region-grounding\n"
_PRINT_PAIRS = """for pair in row["pairs"]:
    words = row["caption"][pair["char_start"] : pair["char_end"]]
    print(words, row["objects"]["bbox"][pair["object"]])  # x, y, width, height in pixels"""


def _and_regions(paired: bool) -> str:
    return " and the regions that its sentences describe" if paired else ""


def _preview_files(previewed: int) -> str:
    if not previewed:
        return ""
    return (
        "- config_name: preview\n  data_files:\n  - split: train\n"
        "    path: preview/train-*.parquet\n"
    )


def _preview_info(features: dict[str, Any]) -> str:
    if not features:
        return ""
    told = json.dumps(yaml_features(features), ensure_ascii=False)
    return f"- config_name: preview\n  features: {told}\n"


def _about_pictures(previewed: int, *, paired: bool) -> str:
    if not previewed:
        return (
            "The pictures are not part of this dataset: `image_id` is the SHA-256 of a picture's "
            "file, `pixels_sha256` that of its upright RGB pixels, `source_path` its name."
        )
    if not paired:
        return f"The configuration `preview` holds {previewed} of the pictures."
    return (
        f"Viewers draw no boxes, so the configuration `preview` holds {previewed} pictures "
        "with their boxes drawn in. The numbers are those of the sentences."
    )


def _steps(manifest: Manifest) -> str:
    from glit.view.story import story

    rows = []
    for step in story(manifest)["steps"]:
        cells = (step["title"], step["how"], step["model"], step["revision"], step["licence"])
        rows.append("| " + " | ".join(cell or "–" for cell in cells) + " |")
    return "\n".join(rows)
