"""``glit pair``: a finished dataset with the pairs of another rule; no model, no pixels.

The data files are those that a build with that rule would have written, byte for byte: everything
but the pairs is taken over as it stands.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from glit.curate.rewrite import finish, write_pictures
from glit.data.records import Pair
from glit.data.rows import pair_row
from glit.data.schema import PAIR, dataset_schema, further_columns
from glit.dataset.by_hand import by_hand_of, with_by_hand
from glit.dataset.manifest import (
    FileEntry,
    Manifest,
    describe_data_file,
    require_regions,
    sum_without_pair,
)
from glit.dataset.mini_models import dataset_caution
from glit.dataset.reader import Dataset
from glit.dataset.recorded_rules import scores_of
from glit.dataset.row import Row
from glit.errors import RecipeError
from glit.plain import as_plain
from glit.planning.plan import fingerprint
from glit.planning.recipe import overridden_tables, read_tables
from glit.recipes.config import as_table, build_dataclass
from glit.recipes.plugins import require_loaded
from glit.recipes.toml_tables import naming_file
from glit.rules import RULES
from glit.rules.calibration import find_calibration
from glit.rules.pairing import Pairing
from glit.stages import all_steps
from glit.stages.flow import make_flow
from glit.stages.pack import Pack, PackConfig, writer_options
from glit.stages.pair import PairConfig, PairStage
from glit.stages.score import ScoreStage
from glit.storage.outputs import new_folder
from glit.storage.store import Store

Report = Callable[[int], None]


def pair_again(
    dataset: Dataset,
    output: Path,
    *,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    processes: int = 1,
    report: Report = lambda rows: None,
) -> Manifest:
    """Write the dataset with other pairs; the new manifest.

    Args:
        dataset: a finished one.
        output: a folder that does not exist yet; it appears when everything is written.
        recipe: whose ``[pair]`` table is taken; without it, the dataset's own.
        settings: ``pair.key=value``.
        processes: how many write files; more than one want a main module that can be imported.
        report: called with so many more rows that are finished.

    Raises:
        InputError: the folder exists, or the dataset is of captions alone.
        RecipeError: a setting cannot be, or the scores do not suffice for it.
        DatasetError: a file of the dataset is damaged.
    """
    with new_folder(output) as folder:
        require_regions(dataset.manifest, dataset.path, wanted_by="glit pair wants")
        config = pair_config(dataset.manifest, recipe, settings)
        manifest = write_with_pairs(dataset, folder, config, processes=processes, report=report)
        finish(folder, manifest, name=output.name, caution=dataset_caution(dataset))
        return manifest


def write_with_pairs(
    dataset: Dataset, folder: Path, config: PairConfig, *, processes: int, report: Report
) -> Manifest:
    """Write the Parquet files of a dataset with other pairs; the manifest to write last.

    Raises:
        RecipeError: the scores do not suffice for the rule.
        DatasetError: a file of the dataset is damaged.
    """
    before = dataset.manifest
    pairing = _pairing(before, config)
    (folder / "data").mkdir()
    described = _write_files(dataset, folder, pairing, processes, report)
    for left_out in ("drops.parquet", "duplicates.parquet"):
        (folder / left_out).write_bytes(Store(dataset.path).read(left_out))
    described |= write_pictures(folder, dataset, described)
    kept = pairing.calibration
    return dataclasses.replace(
        before,
        files={**before.files, **described},
        counts=dataclasses.replace(before.counts, without_pair=sum_without_pair(described)),
        recipe=before.recipe.with_table(PairStage.name, as_table(config)),
        calibration=None if kept is None else kept.as_dict(),
        fingerprints=_fingerprints(before, config, pairing),
        rules=(),
    )


def pair_config(manifest: Manifest, recipe: str | None, settings: Sequence[str]) -> PairConfig:
    """The table ``[pair]`` of a recipe, or the dataset's own, with some keys changed.

    Raises:
        RecipeError: a key cannot be, or is of another table.
        MissingPluginError: the dataset's own rule comes from a plugin that is not loaded.
    """
    for word in settings:
        if not word.startswith("pair."):
            raise RecipeError(f"--set {word}: only keys of [pair] can change here")
    with naming_file(recipe):
        if recipe is not None:
            values = read_tables(recipe, overrides=settings).get(PairStage.name, {})
        else:
            own = manifest.recipe.tables[PairStage.name]
            changes = overridden_tables(settings).get(PairStage.name, {})
            if changes.get("rule", own["rule"]) != own["rule"]:
                own = {}  # another rule's options, and a calibration of it
            elif own["rule"] not in RULES:
                require_loaded(manifest.recipe.plugins, wanted_by="the dataset")
            values = overridden_tables(settings, of={PairStage.name: own})[PairStage.name]
        config = build_dataclass(PairConfig, values, where="[pair]")
        return config.with_scale(manifest.logit_scale)


def _pairing(manifest: Manifest, config: PairConfig) -> Pairing:
    calibration = find_calibration(config.calibration)
    if calibration is not None:
        config.check_calibration(calibration, scores_of(manifest))
    recipe = manifest.recipe
    config.check_scored(
        phrases=bool(recipe.table(ScoreStage.name).get("phrases")),
        grounded="opinion" in manifest.models
        or (recipe.is_grounded and not recipe.pairs_from_files),
        compared=not recipe.pairs_from_files,
    )
    return config.make_pairing(calibration)


def _fingerprints(manifest: Manifest, config: PairConfig, pairing: Pairing) -> dict[str, str]:
    """Return the fingerprints that a build with these settings has."""
    found = dict(manifest.fingerprints)
    enabled = [step for step in all_steps() if step.name in manifest.recipe.tables]
    direct = make_flow(enabled).direct
    for step, table, extra in (
        (PairStage, config, PairStage.identity_of(config, pairing.calibration)),
        (Pack, manifest.recipe.config(Pack.name, PackConfig), {}),
    ):
        upstream = [found[name] for name in direct[step.name]]
        found[step.name] = fingerprint(step, table, extra=extra, upstream=upstream)
    return found


def _write_files(
    dataset: Dataset, folder: Path, pairing: Pairing, processes: int, report: Report
) -> dict[str, FileEntry]:
    """Write the files and return their entries in the manifest; several processes report each whole
    file."""
    write = partial(_write_file, dataset.path, str(folder), pairing)
    number = min(processes, len(dataset.files))
    if number == 1:
        return {name: write(name, report=report) for name in dataset.files}
    described: dict[str, FileEntry] = {}
    # spawned ones would end as this interpreter does, while their thread runs: DuckDB complains
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(number, mp_context=context, initializer=end_with_parent) as pool:
        names = {pool.submit(write, name): name for name in dataset.files}
        for done in as_completed(names):
            described[names[done]] = done.result()
            report(described[names[done]].rows)
    return described


def end_with_parent() -> None:
    """End this process when the one that started it is gone, even if that was killed: else it
    would wait for work for ever."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def _pairs(row: Row, pairing: Pairing) -> tuple[Pair, ...]:
    """The pairs of the rule; those that a person decided stay."""
    made = pairing(row.scores, row.regions, row.sentences)
    return with_by_hand(made, by_hand_of(row.extra), row.scores)


def _write_file(
    dataset: str, folder: str, pairing: Pairing, name: str, *, report: Report = lambda rows: None
) -> FileEntry:
    """Write one data file with other pairs; what the manifest says of it."""
    opened = Dataset(dataset)
    further = further_columns(opened.schema)
    schema = dataset_schema(tokenizer=as_plain(opened.manifest.tokenizer), further=further)
    target = Path(folder) / name
    number = 0
    with pq.ParquetWriter(target, schema, **writer_options(schema)) as writer:
        for index, place in enumerate(opened.places):
            if place.path != name:
                continue
            group = opened.row_group(index)
            rows = [
                [pair_row(pair) for pair in _pairs(row, pairing)]
                for row in opened.row_group(index, images=False)
            ]
            at = group.table.schema.get_field_index("pairs")
            field = group.table.schema.field(at)
            changed = group.table.set_column(at, field, pa.array(rows, type=pa.list_(PAIR)))
            writer.write_table(changed, row_group_size=max(1, len(changed)))
            number += len(changed)
            report(len(changed))
    return describe_data_file(target, number)
