"""The benchmark's two steps do the same work, and its tables are right."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from glit.bench.gpu.training import step_operations
from glit.bench.random_clip import TINY, VIT_B_16
from tools.measure import host
from tools.measure import train as bench
from tools.measure.objectives import table
from tools.measure.train_loader import loader_part


def arguments(**changes) -> argparse.Namespace:
    values = {"model": "tiny", "batch": 4, "repeats": 1, "threads": 1, "images": 8}
    return argparse.Namespace(**{**values, **changes})


def test_our_step_and_the_published_one_have_the_same_loss(tmp_path: Path) -> None:
    steps = bench._steps(TINY, 6, tmp_path)
    assert steps["glit"]() == pytest.approx(steps["published"](), abs=1e-4)


@pytest.mark.slow
def test_the_loader_part(tmp_path: Path) -> None:
    result = loader_part(arguments(images=16), tmp_path)
    sizes = ["1500x1000", "2048x1536", "2048x1536 with pack.max_side=512"]
    assert set(result) == {*sizes, "threads", "images", "gain_of_max_side"}
    large, packed = (result[name]["loader_cpu_ms_per_image"] for name in sizes[1:])
    assert result["gain_of_max_side"] == pytest.approx(large / packed)


def test_the_rate_from_memory(tmp_path: Path) -> None:
    result = bench.gpu_part(arguments(), tmp_path)
    share = result["floor_seconds_per_step"] / result["seconds_per_step"]
    assert result["share_of_matrix_rate"] == pytest.approx(share)


def test_operations_of_a_step() -> None:
    """ViT-B/16 is known as 17.5 G multiply-adds an image; its text tower as 3.0 G at 77 tokens."""
    image = step_operations(VIT_B_16, [], 1) / 3 / 2
    text = step_operations(VIT_B_16, [77], 0) / 3 / 2
    assert image == pytest.approx(17.5e9, rel=0.02)
    assert text == pytest.approx(2.97e9, rel=0.02)


def test_the_table_of_objectives() -> None:
    text = table({"a": [{"x": 0.5}, {"x": 0.7}], "b": [{"x": 0.25}]}, columns={"X": "x"})
    assert text.splitlines()[2:] == ["| a | 60.0 ± 14.1 |", "| b | 25.0 |"]


def test_what_the_host_does_for_a_gpu() -> None:
    costs = host.host_costs(side_px=64, num=2, batch_size=4)
    assert {cost.stage for cost in costs} == {"build", "pack", "train"}
    assert len(costs) == 8
    assert all(cost.ms > 0 for cost in costs)
    some = [host.HostCost(part=p, stage="build", ms=m) for p, m in (("a", 2.0), ("b", 3.0))]
    assert some[0].images_a_core == 500
    assert host.fed_rate(some, "build", 10) == 2000
