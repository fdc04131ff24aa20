"""The objectives against each other: ``python -m tools.measure.objectives TRAIN TEST -o OUT``.

Fine-tunes one model with every objective and seed on TRAIN, measures each on TEST, and writes the
mean and the spread over seeds. A seed decides the order of the samples; the start is the same. What
is there already is not run again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from glit.bench.harness import kept, write_report
from glit.bench.tables import Page, Table, markdown, percent
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.run import evaluate
from glit.training.config import TrainConfig
from glit.training.loop import train

DEFAULT = ("local", "clip", "global+local", "fast-goal")
MEASURES = ("retrieval", "joint-map", "localize")
COLUMNS = {
    "T2I R@1": "image_retrieval_recall@1",
    "T2I R@5": "image_retrieval_recall@5",
    "I2T R@1": "text_retrieval_recall@1",
    "I2T R@5": "text_retrieval_recall@5",
    "T2I mAP@10": "image_retrieval_map@10",
    "I2T mAP@10": "text_retrieval_map@10",
    "localisation@5": "localisation@5",
}


def main() -> None:
    """Train, measure, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.objectives", description=__doc__)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/objectives"))
    parser.add_argument("--model", default="mini-matcher")
    parser.add_argument("--objectives", nargs="+", default=list(DEFAULT))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = {"no fine-tuning": [measured(arguments.model, arguments.test, arguments.output)]}
    results |= {objective: [] for objective in arguments.objectives}
    for seed in arguments.seeds:
        for objective in arguments.objectives:
            config = TrainConfig(
                objective=objective, model=arguments.model, batch_size=arguments.batch,
                epochs=arguments.epochs, lr=arguments.lr, warmup_steps=20, seed=seed,
                num_workers=arguments.threads, trackers=(),
            )  # fmt: skip
            run = arguments.output / f"{objective}-{seed}"
            if not (run / "last").exists():
                train(config, arguments.train, run)
            results[objective].append(measured(str(run / "last"), arguments.test, run))
    write_report(arguments.output, "objectives", results, table(results))
    print(markdown(table(results)))


def measured(model: str, test: str, folder: Path) -> dict[str, float]:
    """All figures of one model; kept in its folder."""

    def figures() -> dict[str, float]:
        found: dict[str, float] = {}
        for task in MEASURES:
            found |= evaluate(task, [model], test, EvaluateConfig(image_fit="resize"))[0].metrics
        return found

    return kept(folder / "figures-of-model.json", figures)


def table(results: dict[str, list[dict[str, float]]], columns: dict[str, str] = COLUMNS) -> Page:
    """Per cent, mean over seeds ± standard deviation (one seed: no spread)."""
    rows = [
        [name, *(percent([run[key] for run in runs]) for key in columns.values())]
        for name, runs in results.items()
    ]
    return [Table(heads=["", *columns], rows=rows)]


if __name__ == "__main__":
    main()
