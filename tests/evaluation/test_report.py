"""Results as tables and files."""

from __future__ import annotations

import json
from dataclasses import replace

from evaluating import CONFIG

from glit.evaluation.report import Result, page, write_results
from glit.evaluation.run import evaluate
from glit.runtime.tables import markdown


def test_models_side_by_side_and_on_disk(tiny_clip, make_dataset, tmp_path) -> None:
    results = evaluate("retrieval", [str(tiny_clip), str(tiny_clip)], str(make_dataset(6)), CONFIG)
    paths = write_results(tmp_path / "out", results)
    assert len(set(paths)) == 3
    values = json.loads(paths[1].read_text())
    assert set(values) >= {"dataset", "model", "pretrained", "task", "metrics", "language"}
    assert (values["num_images"], values["num_captions"]) == (6, 6)
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
    lines = markdown(page([result])).splitlines()
    assert lines[0] == "robustness on docci test: 5000 images, 25010 captions"
    assert lines[-1] == "| m | 50.00 | 2.89 | 0.2434 |"


def test_a_recall_over_a_gallery_no_larger_than_k_is_remarked(tmp_path) -> None:
    metrics = {
        "image_retrieval_recall@10": 0.5, "image_retrieval_recall@50": 1.0,
        "text_retrieval_recall@50": 0.9, "wrong_image_retrieval_recall@40": 1.0,
    }  # fmt: skip
    result = Result(
        task="retrieval", model="clip", checkpoint="", dataset="scenes", num_images=40,
        num_captions=80, metrics=metrics, settings={},
    )  # fmt: skip
    assert result.remark.startswith("T2I R@50, wrong T2I R@40: so many answers are the whole")
    assert result.as_dict()["remark"] == result.remark and result.remark in markdown(page([result]))
    larger = replace(result, num_images=80)
    assert larger.remark == "" and "remark" not in larger.as_dict()


def test_models_of_one_name_are_told_apart(tmp_path) -> None:
    results = [
        Result(
            task="retrieval", model=f"runs/{run}/last", checkpoint="", dataset="scenes",
            num_images=4, num_captions=4, metrics={}, settings={},
        )
        for run in ("a", "b")
    ]  # fmt: skip
    assert [path.name for path in write_results(tmp_path, results)] == [
        "retrieval.md", "retrieval_a-last.json", "retrieval_b-last.json",
    ]  # fmt: skip
