"""Read and write ``RUN/run.json``: a run's settings and dataset."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError
from glit.models.files import weights_hash
from glit.models.weights import is_mini
from glit.recipes.config import as_table, build_dataclass
from glit.recipes.plugins import plugin_of, require_loaded
from glit.recipes.toml_tables import load_table, overridden_tables, read_tables
from glit.storage.store import Store
from glit.training.config import TrainConfig
from glit.training.mixture import Mixture
from glit.version import __version__

NAME = "run.json"
MAY_CHANGE = {
    "epochs",
    "max_steps",
    "image_root",
    "num_workers",
    "prefetch_batches",
    "log_every",
    "checkpoint_every",
    "keep_every",
    "trackers",
}
"""Settings that a resumed run may change: how long it goes, how it is fed, and what it reports."""


UNDECIDED = ("precision", "auto")
"""A setting that a run has replaced by what its device is good for."""
PATHS = ("model", "validation", "validation_classes", "also", "image_root")
"""Settings that may be paths. Ray's workers run in another folder, so they get absolute ones."""


def anywhere(path: Any) -> Any:
    """A path, or several, that mean the same in another folder; names and addresses as they are."""
    if not isinstance(path, str):
        return tuple(map(anywhere, path))
    return str(Path(path).resolve()) if os.path.exists(path) and not is_mini(path) else path


def write_run_file(
    run: Path,
    config: TrainConfig,
    dataset: Mixture,
    *,
    start: Path,
    model: nn.Module,
    num_threads: int,
) -> None:
    """Write ``run.json``: the run's settings and dataset.

    Args:
        run: the run's folder.
        config: of the run.
        dataset: all that is trained on.
        start: folder of the model that the run starts from.
        model: whose parameters are counted.
        num_threads: of torch on the CPU; they decide the last digits of a sum.
    """
    packages = {
        name: importlib.metadata.version(name) for name in ("torch", "transformers", "accelerate")
    }
    plugin = plugin_of(type(config.make_objective()))
    values = {
        "glit": __version__,
        **({} if plugin is None else {"plugins": [plugin.identity()]}),
        "packages": packages,
        "dataset": dataset.parts[0].path,
        "dataset_sha256": mixture_hash(dataset),
        "parts_sha256": [dataset_hash(part) for part in dataset.parts],
        "model_sha256": weights_hash(start),
        "threads": num_threads,
        "parameters": {
            "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "all": sum(p.numel() for p in model.parameters()),
        },
        "train": settings(config),
    }
    if config.validation:
        values["validation_sha256"] = dataset_hash(Dataset(config.validation))
    Store(run).write(NAME, (json.dumps(values, indent=2) + "\n").encode())


def settings(config: TrainConfig) -> dict[str, Any]:
    """All keys of the ``[train]`` table as plain values, those of the objective written out."""
    objective = as_table(config.make_objective())
    plain = {**as_table(config), **objective}
    return json.loads(json.dumps(plain))


def dataset_hash(dataset: Dataset) -> str:
    """A hash of the dataset's data files, hex; another dataset has another hash."""
    files = dataset.manifest.files
    text = " ".join(f"{name}:{files[name].sha256}" for name in dataset.files)
    return hashlib.sha256(text.encode()).hexdigest()


def mixture_hash(dataset: Mixture) -> str:
    """A hash of several datasets; for one dataset equal to :func:`dataset_hash`."""
    each = [dataset_hash(part) for part in dataset.parts]
    return each[0] if len(each) == 1 else hashlib.sha256(" ".join(each).encode()).hexdigest()


def was_trained_on(model: Path, dataset: Dataset) -> bool:
    """Return whether a run, or a checkpoint in a run's folder, was trained on a dataset."""
    runs = [folder for folder in (model, model.parent) if (folder / NAME).is_file()]
    return any(dataset_hash(dataset) in _read(run).get("parts_sha256", ()) for run in runs)


def config_of(
    run: Path,
    *,
    recipe: str | None,
    objective: str | None,
    settings: Sequence[str],
    resume: bool,
    known_tables: Callable[[], Sequence[str]],
) -> TrainConfig:
    """The configuration from what a user gave, and for ``--resume`` from the run's file.

    Args:
        run: the run's folder.
        recipe: whose ``[train]`` table is taken; a new run wants one.
        objective: replaces the recipe's.
        settings: ``train.key=value``.
        resume: go on with the run's own settings; what is named here may not contradict them.
        known_tables: returns the names of the tables that a recipe may hold.

    Raises:
        RecipeError: an unknown key, a wrong value, or a contradiction.
        InputError: the run to resume does not say how it was started.
    """
    changes = list(settings)
    if objective is not None:
        given = overridden_tables(changes, known=known_tables()).get("train", {})
        said = given.get("objective", objective)
        if said != objective:
            raise RecipeError(
                f"--objective {objective} and --set train.objective={said} differ; give one"
            )
        changes = [f"train.objective={objective}", *changes]
    if not resume:
        if recipe is None:
            raise RecipeError(f"{run}: a new run wants a recipe (built in: mini, fast-goal, ...)")
        return load_table(TrainConfig, recipe, known_tables=known_tables, overrides=changes)
    named = overridden_tables(changes, known=known_tables())
    if recipe is not None:
        named = read_tables(recipe, known_tables=known_tables, overrides=changes)
    return resumed_config(run, json.loads(json.dumps(named.get("train", {}))))


