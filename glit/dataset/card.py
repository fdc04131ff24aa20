"""The dataset card: README.md with the YAML header that the Hugging Face hub reads.

Also what it shares with the page of the ``hf`` export: features as YAML, balance, limits.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from glit.data.schema import CAPTIONS, hf_features
from glit.dataset.manifest import Counts, Manifest, RecordedRecipe, SourceDataset
from glit.dataset.rights_figures import rights_section
from glit.dataset.statistics import (
    PAPER_COLUMNS,
    Statistics,
    beside_papers,
    lines,
    tokens_note,
)
from glit.stages import all_steps
from glit.stages.caption import CaptionStage

_WIDTH = 100
LICENCE_WARNING = (
    "> **Before you publish:** name the licence. It says `unknown` above, because only you know\n"
    "> where the images come from. Captions by a model are also under that model's terms."
)
_BY_MODELS = """\
- Captions and regions that models made contain mistakes, and nobody has checked each one.
- The rule chose the pairs from CLIP's similarities. A similarity is a cosine, not a probability;
  `probability` is null unless the rule was calibrated."""
_BY_FILES = """\
- The pairs were read from files beside the images; no matcher ran. A similarity is no cosine: it
  is 1 for a pair of the file, else 0. `image_similarity` is 1 for a sentence without a region."""
_LIMITS = """\
- A sentence without a pair has no region of its own. It may describe the whole image, or nothing
  in it."""
_ALONE = """\
- The images have no regions: `regions`, `similarity` and `pairs` are empty, `image_similarity` is
  null.
- Captions that models made contain mistakes, and nobody has checked each one."""
_IMAGES = """\
- Who and what is in the images, and in what proportion, depends on their source:
  describe it here."""

_TAG_OF_REGIONS = "- region-grounding\n"
_WITH_REGIONS = ", its sentences, candidate regions, and the best region of every sentence"
_BEST_PAIR = """\
best = sample["pairs"][0]
print(sample["sentences"][best["sentence"]]["text"], sample["regions"][best["region"]])"""
_CAPTION = 'print(sample["caption"])'


def shown_pictures(pictures: Iterable[str], *, paired: bool = True) -> str:
    """Return Markdown that shows pictures.

    Args:
        pictures: paths, relative to the card.
        paired: whether boxes are drawn on them, which their alternative text then says.
    """
    what = "A picture with its boxes and their numbers" if paired else "A picture"
    return "\n".join(f"![{what}]({path})" for path in pictures)


def title(paired: bool) -> str:
    """Return what a dataset holds, with regions or without, in a few words."""
    return "Images with region-grounded long captions" if paired else "Images with captions"


def dataset_card(manifest: Manifest, figures: Statistics, caution: str = "") -> str:
    """Write the dataset card: Markdown for people, with the YAML header that the Hub reads.

    Args:
        manifest: of the dataset.
        figures: its statistics.
        caution: what to know of its models; see :func:`glit.dataset.mini_models.caution`.
    """
    counts, recipe = manifest.counts, manifest.recipe
    models = "\n".join(
        f"| {role} | `{model.name}` | {model.revision} | {model.licence or 'unknown'} |"
        for role, model in sorted(manifest.models.items())
    )
    size = sum(file.bytes for file in manifest.data_files.values())
    paired = recipe.has_regions
    features = json.dumps(yaml_features(hf_features(manifest.columns)), ensure_ascii=False)
    return f"""---
license: unknown
pretty_name: {title(paired)}
{people_fields(manifest)}
size_categories:
- {size_category(counts.shipped)}
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
dataset_info:
  features: {features}
  splits:
  - name: train
    num_bytes: {size}
    num_examples: {counts.shipped}
  download_size: {size}
  dataset_size: {size}
task_categories:
- image-to-text
- zero-shot-image-classification
tags:
- long-captions
{_TAG_OF_REGIONS if paired else ""}- glit
---

# {"A region-grounded long-caption" if paired else "An image-caption"} dataset

{LICENCE_WARNING}

{
        paragraph(
            f"{counts.shipped} images, each with a long caption"
            + (_WITH_REGIONS if paired else " and its sentences")
            + ". Built by glit "
            f"{manifest.glit_version} with the recipe `{recipe.name}`{_added(manifest)}."
            + "".join(f" {said}" for said in origins(manifest))
            + (f" {recipe.about}" if recipe.pairs_from_files else "")
        )
    }

```python
from datasets import load_dataset

dataset = load_dataset("parquet", data_files="data/*.parquet", split="train")
sample = dataset[0]
{_BEST_PAIR if paired else _CAPTION}
```

{
        paragraph(
            "`croissant.json` describes the dataset for other loaders, with its collection, "
            "annotation and limits. `glit view` writes a page to look at. `glit export --to hf` "
            "writes a folder for the Hub, with pictures in its card and a `preview`"
            + (" with boxes drawn in." if paired else ".")
        )
    }

