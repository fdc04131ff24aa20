"""``glit merge``: the rows of several finished datasets as one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from glit.curate.corrected_row import review
from glit.curate.rewrite import Rows, finish, write_rows
from glit.curate.select_rows import source_of
from glit.data.schema import CAPTIONS, CORRECTED, DROPS_SCHEMA, ORIGIN, Columns, hf_feature
from glit.dataset.manifest import Counts, has_regions, sum_without_pair
from glit.dataset.mini_models import dataset_caution
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.label.corrections import State
from glit.pipeline.publish import write_left_out
from glit.runtime.progress import StageProgress
from glit.stages.dedup import find_duplicates
from glit.stages.score import ScoreStage
from glit.storage.outputs import new_folder
from glit.storage.store import Store

_KEPT = (
    "recipe", "fingerprints", "models", "precision", "calibration", "prompt", "further_prompts",
    "counts", "packages", "packages_before", "additions", "retries", "selection", "merged",
    "corrections",
)  # fmt: skip
"""What the manifest keeps of every dataset."""


def merge(datasets: Sequence[Dataset], output: Path, progress: StageProgress) -> dict[str, Any]:
    """Write the rows of datasets, one after another; of a repeated sample the first. The manifest.

    Args:
        datasets: finished ones of the same columns and tokenizer.
        output: a folder that does not exist yet; it appears when everything is written.
        progress: counts the rows.

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
        manifest = _manifest(datasets, sources)
        manifest["columns"] = {
            **manifest.get("columns", {}), **{name: hf_feature(kind) for name, kind in further}
        }  # fmt: skip
        files = write_rows(
            folder,
            [
                Rows(
                    dataset=dataset,
                    numbers=np.flatnonzero(own),
                    further=_values(dataset, source, further),
                )
                for dataset, source, own in zip(datasets, sources, left, strict=True)
            ],
            further=tuple(each for each in further if each[0] not in datasets[0].schema.names),
            pack=manifest["recipe"].get("pack", {}),
            report=progress.advance,
        )
        counts = Counts(
            ingested=total, shipped=total - len(repeats), dropped=0, duplicates=len(repeats),
            drops={}, without_pair=sum_without_pair(files),
        )  # fmt: skip
        files |= write_left_out(Store(folder), DROPS_SCHEMA.empty_table(), repeats)
        manifest |= {"counts": dataclasses.asdict(counts), "files": files}
        caution = next(filter(None, map(dataset_caution, datasets)), "")
        finish(folder, manifest, name=output.name, caution=caution)
    return manifest


def _further(datasets: Sequence[Dataset]) -> Columns:
    """The columns that a dataset may lack: captions of several kinds, those of corrected and of
    merged datasets."""
    lacking = (CAPTIONS, *CORRECTED)
    some = [each for each in lacking if any(each[0] in d.schema.names for d in datasets)]
    return (*some, ORIGIN)


def _values(dataset: Dataset, source: dict[str, Any], further: Columns) -> dict[str, Any]:
    """What rows have in the columns that their dataset lacks: nobody corrected them,
    and images have one caption."""
    origin = {
        "dataset": source["name"],
        "recipe": dataset.manifest["recipe"]["name"],
        "manifest_sha256": source["manifest_sha256"],
    }
    values = {CAPTIONS[0]: [], "by_hand": [], "review": review(State()), ORIGIN[0]: origin}
    return {name: values[name] for name, _ in further if name not in dataset.schema.names}


def _check(
    datasets: Sequence[Dataset], sources: Sequence[dict[str, Any]], further: Columns
) -> None:
    """Check that the rows of datasets can lie in the same files.

    Raises:
        InputError: they cannot.
    """
    if len(datasets) < 2:
        raise InputError("glit merge: want two datasets or more")
    first = datasets[0]
    seen: dict[str, str] = {}
    for dataset, source in zip(datasets, sources, strict=True):
        if same := seen.get(source["manifest_sha256"]):
            raise InputError(f"{dataset.path}: the same dataset as {same}; name each once")
        seen[source["manifest_sha256"]] = dataset.path
        if dataset.manifest["recipe"].get("pack", {}).get("image_store") == "path":
            raise InputError(
                f"{dataset.path}: stores only paths of its images, and a dataset has one folder of "
                "images; build it with pack.image_store = 'bytes'"
            )
        if dataset.manifest["tokenizer"] != first.manifest["tokenizer"]:
            theirs, ours = (
                f"{each.manifest['tokenizer']['name']} in a window of "
                f"{each.manifest['tokenizer']['context']}"
                for each in (dataset, first)
            )
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


def _manifest(datasets: Sequence[Dataset], sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The manifest without counts and files: what the first with regions has, where they do not
    agree."""
    found = [json.loads(json.dumps(dataset.manifest)) for dataset in datasets]
    merged = [
        {**source, **{key: each[key] for key in _KEPT if key in each}}
        for source, each in zip(sources, found, strict=True)
    ]
    rules: list[dict[str, Any]] = []
    models: dict[str, Any] = {}
    for each in found:
        alone = not has_regions(each)
        own = {key: each["recipe"][key] for key in ("pair", "match") if key in each["recipe"]}
        for rule in each.get("rules", [{"recipe": own, "calibration": each.get("calibration")}]):
            rules += [rule] if rule not in rules and not alone else []
        for role, model in each["models"].items():
            names = [role, *(f"{role}-{number}" for number in range(2, len(found) + 2))]
            if model not in [models.get(name) for name in names]:
                models[next(name for name in names if name not in models)] = model
    steps = sorted({step for each in found for step in each["fingerprints"]})
    first = next(filter(has_regions, found), found[0])
    manifest = {
        **first,
        "recipe": _recipe([each["recipe"] for each in found]),
        "models": models,
        "fingerprints": {
            step: _joined([each["fingerprints"].get(step, "") for each in found]) for step in steps
        },
        "retries": [retry for each in found for retry in each.get("retries", [])],
        "merged": merged,
        "rules": rules,
    }
    for key in (
        "additions",
        "corrections",
        "selection",
        *([] if manifest["retries"] else ["retries"]),
    ):
        manifest.pop(key, None)
    if len(rules) <= 1:
        manifest.pop("rules")
    return manifest


def _joined(fingerprints: list[str]) -> str:
    """The one that all have, or a hash of all."""
    if len({*fingerprints}) == 1:
        return fingerprints[0]
    return hashlib.sha256(" ".join(fingerprints).encode()).hexdigest()[:12]


def _recipe(recipes: list[dict[str, Any]]) -> dict[str, Any]:
    """The first recipe that has regions, with the limits within which all rows lie."""
    recipe = dict(next((each for each in recipes if has_regions({"recipe": each})), recipes[0]))
    recipe["name"] = " + ".join(dict.fromkeys(each["name"] for each in recipes))
    for table, key, default, of_all in (
        ("ingest", "max_pixels", 0, max),
        ("ingest", "near_duplicates", -1, min),
        ("pack", "max_side", 0, max),
        ("score", "phrases", False, min),
        ("score", "crop", "tight", lambda crops: "+".join(dict.fromkeys(crops))),
    ):
        values = [
            each.get(table, {}).get(key, default)
            for each in recipes
            if table != ScoreStage.name or has_regions({"recipe": each})
        ]
        if len({*values}) > 1:
            recipe[table] = {**recipe[table], key: of_all(values)}
    return recipe