def resumed_config(run: Path, changes: dict[str, Any]) -> TrainConfig:
    """The configuration of a resumed run: its own settings with the allowed changes.

    Args:
        run: the run's folder.
        changes: keys of ``[train]`` that the user named, as plain values; the precision ``auto`` is
            what the run decided.

    Raises:
        InputError: the run does not say how it was started.
        RecipeError: a change would make it another run.
    """
    before = settings_of(run)
    if found := differences(before, changes):
        raise RecipeError(
            f"{run}: --resume goes on with the run's own settings, but was given {found}; leave "
            f"that out, or start a new run with -o (may change: {', '.join(sorted(MAY_CHANGE))})"
        )
    changes = {k: value for k, value in changes.items() if (k, value) != UNDECIDED}
    where = f"{run / NAME} [train]"
    return build_dataclass(TrainConfig, {**before, **changes}, where=where)


def settings_of(run: Path) -> dict[str, Any]:
    """All settings of a run. A key that glit got after the run has its default.

    Raises:
        InputError: the run does not say how it was started.
    """
    where = f"{run / NAME} [train]"
    return settings(build_dataclass(TrainConfig, _read(run)["train"], where=where))


def differences(before: dict[str, Any], changes: dict[str, Any]) -> str:
    """The changes that a run cannot go on with, each beside the run's value, for a message; empty
    where it can go on with all.

    What a resumed run may change (:data:`MAY_CHANGE`) does not count, nor another spelling of a
    path, nor the precision ``auto``: the run has already chosen one.
    """
    return ", ".join(
        f"train.{key} = {value!r} (run: {before[key]!r})"
        for key, value in changes.items()
        if key in before
        and key not in MAY_CHANGE
        and (key, value) not in (UNDECIDED, (key, before[key]))
        and not (key in PATHS and anywhere(before[key]) == anywhere(value))
    )


def threads_of(run: Path) -> int | None:
    """The number of threads a run began with; None for a run of an earlier glit.

    Raises:
        InputError: the run does not say how it was started.
    """
    found = _read(run).get("threads")
    return found if type(found) is int and found > 0 else None


def trained_parameters(run: Path) -> str:
    """The number of trained and of all parameters: ``1,024 of 149,620,737 parameters``.

    A run of an earlier glit did not count them.

    Raises:
        InputError: the run does not say how it was started.
    """
    found = _read(run).get("parameters")
    if found is None:
        return "parameters not counted"
    return f"{found['trained']:,} of {found['all']:,} parameters"


def check_resumable(run: Path, config: TrainConfig, dataset: Mixture, *, start: Path) -> None:
    """Refuse to resume with other settings, another dataset, or adapters from another start.

    Raises:
        InputError: see above.
        RecipeError: names the settings.
    """
    before = _read(run)
    kept = before.get("dataset_sha256")
    if kept is not None and kept != mixture_hash(dataset):
        raise InputError(
            f"{run}: was trained on {before['dataset']}, and {dataset.path} holds other data "
            "files; give that dataset, or start a new run with -o"
        )
    resumed_config(run, settings(config))
    if config.lora_rank and before.get("model_sha256") != weights_hash(start):
        raise InputError(
            f"{config.model}: holds other files than when {run} began, and the adapters belong to "
            "those; put them back, or start a new run with -o"
        )
    if config.validation:
        found = dataset_hash(Dataset(config.validation))
        if before.get("validation_sha256", found) != found:
            raise InputError(
                f"{config.validation}: train.validation holds other data files than when {run} "
                "began, and its best checkpoint was chosen by those; put them back, or start a "
                "new run with -o"
            )


def _read(run: Path) -> dict[str, Any]:
    path = run / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(found["train"], dict)
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise InputError(
            f"{path}: does not say how the run was started ({type(error).__name__}), so it cannot "
            "be resumed; start a new run with -o"
        ) from error
    require_loaded(found.get("plugins") or (), wanted_by=f"the run {run}")
    return found