{certified(manifest)}## In figures

{figures_section(figures)}

## Where it comes from

| role | model | revision | licence |
|---|---|---|---|
{models}

{
        paragraph(
            f"{_steps(recipe)}{_kinds(manifest)} Token spans are those of "
            f"`{manifest.tokenizer.name}` in a window of {manifest.tokenizer.context} "
            "tokens, the start token counted as 0."
        )
    }

## What became of the images

{balance(counts if paired else replace(counts, without_pair=0))}

`drops.parquet` and `duplicates.parquet` name each image that is not here.

## What to know before use

{limits(manifest, caution)}
"""


def certified(manifest: Manifest) -> str:
    """A section on what is proved of the dataset; empty if nothing is."""
    if not manifest.certificates:
        return ""
    said = []
    for each in manifest.certificates:
        judges = ", ".join(f"`{name}`" for name in each.judges)
        claim = each.claim[0].upper() + each.claim[1:]
        kappa = ""
        if each.kappa is not None:
            kappa = f" Two people judged {each.judged_by_two} of them (kappa {each.kappa:.2f})."
        which = f" among samples where `{each.plan.claim.where}`" if each.plan.claim.where else ""
        said.append(
            paragraph(
                f"**{claim}{which}.** Estimated {each.estimate:.1%} wrong, at most "
                f"{each.at_most:.1%}. Judged by {judges}.{kappa} The verdicts are in "
                f"`{each.verdicts}`; `glit verify` computes the claim again."
            )
        )
    return "## Certified\n\n" + "\n\n".join(said) + "\n\n"


def people_fields(manifest: Manifest) -> str:
    """The Hub's fields on the language, and on who wrote the captions and the annotations."""
    recipe = manifest.recipe
    is_found = recipe.table(CaptionStage.name).get("backend") == "provided"
    fields = {
        # quoted: YAML takes the code of Norwegian for false
        "language": [json.dumps(recipe.language)],
        "language_creators": ["found" if is_found else "machine-generated"],
        "annotations_creators": ["found" if recipe.pairs_from_files else "machine-generated"]
        if recipe.has_regions
        else ["no-annotation"],
    }
    if any(by_people(each) for each in manifest.corrections):
        fields["annotations_creators"].append("expert-generated")
    return "\n".join(f"{key}:\n" + "\n".join(f"- {v}" for v in own) for key, own in fields.items())


def figures_section(found: Statistics) -> str:
    """The statistics of a dataset, its means beside those of papers, and the rights in its
    pictures, in Markdown."""
    rows = "\n".join(f"| {name} | {value} |" for name, value in lines(found))
    head = " | ".join(PAPER_COLUMNS)
    papers = "\n".join(f"| {' | '.join(row)} |" for row in beside_papers(found))
    return (
        f"| figure | |\n|---|---|\n{rows}\n\n"
        f"| {head} |\n|---|---:|---:|---:|---:|---|\n{papers}\n\n"
        + paragraph(f"Words are split at white space. {tokens_note(found)}")
        + rights_section(found.rights, found.images)
    )


def limits(manifest: Manifest, caution: str = "") -> str:
    """Return the points to know before use, as a list in Markdown."""
    first = [textwrap.fill(f"- **{caution}**", _WIDTH, subsequent_indent="  ")] if caution else []
    if not manifest.recipe.has_regions:
        return "\n".join([*first, _ALONE, _IMAGES])
    of_pairs = _BY_FILES if manifest.recipe.pairs_from_files else _BY_MODELS
    return "\n".join([*first, of_pairs, _LIMITS, _IMAGES])


