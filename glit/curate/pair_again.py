"""``glit pair``: a finished dataset with the pairs of another rule; no model, no pixels.

The data files are those that a build with that rule would have written, byte for byte: everything
but the pairs is taken over as it stands.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from glit.curate.derive import change_rows, finish
from glit.curate.row_writer import Report
from glit.data.records import Drop
from glit.data.rows import pair_row
from glit.data.schema import PAIR
from glit.dataset.by_hand import by_hand_of, with_by_hand
from glit.dataset.columns import RowGroup
from glit.dataset.manifest import Manifest, require_regions
from glit.dataset.reader import Dataset
from glit.dataset.recorded_rules import scores_of
from glit.errors import RecipeError
from glit.pipeline.planning.plan import fingerprint
from glit.pipeline.planning.recipe import overridden_tables, read_tables
from glit.recipes.config import as_table, build_dataclass
from glit.recipes.plugins import require_loaded
from glit.recipes.toml_tables import naming_file, with_files
from glit.rules import RULES
from glit.rules.calibration import Calibration, find_calibration
from glit.rules.pairing import Pairing
from glit.stages import all_steps
from glit.stages.flow import make_flow
from glit.stages.pack import Pack, PackConfig
from glit.stages.pair import PairConfig, PairStage
from glit.stages.score import ScoreStage
from glit.storage.outputs import new_folder


def pair_again(
    dataset: Dataset,
    output: Path,
    *,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    processes: int = 1,
    report: Report = lambda rows: None,
) -> Manifest:
    """The work of :func:`glit.api.pair`; the new manifest. ``report`` gets the number of more
    finished rows.
    """
    with new_folder(output) as folder:
        require_regions(dataset.manifest, dataset.path, wanted_by="glit pair wants")
        config = pair_config(dataset.manifest, recipe, settings)
        manifest = write_with_pairs(dataset, folder, config, processes=processes, report=report)
        finish(folder, manifest, name=output.name, sources=[dataset])
        return manifest


def write_with_pairs(
    dataset: Dataset, folder: Path, config: PairConfig, *, processes: int, report: Report
) -> Manifest:
    """Write the Parquet files of a dataset with other pairs; the manifest to write last.

    Raises:
        RecipeError: the scores do not suffice for the rule.
        DatasetError: a file of the dataset is damaged.
    """
    pairing = _pairing(dataset.manifest, config)
    made = change_rows(
        dataset, folder, partial(_with_pairs, pairing), processes=processes, report=report
    )
    kept = pairing.calibration
    return dataclasses.replace(
        made,
        recipe=made.recipe.with_table(
            PairStage.name,
            with_files({PairStage.name: as_table(config)}, os.path.basename)[PairStage.name],
        ),
        calibration=None if kept is None else kept.as_dict(),
        fingerprints=_fingerprints(made, config, pairing),
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


def _calibration(manifest: Manifest, name: str) -> Calibration | None:
    """The calibration of a name; the dataset's own, which its manifest holds, needs no file."""
    own = manifest.recipe.table(PairStage.name).get("calibration") == name
    if own and manifest.calibration is not None and not os.path.exists(name):
        return Calibration.from_dict(manifest.calibration, where="manifest.json: calibration")
    return find_calibration(name)


def _pairing(manifest: Manifest, config: PairConfig) -> Pairing:
    calibration = _calibration(manifest, config.calibration)
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


def _with_pairs(pairing: Pairing, group: RowGroup) -> tuple[pa.Table, dict[int, Drop]]:
    """The rows with the pairs of the rule; those that a person decided stay."""
    pairs = [
        [
            pair_row(pair)
            for pair in with_by_hand(
                pairing(row.scores, row.regions, row.sentences), by_hand_of(row.extra), row.scores
            )
        ]
        for row in group.without_images()
    ]
    at = group.table.schema.get_field_index("pairs")
    column = pa.array(pairs, pa.list_(PAIR))
    return group.table.set_column(at, group.table.schema.field(at), column), {}
