"""Results as JSON (the shape CLIP_benchmark writes), as Markdown, and as rows for a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glit.runtime.tables import Page, Table, markdown

CLIP_BENCHMARK_TASKS = {"retrieval": "zeroshot_retrieval", "classify": "zeroshot_classification"}
"""Names of our tasks there; the others keep their own."""

_PER_CENT = re.compile(
    r"(recall|map|localisation|chance)@|(^|_)drop(_error)?$|^acc[15]$|^mean_per_class"
    r"|(^|_)(accuracy|(text|image|group)_score)$|^chance|^miou$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures of a model on a collection."""

    task: str
    model: str
    checkpoint: str
    """Name and step of the run's checkpoint; empty if the model is not a run."""
    dataset: str
    num_images: int
    num_captions: int
    metrics: dict[str, float]
    settings: dict[str, Any]
    """The configuration they were measured with."""
    neighbours: dict[str, Any] = field(default_factory=dict)
    """Examples of right and of wrong queries, by direction of retrieval; empty if not asked for."""
    broken: tuple[str, ...] = ()
    """Images that ``classify`` left out because they cannot be read."""

    @property
    def title(self) -> str:
        """A heading with the task and the size of the gallery."""
        measured = f"{self.task} on {self.dataset}: {self.num_images} images"
        return measured if self.task == "classify" else f"{measured}, {self.num_captions} captions"

    @property
    def remark(self) -> str:
        """Name the recalls that a gallery this small makes 1 whatever the model; or nothing."""
        galleries = {"image_retrieval_": self.num_images, "text_retrieval_": self.num_captions}
        sure = [
            heading(name)
            for name in self.metrics
            for way, number in galleries.items()
            if (found := re.search(rf"{way}recall@(\d+)$", name)) and int(found[1]) >= number
        ]
        if not sure:
            return ""
        return (
            f"{', '.join(sure)}: so many answers are the whole gallery, so these are 100 for any "
            "model; set evaluate.recall_at to smaller numbers, or take a larger gallery"
        )

    def as_dict(self) -> dict[str, Any]:
        """CLIP_benchmark's keys, with glit's settings added."""
        told: dict[str, Any] = {"broken": list(self.broken)} if self.broken else {}
        if self.remark:
            told["remark"] = self.remark
        return {
            "dataset": self.dataset,
            "model": self.model,
            "pretrained": self.model,
            "checkpoint": self.checkpoint,
            "task": CLIP_BENCHMARK_TASKS.get(self.task, self.task),
            "num_images": self.num_images,
            "num_captions": self.num_captions,
            "metrics": self.metrics,
            "language": "en",
            "settings": self.settings,
            **told,
        }


def shown(name: str, value: float) -> str:
    """Format a figure: shares in per cent with two digits, cosines with four.

    >>> shown("image_retrieval_recall@1", 0.74274), shown("pairs", 1000.0)
    ('74.27', '1000')
    """
    if _PER_CENT.search(name):
        return f"{100 * value:.2f}"
    return f"{value:.0f}" if value == int(value) else f"{value:.4f}"


def heading(name: str) -> str:
    """A metric's name as a column heading.

    >>> heading("image_retrieval_recall@5"), heading("wrong_text_retrieval_recall@1")
    ('T2I R@5', 'wrong I2T R@1')
    """
    name = name.replace("image_retrieval_", "T2I ").replace("text_retrieval_", "I2T ")
    return name.replace("recall@", "R@").replace("map@", "mAP@").replace("_", " ")


def table(results: Sequence[Result]) -> Table:
    """Return a table with one row a model."""
    names = list(dict.fromkeys(name for result in results for name in result.metrics))
    rows = [
        [result.model, *(shown(n, result.metrics[n]) if n in result.metrics else "" for n in names)]
        for result in results
    ]
    return Table(heads=["model", *map(heading, names)], rows=rows)


def short_names(models: Sequence[str]) -> list[str]:
    """The last part of each model's path, or as many as tell different ones apart.

    >>> short_names(["runs/a/last", "runs/b/last"])
    ['a/last', 'b/last']
    >>> short_names(["runs/a/last", "runs/a/last", "clip"])
    ['last', 'last', 'clip']
    """
    parts = [Path(model).parts for model in models]
    for number in range(1, max(map(len, parts), default=1) + 1):
        found = ["/".join(each[-number:]).replace("//", "/") for each in parts]
        if len(set(found)) == len(set(models)):
            return found
    return list(models)


def page(results: Sequence[Result]) -> Page:
    """Title, table and remark."""
    return [results[0].title, table(results), results[0].remark]


def write_results(out: Path, results: Sequence[Result]) -> list[Path]:
    """``OUT/TASK.md`` for all models, ``TASK_MODEL.json`` for each, and neighbours; the paths."""
    out.mkdir(parents=True, exist_ok=True)
    written = [out / f"{results[0].task}.md"]
    written[0].write_text(markdown(page(results)), encoding="utf-8")
    names = short_names([result.model for result in results])
    for number, (result, short) in enumerate(zip(results, names, strict=True)):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", short).strip("-.") or "model"
        path = out / f"{result.task}_{name}.json"
        if path in written:
            path = out / f"{result.task}_{name}-{number}.json"
        path.write_text(json.dumps(result.as_dict(), indent=2) + "\n", encoding="utf-8")
        written.append(path)
        if result.neighbours:
            beside = path.with_name(f"neighbours_{path.stem.partition('_')[2]}.json")
            values = {"model": result.model, "dataset": result.dataset, "ways": result.neighbours}
            beside.write_text(json.dumps(values) + "\n", encoding="utf-8")
            written.append(beside)
    return written
