"""Results as tables and files."""

from __future__ import annotations

import json

from evaluating import CONFIG

from glit.evaluate.report import Result, markdown, write_results
from glit.evaluate.run import evaluate


def test_models_side_by_side_and_on_disk(tiny_clip, make_dataset, tmp_path) -> None:
    results = evaluate("retrieval", [str(tiny_clip), str(tiny_clip)], str(make_dataset(5)), CONFIG)
    paths = write_results(tmp_path / "out", results)
    assert len(set(paths)) == 3
    values = json.loads(paths[1].read_text())
    assert set(values) >= {"dataset", "model", "pretrained", "task", "metrics", "language"}
    assert (values["num_images"], values["num_captions"]) == (5, 5)
    assert values["task"] == "zeroshot_retrieval"
    assert values["metrics"] == results[0].metrics
    table = paths[0].read_text().splitlines()
    assert table[2].startswith("| model | T2I R@1 | T2I R@5 | I2T R@1 | I2T R@5 |")
    assert len(table) == 6


def test_markdown_of_a_result() -> None:
    result = Result(
        checkpoint="",
        task="robustness",
        model="m",
        dataset="docci test",
        num_images=5000,
        num_captions=25010,
        metrics={"image_retrieval_recall@1": 0.5, "drop": 0.0289, "mean_cosine": 0.24341},
        settings={},
    )
    lines = markdown([result]).splitlines()
    assert lines[0] == "robustness on docci test: 5000 images, 25010 captions"
    assert lines[-1] == "| m | 50.00 | 2.89 | 0.2434 |"
