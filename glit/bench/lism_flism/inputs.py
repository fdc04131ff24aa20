"""Make the columns' inputs: your photographs, or scenes, with captions cut into sentences."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glit.bench.lism_flism.columns import BenchImages
from glit.bench.scenes import truths
from glit.data.records import Caption, Sample
from glit.errors import InputError
from glit.inputs.files import ImageFiles
from glit.inputs.source import entries, find_source
from glit.models.weights import Resolved
from glit.scenes import draw_scene, write_caption, write_scenes
from glit.stages.ingest import Ingest, IngestConfig, ingest
from glit.stages.split import SplitConfig
from glit.storage.store import Store

SEED = 2_000_000
"""Seed of the scenes: test scenes, which the mini models have not seen."""


def photographs(images: str, *, num: int) -> BenchImages:
    """The first images of a folder, a glob or a list, in sorted order, with captions of scenes.

    Raises:
        InputError: there is no such folder, or no image in it can be used.
    """
    source = find_source(images)
    store = ImageFiles(source.root)
    found = sorted(entries(source), key=lambda entry: entry.path)[:num]
    rows = list(ingest(found, store, IngestConfig()))
    good = [row for row in rows if not row.get("drop")]
    if not good:
        raise InputError(f"{images}: none of the {len(rows)} files found can be used as an image")
    samples = [_sample(row, _made_up(number)) for number, row in enumerate(good, start=1)]
    notes = ["Captions: sentences of scenes, others for every photograph."]
    if len(good) < len(rows):
        notes.append(f"{len(rows) - len(good)} of {len(rows)} files could not be used.")
    what = f"{len(good)} photographs, {_extent(samples)}"
    return BenchImages(store=store, samples=tuple(samples), what=what, notes=tuple(notes))


def _made_up(number: int) -> str:
    """A long caption for a photograph that nobody has described.

    Its number keeps sentences of different photographs apart, so that none is encoded once for all.
    """
    told = write_caption(draw_scene(SEED, number, level="hard")).sentences
    return " ".join(f"{each.text.rstrip('.')} in photograph number {number}." for each in told)


def scenes(folder: Path, *, num: int, side_px: int, image_format: str) -> BenchImages:
    """Scenes with their own captions and the truth about them.

    Args:
        folder: where they are drawn.
        num: how many.
        side_px: their side.
        image_format: ``png`` or ``jpeg``.
    """
    write_scenes(folder, num=num, seed=SEED, size=side_px, image_format=image_format)
    store = Store(str(folder / "images"))
    lines = (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    captions = {line["path"]: line["caption"] for line in map(json.loads, lines)}
    found = sorted(entries(find_source(store.root)), key=lambda entry: entry.path)
    rows = list(ingest(found, store, IngestConfig()))
    truth = truths(folder / "ground_truth.parquet")
    return BenchImages(
        store=store,
        samples=tuple(_sample(row, captions[row["source_path"]]) for row in rows),
        what=f"{num} scenes, {side_px} x {side_px} px",
        truth=tuple(truth[row["source_path"]] for row in rows),
    )


def _sample(row: dict[str, Any], text: str) -> Sample:
    caption = Caption(text=text, kind="provided", model="", revision="", prompt_sha256="")
    return dataclasses.replace(Ingest.sample(row), caption=caption)


def _extent(samples: Sequence[Sample]) -> str:
    sizes = sorted({(s.width, s.height) for s in samples}, key=lambda size: size[0] * size[1])
    smallest, largest = f"{sizes[0][0]} x {sizes[0][1]} px", f"{sizes[-1][0]} x {sizes[-1][1]} px"
    return smallest if len(sizes) == 1 else f"{smallest} to {largest}"


def with_sentences(images: BenchImages, matcher: Resolved, config: SplitConfig) -> BenchImages:
    """The images with their captions cut as a build cuts them.

    Args:
        images: with captions.
        matcher: whose tokenizer gives the token spans.
        config: how to cut.
    """
    from glit.models.tokenizer import TextTokenizer
    from glit.stages.image_source import ImageSource
    from glit.stages.split import SplitStage

    stage = SplitStage(config, TextTokenizer(matcher.path))
    done = list(stage.process(images.samples, ImageSource(images.store)))
    samples = [sample for sample in done if isinstance(sample, Sample)]
    assert len(samples) == len(done), "a caption without a sentence"
    return dataclasses.replace(images, samples=tuple(samples))
