"""A draft of the public summary of training content that the EU AI Act, Article 53(1)(d), asks for.

Its sections are those of the Commission's template of July 2025. A dataset fills in what it knows
of itself; what the provider of a model has to say is marked.
"""

from __future__ import annotations

from collections.abc import Iterator

from glit.dataset.card import origins, paragraph
from glit.dataset.croissant import YOURS
from glit.dataset.manifest import Manifest
from glit.dataset.rights_figures import rights_rows
from glit.dataset.statistics import Statistics

_SIZES = {
    "images": ((10**6, "less than 1 million"), (10**9, "1 million to 1 billion")),
    "tokens": ((10**9, "less than 1 billion"), (10**13, "1 billion to 10 trillion")),
}
"""The template's ranges."""
_OPT_OUTS = {
    "mining_prohibited": "pictures that forbid data mining or training",
    "no_licence": "pictures that name no licence",
    "ai_generated": "pictures that a trained model made",
}


def training_summary(manifest: Manifest, figures: Statistics, *, name: str) -> str:
    """Write the draft, in Markdown.

    Args:
        manifest: of the dataset.
        figures: its statistics.
        name: of the dataset.
    """
    sections = [
        *_general(manifest, figures),
        *_sources(manifest, figures, name),
        *_processing(manifest, figures),
    ]
    return "# Summary of training content\n\n" + "\n\n".join(sections) + "\n"


def _general(manifest: Manifest, figures: Statistics) -> Iterator[str]:
    tokens = round(figures.captions * figures.tokens.mean) if figures.tokens else 0
    yield "## 1. General information"
    yield f"### 1.1. Provider identification\n\n{YOURS}provider and authorised representative."
    yield f"### 1.2. Model identification\n\n{YOURS}model, what it depends on, date of placement."
    yield (
        "### 1.3. Modalities, overall training data size and other characteristics\n\n"
        f"- Image: {_range('images', figures.images)} ({figures.images:,} images). "
        f"{YOURS}types of content.\n"
        + (f"- Text: {_range('tokens', tokens)} tokens ({tokens:,}). " if tokens else "- Text: ")
        + "Captions of the images.\n"
        f"- Linguistic characteristics: captions in `{manifest.recipe.language}`.\n"
        f"- {YOURS}latest date of data acquisition; whether it goes on."
    )


def _range(kind: str, number: int) -> str:
    return next((text for limit, text in _SIZES[kind] if number < limit), "more than that")


def _sources(manifest: Manifest, figures: Statistics, name: str) -> Iterator[str]:
    yield "## 2. List of data sources"
    yield paragraph(
        f"The dataset `{name}` was built by glit from {manifest.counts.ingested:,} image files. "
        + " ".join(
            [*origins(manifest), f"{YOURS}in which of the sections below the images belong."]
        )
    )
    for title, asked in (
        ("2.1. Publicly available datasets", "names and links of large ones."),
        ("2.2. Private non-publicly available datasets obtained from third parties",
         "2.2.1 those licensed by rightsholders or their representatives; 2.2.2 others."),
        ("2.3. Data crawled and scraped from online sources",
         "crawlers, period, and the most relevant domain names."),
        ("2.4. User data", "whether data of users of the provider's services was used."),
    ):  # fmt: skip
        yield f"### {title}\n\n{YOURS}{asked}"
    made = [
        f"{role} `{model.name}` at `{model.revision}`"
        for role, model in sorted(manifest.models.items())
        if role in ("captioner", "condenser", "rewriter")
    ]
    said = f"Texts were written by {', '.join(made)}." if made else "glit wrote no text by a model."
    if by_ai := figures.rights.get("ai_generated"):
        said += f" {by_ai:,} images state that a trained model made them, in part at least."
    said += f" {YOURS}whether texts or images that glit was given were made by models."
    yield f"### 2.5. Synthetic data\n\n{paragraph(said)}"
    yield f"### 2.6. Other sources of data\n\n{YOURS}if there are any."


def _processing(manifest: Manifest, figures: Statistics) -> Iterator[str]:
    rights = manifest.recipe.table("rights")
    yield "## 3. Data processing aspects"
    if rights:
        left_out = [_OPT_OUTS[reason] for reason in rights.get("drop", ()) if reason in _OPT_OUTS]
        said = (
            "Read from each picture: EXIF, IPTC, XMP (`plus:DataMining`) and C2PA (training and "
            "data mining assertions)"
        )
        if files := rights.get("reservations"):
            said += f"; by the pictures' paths: {len(files)} files of reservations"
        said += (
            f". Left out were {', '.join(left_out)}." if left_out else ". None was left out for it."
        )
        said = (
            paragraph(said)
            + "\n\n"
            + "\n".join(f"- {text}: {number:,}" for text, number in rights_rows(figures.rights))
        )
    else:
        said = paragraph(
            "What the pictures state of their rights was not read; build with `rights.enabled = "
            "true`."
        )
    yield (
        "### 3.1. Respect of reservation of rights from text and data mining exception or "
        f"limitation\n\n{said}\n\n{YOURS}measures before and during data collection."
    )
    drops = ", ".join(f"{number} {key}" for key, number in sorted(manifest.counts.drops.items()))
    yield f"### 3.2. Removal of illegal content\n\n{YOURS}measures taken."
    yield (
        "### 3.3. Other information\n\n"
        + paragraph(f"{manifest.counts.dropped} images were dropped ({drops or 'none'}), and "
                    f"{manifest.counts.duplicates} repeat another.")
    )  # fmt: skip