def shown(value: object) -> str:
    """A recipe's value in a sentence; the parts of a list with commas between."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _steps(recipe: RecordedRecipe) -> str:
    """Return a line on the value that each step with a title shows, and on the plugins that were
    used."""
    said = [
        f"{step.title}: `{shown(recipe.table(step.name).get(step.shows, ''))}`."
        for step in all_steps()
        if step.title and recipe.table(step.name).get("enabled", step.name in recipe.tables)
    ]
    used = ", ".join(f"`{plugin_title(each)}`" for each in recipe.plugins)
    return " ".join([*said, *([f"Parts of plugins: {used}."] if used else [])])


def plugin_title(recorded: Mapping[str, str]) -> str:
    """A plugin as cards name it: its module, with the package and its version."""
    package = f"{recorded.get('package', '')} {recorded.get('version', '')}".strip()
    return f"{recorded.get('name', '')} ({package or recorded.get('sha256', '')[:12]})"


def _kinds(manifest: Manifest) -> str:
    """Return a sentence about the captions beside the long one; empty if there are none."""
    if CAPTIONS[0] not in manifest.columns:
        return ""
    named = manifest.recipe.table(CaptionStage.name).get("kinds", ())
    kinds = ", ".join(f"`{kind}`" for kind in named)
    return f" Images have several captions{f' of the kinds {kinds}' if kinds else ''}: `captions`."


def _added(manifest: Manifest) -> str:
    """Return a note on images that were added after the build; empty without any."""
    if not manifest.additions:
        return ""
    number = sum(each.shipped for each in manifest.additions)
    times = len(manifest.additions)
    how_often = "once" if times == 1 else f"{times} times"
    return f"; images were added {how_often} since, {number} of those here"


def origins(manifest: Manifest) -> list[str]:
    """Sentences on the datasets that rows were taken from by glit select, merge and pairs apply."""
    said = []
    if manifest.merged:
        names = [f"{each.name} (`{each.recipe.name}`)" for each in manifest.merged]
        said.append(f"Merged from {', '.join(names)}; of a repeated image the first is here.")
    if selection := manifest.selection:
        options = "; ".join(
            f"{key}: {value if isinstance(value, str) else json.dumps(value)}"
            for key, value in selection.more.items()
            if key != "before"
        )
        said.append(
            f"Selected from the {selection.rows} samples of {selection.name} by glit select: "
            f"`{options}`."
        )
    for each in manifest.corrections:
        who = "People looked at" if by_people(each) else "A model's repairs changed"
        done = "corrected them" if by_people(each) else "people judged some of these"
        said.append(
            f"{who} {each.more.get('samples')} of the {each.rows} samples of {each.name} and "
            f"{done} ({corrected(each)}); `by_hand` and `review` tell which."
        )
        said += [
            f"{', '.join(file['by'])} named regions in place of wrong ones: {file['certified']}."
            for file in each.more.get("files", ())
            if "certified" in file
        ]
    return said


def by_people(source: SourceDataset) -> bool:
    """Return whether people's own corrections are among those that were applied."""
    files = source.more.get("files", ())
    return not files or any("certified" not in file for file in files)


def corrected(source: SourceDataset) -> str:
    """Count the corrections of each kind, in words: ``3 moved, 1 drawn``."""
    kinds = ("moved", "drawn", "deleted", "labelled", "edited", "struck", "paired", "right")
    done = [f"{source.more[kind]} {kind}" for kind in kinds if source.more.get(kind)]
    return ", ".join(done) or "nothing changed"


def paragraph(text: str) -> str:
    """Text in lines of at most 100 characters, broken at spaces alone."""
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def size_category(number: int) -> str:
    """The Hub's size category for a number of rows."""
    for limit, name in (
        (1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"),
        (1_000_000, "100K<n<1M"), (10_000_000, "1M<n<10M"), (100_000_000, "10M<n<100M"),
    ):  # fmt: skip
        if number < limit:
            return name
    return "100M<n<1B"


def balance(counts: Counts, *, here: int | None = None) -> str:
    """Make a table of the counts: ingested, shipped, dropped, duplicates.

    Args:
        counts: of the manifest.
        here: how many of the shipped were chosen; None for all.
    """
    without, shipped = counts.without_pair, counts.shipped
    all_here = here in (None, shipped)
    rows = [
        ("found", counts.ingested),
        ("here" if all_here else "in the dataset", shipped),
        *([("of these without a pair", without)] if without else []),
        *([] if all_here else [("of these chosen by a condition, and here", here)]),
        *((f"dropped: {key}", number) for key, number in sorted(counts.drops.items())),
        ("repeat another", counts.duplicates),
    ]
    return "| images | |\n|---|---:|\n" + "\n".join(
        f"| {text} | {number} |" for text, number in rows
    )


def yaml_features(features: dict[str, Any]) -> list[dict[str, Any]]:
    """Features of the ``datasets`` library in the hub's YAML shape: a list of named fields.

    JSON is valid YAML.
    """
    return [_named(name, value) for name, value in features.items()]


def _named(name: str, feature: Any) -> dict[str, Any]:
    return {"name": name, **_plain(feature)}


def _plain(feature: Any) -> dict[str, Any]:
    kind = feature.get("_type")
    if kind == "Image":
        return {"dtype": "image"}
    if kind == "ClassLabel":
        names = {str(number): name for number, name in enumerate(feature["names"])}
        return {"dtype": {"class_label": {"names": names}}}
    if kind == "Value":
        return {"dtype": feature["dtype"]}
    if kind == "List":
        inner = _plain(feature["feature"])
        length = {"length": feature["length"]} if "length" in feature else {}
        return {"list": inner.get("struct") or _unnamed(inner), **length}
    return {"struct": [_named(name, value) for name, value in feature.items()]}


def _unnamed(inner: dict[str, Any]) -> Any:
    """A plain type by its name alone; a list within a list as it is."""
    return inner["dtype"] if isinstance(inner.get("dtype"), str) else inner
