"""``glit merge``: the rows of several finished datasets as one."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from glit.curate.derive import finish
from glit.curate.row_writer import Rows, write_rows
from glit.curate.select_rows import source_of
from glit.data.schema import CAPTIONS, CORRECTED, DROPS_SCHEMA, ORIGIN, Columns, hf_feature
from glit.dataset.by_hand import UNREVIEWED
from glit.dataset.manifest import (
    Counts,
    Manifest,
    MergedDataset,
    ModelEntry,
    RecordedRecipe,
    RecordedRule,
    SourceDataset,
    sum_without_pair,
)
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.pipeline.publish import write_left_out
from glit.runtime.progress import StageProgress
from glit.stages.dedup import find_duplicates
from glit.stages.pack import Pack, PackConfig
from glit.stages.score import ScoreStage
from glit.storage.outputs import new_folder
from glit.storage.store import Store

_KEPT = (
    "fingerprints", "models", "precision", "calibration", "prompt", "further_prompts", "counts",
    "packages", "packages_before", "additions", "retries", "selection", "corrections",
)  # fmt: skip
"""Keys of every dataset that the manifest keeps, beside its recipe and what that was merged from.
"""


def merge(datasets: Sequence[Dataset], output: Path, progress: StageProgress) -> Manifest:
    """The work of :func:`glit.api.merge`; the new manifest.

    Raises:
        InputError: the datasets do not fit together, or the folder exists.
        DatasetError: a file of one is damaged.
    """
    with new_folder(output) as folder:
        sources = [source_of(dataset) for dataset in datasets]
        further = _further(datasets)
        _check(datasets, sources, further)
        total = sum(map(len, datasets))
        places = [
            (dataset, name, first)
            for dataset in datasets
            for name, first in dataset.first_rows().items()
        ]
        repeats = find_duplicates(_identities(places), near_bits=-1, spill=str(folder))
        left = [np.ones(len(dataset), bool) for dataset in datasets]
        for each in repeats:
            dataset, _, first = places[each.chunk]
            left[datasets.index(dataset)][first + each.row] = False
        progress.begin("merge", total=total - len(repeats), done=0, drops=False)
        merged = _merged(datasets, sources)
        files = write_rows(
            folder,
            [
                Rows(
                    dataset=dataset,
                    numbers=np.flatnonzero(own),
                    values=_values(dataset, source),
                )
                for dataset, source, own in zip(datasets, sources, left, strict=True)
            ],
            added=further,
            pack=merged.recipe.config(Pack.name, PackConfig),
            report=progress.advance,
        )
        counts = Counts(
            ingested=total, shipped=total - len(repeats), dropped=0, duplicates=len(repeats),
            drops={}, without_pair=sum_without_pair(files),
        )  # fmt: skip
        files |= write_left_out(Store(folder), DROPS_SCHEMA.empty_table(), repeats)
        columns = {**merged.columns, **{name: hf_feature(kind) for name, kind in further}}
        manifest = dataclasses.replace(merged, counts=counts, files=files, columns=columns)
        finish(folder, manifest, name=output.name, sources=datasets)
    return manifest


def _further(datasets: Sequence[Dataset]) -> Columns:
    """The columns that a dataset may lack: captions of several kinds, those of corrected and of
    merged datasets."""
    lacking = (CAPTIONS, *CORRECTED)
    some = [each for each in lacking if any(each[0] in d.schema.names for d in datasets)]
    return (*some, ORIGIN)


def _values(dataset: Dataset, source: SourceDataset) -> dict[str, Any]:
    """Return the values of rows in the columns that their dataset may lack: nobody corrected them,
    and images have one caption."""
    origin = {
        "dataset": source.name,
        "recipe": dataset.manifest.recipe.name,
        "manifest_sha256": source.manifest_sha256,
    }
    return {CAPTIONS[0]: [], **UNREVIEWED, ORIGIN[0]: origin}


def _check(datasets: Sequence[Dataset], sources: Sequence[SourceDataset], further: Columns) -> None:
    """Check that the rows of datasets can lie in the same files.

    Raises:
        InputError: they cannot.
    """
    if len(datasets) < 2:
        raise InputError("glit merge: want two datasets or more")
    first = datasets[0]
    seen: dict[str, str] = {}
    for dataset, source in zip(datasets, sources, strict=True):
        if same := seen.get(source.manifest_sha256):
            raise InputError(f"{dataset.path}: the same dataset as {same}; name each once")
        seen[source.manifest_sha256] = dataset.path
        if not dataset.manifest.recipe.holds_images:
            raise InputError(
                f"{dataset.path}: stores only paths of its images, and a dataset has one folder of "
                "images; build it with pack.image_store = 'bytes'"
            )
        both = [each.manifest.tokenizer for each in (dataset, first)]
        if len({(each.sha256, each.context) for each in both}) > 1:
            theirs, ours = (f"{each.name} in a window of {each.context}" for each in both)
            raise InputError(
                f"{dataset.path}: its token spans are of another tokenizer ({theirs}) than those "
                f"of {first.path} ({ours}); build one of them again"
            )
        fields = [
            [(f.name, str(f.type)) for f in each.schema if (f.name, f.type) not in further]
            for each in (dataset, first)
        ]
        if fields[0] != fields[1]:
            differ = sorted({name for name, _ in {*fields[0]} ^ {*fields[1]}})
            raise InputError(
                f"{dataset.path}: its columns are not those of {first.path} "
                f"({', '.join(differ) or 'another order'}); build one of them again"
            )


def _identities(places: list[tuple[Dataset, str, int]]) -> Iterator[tuple[int, pa.Table]]:
    """Identities of all rows by file, in the columns in which duplicates are looked for."""
    for number, (dataset, name, _) in enumerate(places):
        table = dataset.table(["sample_id", "source_path"], file=name)
        for column in ("perceptual_hash", "drop"):
            table = table.append_column(column, pa.nulls(len(table), pa.int64()))
        yield number, table


def _merged(datasets: Sequence[Dataset], sources: Sequence[SourceDataset]) -> Manifest:
    """The manifest but for counts, files and columns: what the first with regions has, where they
    do not agree."""
    found = [dataset.manifest for dataset in datasets]
    models: dict[str, ModelEntry] = {}
    for each in found:
        for role, model in each.models.items():
            names = [role, *(f"{role}-{number}" for number in range(2, len(found) + 2))]
            if model not in [models.get(name) for name in names]:
                models[next(name for name in names if name not in models)] = model
    rules: list[RecordedRule] = []
    for rule in (rule for each in found for rule in each.all_rules):
        rules += [rule] if rule not in rules else []
    steps = sorted({step for each in found for step in each.fingerprints})
    return dataclasses.replace(
        next((each for each in found if each.recipe.has_regions), found[0]),
        recipe=_recipe([each.recipe for each in found]),
        models=models,
        fingerprints={s: _joined([each.fingerprints.get(s, "") for each in found]) for s in steps},
        additions=(),
        retries=tuple(retry for each in found for retry in each.retries),
        selection=None,
        corrections=(),
        merged=tuple(map(_kept, found, sources)),
        rules=tuple(rules) if len(rules) > 1 else (),
    )


def _kept(manifest: Manifest, source: SourceDataset) -> MergedDataset:
    """Return the manifest's record of a dataset."""
    plain = manifest.as_dict()
    return MergedDataset(
        name=source.name,
        manifest_sha256=source.manifest_sha256,
        rows=source.rows,
        recipe=manifest.recipe,
        merged=manifest.merged,
        more={key: plain[key] for key in _KEPT if key in plain},
    )


def _joined(fingerprints: list[str]) -> str:
    """The one that all have, or a hash of all."""
    if len({*fingerprints}) == 1:
        return fingerprints[0]
    return hashlib.sha256(" ".join(fingerprints).encode()).hexdigest()[:12]


def _recipe(recipes: list[RecordedRecipe]) -> RecordedRecipe:
    """The first recipe that has regions, with the limits within which all rows lie."""
    paired = [each for each in recipes if each.has_regions]
    recipe = (paired or recipes)[0]
    for table, key, default, of_all in (
        ("ingest", "max_pixels", 0, max),
        ("ingest", "near_duplicates", -1, min),
        ("pack", "max_side", 0, max),
        ("score", "phrases", False, min),
        ("score", "crop", "tight", lambda crops: "+".join(dict.fromkeys(crops))),
    ):
        of = paired if table == ScoreStage.name else recipes
        values = [each.table(table).get(key, default) for each in of]
        if len({*values}) > 1:
            recipe = recipe.with_table(table, {**recipe.tables[table], key: of_all(values)})
    return dataclasses.replace(recipe, name=" + ".join(dict.fromkeys(r.name for r in recipes)))
