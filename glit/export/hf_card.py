"""The page of a dataset on the Hub, from its provenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glit.errors import GlitError

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset


def hub_card(
    dataset: Dataset, *, files: dict[str, int], pictures: Sequence[str], previewed: int
) -> str:
    """Markdown with the Hub's YAML.

    Args:
        dataset: what was exported.
        files: bytes of the data files, by path.
        pictures: paths of pictures for the page.
        previewed: rows of the configuration ``preview``.
    """
    manifest = dataset.manifest
    size = sum(files.values())
    shown = "\n".join(f"![A picture with its boxes and their numbers]({path})" for path in pictures)
    return f"""---
license: unknown
language:
- en
size_categories:
- {_size_category(len(dataset))}
task_categories:
- object-detection
- image-to-text
tags:
- long-captions
- region-grounding
- glit
configs:
- config_name: default
  default: true
  data_files:
  - split: train
    path: data/train-*.parquet
- config_name: preview
  data_files:
  - split: train
    path: preview/train-*.parquet
dataset_info:
- config_name: default
  splits:
  - name: train
    num_bytes: {size}
    num_examples: {len(dataset)}
  download_size: {size}
  dataset_size: {size}
---

# Long captions and the regions they tell of

> **Before you publish:** name the licence. It says `unknown` above, because only you know where the
> images are from; captions by a model are under that model's terms besides.

{len(dataset)} images, each with a long caption and the regions that its sentences tell of.
{_figures(dataset)}

{shown}

The configuration `preview` holds {previewed} pictures with their boxes drawn in, since viewers draw
none; the numbers are those of the sentences.

```python
from datasets import load_dataset

rows = load_dataset("this repository or folder", split="train")
row = rows[0]
for pair in row["pairs"]:
    words = row["caption"][pair["char_start"] : pair["char_end"]]
    print(words, row["objects"]["bbox"][pair["object"]])  # x, y, width, height in pixels
```

## How it was made

By glit {manifest["glit_version"]} with the recipe `{manifest["recipe"]["name"]}`.

| what | how | model | revision | licence |
|---|---|---|---|---|
{_steps(manifest)}

{_balance(manifest["counts"])}

## What to know before use

- Captions and regions that models made contain mistakes, and nobody has looked at each.
- A pair is what the rule chose from CLIP's similarities. Its similarity is a cosine, no
  probability; `probability` is null unless the rule was calibrated.
- A sentence without a pair has no region of its own: it may tell of the whole image, or of nothing
  in it.
- Who and what is in the images, and in what proportion, comes from their source: describe it here.
"""


def _size_category(number: int) -> str:
    """The Hub's word for a number of rows."""
    for limit, name in (
        (1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"),
        (1_000_000, "100K<n<1M"), (10_000_000, "1M<n<10M"), (100_000_000, "10M<n<100M"),
    ):  # fmt: skip
        if number < limit:
            return name
    return "100M<n<1B"


def _figures(dataset: Dataset) -> str:
    from glit.dataset.query import connect
    from glit.view.charts import charts, totals

    try:
        with connect(dataset) as connection:
            found = totals(connection)
            medians = {chart["name"]: chart["median"] for chart in charts(connection)}
    except GlitError:  # a dataset that is not on this machine's disks has no SQL
        return ""
    return (
        f"{found['sentences']} sentences, {found['regions']} regions, {found['pairs']} pairs; a "
        f"caption has {medians['words']} words (median)."
    )


def _steps(manifest: dict[str, Any]) -> str:
    from glit.view.story import story

    rows = []
    for step in story(manifest)["steps"]:
        cells = (step["title"], step["how"], step["model"], step["revision"], step["licence"])
        rows.append("| " + " | ".join(cell or "–" for cell in cells) + " |")
    return "\n".join(rows)


def _balance(counts: dict[str, Any]) -> str:
    drops = ", ".join(f"{number} {key}" for key, number in sorted(counts["drops"].items()))
    parts = [
        f"Of {counts['ingested']} images that were found, {counts['shipped']} are here, "
        f"{counts['dropped']} were dropped{f' ({drops})' if drops else ''}",
        f"and {counts['duplicates']} repeat another.",
    ]
    return "\n".join(parts)
