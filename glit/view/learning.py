"""The report page of training runs and of evaluation results."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.version import __version__
from glit.view.report import thumbnail_url
from glit.view.samples import sample

RUN_FILE, METRICS = "run.json", "metrics.jsonl"
_MOST_POINTS = 300
_NUM_MAPPED = 12
_MOST_RUNS = 4
"""Most runs of a page: as many kinds of lines are told apart."""
_RECALL = re.compile(r"(image|text)_retrieval_recall@(\d+)$")
_CURVES = {
    "loss": "Loss",
    "lr": "Learning rate",
    "grad_norm": "Norm of the gradients",
    "logit_scale": "Logit scale",
    "samples_per_s": "Samples a second",
}
"""Besides the terms of the loss and what else an objective reports."""
_NOT_SHOWN = {"step", "total_steps", "epoch", "steps_per_s"}


def is_run(path: str) -> bool:
    """Return whether a folder is a run of glit train."""
    return (Path(path) / RUN_FILE).is_file()


def is_results(path: str) -> bool:
    """Return whether a folder holds results of glit eval."""
    return any(_read_results(Path(path)))


def learning_data(paths: Sequence[str]) -> dict[str, Any]:
    """The page's data: the runs, and the results of all other folders.

    Args:
        paths: folders of glit train and glit eval.

    Raises:
        InputError: a folder is neither, too many are runs, or a file is damaged.
    """
    runs = [path for path in paths if is_run(path)]
    others = [path for path in paths if path not in runs]
    for path in others:
        if not is_results(path):
            raise InputError(f"{path}: neither a run of glit train nor results of glit eval")
    if len(runs) > _MOST_RUNS:
        raise InputError(f"{len(runs)} runs; a page compares at most {_MOST_RUNS}")
    results = [result for path in others for result in _read_results(Path(path))]
    return {
        "kind": "learning",
        "glit": __version__,
        "name": " and ".join(Path(path).resolve().name for path in paths),
        "runs": [_run(Path(path), name) for path, name in zip(runs, _names(runs), strict=True)],
        "results": results,
        "recalls": [_recalls(result) for result in results if _recalls(result)["ways"]],
        "neighbours": [found for path in others for found in _neighbours(Path(path))],
    }


def dataset_of_run(path: str) -> str:
    """The folder or address of the dataset that a run was trained on."""
    return str(_json(Path(path) / RUN_FILE).get("dataset", ""))


def mapped(dataset: Dataset) -> dict[str, Any]:
    """A few samples of a dataset, spread evenly, for the page's maps; with what they are of."""
    step = max(1, len(dataset) // _NUM_MAPPED)
    numbers = range(0, len(dataset), step)[:_NUM_MAPPED]
    rows = [(number, dataset[number]) for number in numbers]
    return {
        "story": {"pairs_from_files": dataset.manifest.recipe.pairs_from_files},
        "samples": [sample(row, number=number, image=thumbnail_url(row)) for number, row in rows],
    }


def _names(paths: Sequence[str]) -> list[str]:
    """The folders' names; where two are alike, with the folder above."""
    whole = [Path(path).resolve() for path in paths]
    alike = len({path.name for path in whole}) < len(whole)
    return [f"{path.parent.name}/{path.name}" if alike else path.name for path in whole]


def _run(path: Path, name: str) -> dict[str, Any]:
    about = _json(path / RUN_FILE)
    lines = _metrics(path / METRICS)
    last = lines[-1] if lines else {}
    return {
        "name": name,
        "dataset": Path(str(about.get("dataset", ""))).name,
        "glit": about.get("glit", ""),
        "packages": about.get("packages", {}),
        "settings": about.get("train", {}),
        "steps": last.get("step", 0),
        "total_steps": last.get("total_steps", 0),
        "epochs": last.get("epoch", 0),
        "curves": list(_curves(lines)),
        "checkpoints": list(_checkpoints(path, lines)),
    }


def _metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a run; the last one may be half written while it is at work."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise InputError(f"{path}: line {number} is damaged ({error})") from error
    return [each for each in found if isinstance(each, dict) and "step" in each]


def _curves(lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    names = list(dict.fromkeys(name for line in lines for name in line))
    terms = [name for name in names if name.startswith("loss_")]
    order = ["loss", *terms, *(n for n in names if n not in ("loss", *terms, *_CURVES)), *_CURVES]
    for name in dict.fromkeys(order):
        points = [
            (line["step"], float(line[name]))
            for line in lines
            if isinstance(line.get(name), int | float)
        ]
        if name in _NOT_SHOWN or not points:
            continue
        finite = [(step, value) for step, value in points if math.isfinite(value)]
        words = name.replace("loss_", "Loss: ").replace("_", " ").replace("tsl", "TSL")
        title = _CURVES.get(name, words)
        yield {
            "name": name,
            "title": title[0].upper() + title[1:],
            "points": _thinned(finite),
            "not_finite": len(points) - len(finite),
        }


def _thinned(points: list[tuple[int, float]]) -> list[list[float]]:
    """Means of equal runs of points, so that a long run draws as fast as a short one."""
    size = -(-len(points) // _MOST_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        [group[-1][0], float(f"{sum(value for _, value in group) / len(group):.6g}")]
        for group in groups
    ]


def _checkpoints(path: Path, lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every whole checkpoint with what ``best`` and ``last`` point to."""
    names: dict[Path, list[str]] = {}
    for name in ("best", "last"):
        if (path / name).is_dir():
            names.setdefault((path / name).resolve(), []).append(name)
    folders = sorted((path / "checkpoints").glob("step-*")) if path.is_dir() else []
    others = [folder for folder in names if folder not in {each.resolve() for each in folders}]
    for folder in [*folders, *others]:
        weights = folder / "model.safetensors"
        if not weights.is_file():
            continue
        state = folder / "trainer" / "state.json"
        position = _json(state) if state.is_file() else {}
        step = position.get("step") or int(folder.name.rpartition("-")[2] or 0)
        told = [line for line in lines if line["step"] <= step and "loss" in line]
        yield {
            "name": folder.name,
            "step": step,
            "called": names.get(folder.resolve(), []),
            "loss": told[-1].get("loss") if told else None,
            "bytes": weights.stat().st_size,
            "resumes": state.is_file(),
        }


def _read_results(path: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(path.glob("*.json")) if path.is_dir() else []:
        if file.name == RUN_FILE or file.name.startswith("neighbours_"):
            continue
        values = _json(file)
        if isinstance(values, dict) and {"task", "metrics", "model"} <= set(values):
            yield {
                "task": str(values["task"]).replace("zeroshot_", ""),
                "model": str(values["model"]),
                "checkpoint": str(values.get("checkpoint", "")),
                "dataset": Path(str(values.get("dataset", ""))).name,
                "images": values.get("num_images", 0),
                "captions": values.get("num_captions", 0),
                "metrics": {
                    name: value
                    for name, value in values["metrics"].items()
                    if isinstance(value, int | float) and math.isfinite(value)
                },
            }


def _recalls(result: dict[str, Any]) -> dict[str, Any]:
    """Recall by K, each way."""
    ways: dict[str, list[list[float]]] = {}
    for name, value in result["metrics"].items():
        if found := _RECALL.match(name):
            ways.setdefault(found[1], []).append([int(found[2]), value])
    return {
        "model": result["model"],
        "dataset": result["dataset"],
        "ways": {way: sorted(points) for way, points in ways.items()},
    }


def _neighbours(path: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(path.glob("neighbours_*.json")):
        values = _json(file)
        try:
            yield {
                "model": str(values["model"]),
                "dataset": Path(str(values["dataset"])).name,
                "ways": {name: values["ways"][name] for name in values["ways"]},
            }
        except (KeyError, TypeError) as error:
            raise InputError(f"{file}: no neighbours of this glit ({error!r})") from error


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error})") from error
