from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tools.mini.captioner_model import hub_name
from tools.mini.evaluate import num_matched
from tools.mini.loop import TrainSettings, lr_factor, train
from tools.mini.train_matcher import contrastive_loss
from tools.mini.train_segmenter import draw_points, mask_loss


def _loss(
    module: nn.Module, rng: np.random.Generator, _step: int
) -> tuple[Tensor, dict[str, float]]:
    inputs = torch.tensor(rng.normal(size=(8, 4)), dtype=torch.float32)
    return (module(inputs).float() - inputs.sum(1, keepdim=True)).square().mean(), {}


def _trained(folder: Path, *, steps: int, whole: int) -> list[Tensor]:
    torch.manual_seed(0)
    module, exported = nn.Linear(4, 1), []
    settings = TrainSettings(steps=whole, lr=0.05, warmup=2, checkpoint_every=steps)

    def export(trained: nn.Linear) -> None:
        exported.append(trained.weight.detach().clone())
        if len(exported) * steps < whole and steps < whole:
            raise KeyboardInterrupt

    try:
        train(module, _loss, settings, folder, export)
    except KeyboardInterrupt:
        return _trained_again(folder, settings)
    return exported


def _trained_again(folder: Path, settings: TrainSettings) -> list[Tensor]:
    torch.manual_seed(1)
    exported: list[Tensor] = []
    train(
        nn.Linear(4, 1),
        _loss,
        settings,
        folder,
        lambda trained: exported.append(trained.weight.detach().clone()),
    )
    return exported


@pytest.mark.slow
def test_a_training_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path) -> None:
    unbroken = _trained(tmp_path / "a", steps=20, whole=20)[-1]
    resumed = _trained(tmp_path / "b", steps=10, whole=20)[-1]
    assert torch.equal(unbroken, resumed)


def test_learning_rate_rises_stays_and_falls() -> None:
    settings = TrainSettings(steps=100, lr=1.0, warmup=10, decay_share=0.4)
    factors = [lr_factor(step, settings) for step in range(101)]
    assert factors[0] == pytest.approx(0.1) and factors[9] == factors[60] == 1.0
    assert factors[80] == pytest.approx(0.5) and factors[100] == 0.0


def test_each_found_box_counts_once() -> None:
    true = np.array([[0, 0, 10, 10], [20, 20, 30, 30]], dtype=float)
    twice = np.array([[0, 0, 10, 10], [0, 0, 10, 9]], dtype=float)
    assert num_matched(twice, true) == 1
    assert num_matched(true[::-1], true) == 2
    assert num_matched(np.zeros((0, 4)), true) == 0


def test_other_true_pairs_are_no_negatives() -> None:
    similarity = torch.tensor([[2.0, 2.0], [0.0, 1.0]])
    also_true = torch.tensor([[True, True], [False, True]])
    rows = torch.tensor([0.0, np.log(1 + np.exp(-1.0))]).mean()
    columns = torch.tensor([np.log(1 + np.exp(-2.0)), 0.0]).mean()
    assert contrastive_loss(similarity, also_true) == pytest.approx(float((rows + columns) / 2))


def test_points_lie_where_they_say() -> None:
    ids = np.zeros((16, 16), dtype=np.uint8)
    ids[2:5, 3:9] = 1
    points, wanted = draw_points(ids, np.random.default_rng(0))
    assert [ids[int(y), int(x)] for x, y in points] == wanted.tolist()
    assert set(wanted.tolist()) == {0, 1}


def test_a_perfect_mask_costs_nothing() -> None:
    wanted = torch.zeros(1, 8, 8)
    wanted[0, 2:6, 2:6] = 1
    logits = (wanted[:, None].expand(-1, 4, -1, -1) * 2 - 1) * 40
    loss, iou = mask_loss(logits, wanted, torch.ones(1, 4))
    assert float(loss) == pytest.approx(0.0, abs=1e-4)
    assert iou.tolist() == [[1.0] * 4]


def test_names_of_weights_are_the_hubs() -> None:
    assert hub_name("vision_tower.encoder.x") == "vision_tower.vision_model.encoder.x"
    assert hub_name("vision_tower.vision_model.x") == "vision_tower.vision_model.x"
    assert hub_name("language_model.model.x") == "language_model.model.x"
