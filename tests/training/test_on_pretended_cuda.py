"""Training on a pretended GPU: a CPU's losses and gradients, and no wait between two log lines."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from made_features import DISTINCT
from pretend_cuda import counting, pretend_cuda

from glit.errors import RunError
from glit.models import device as device_module
from glit.stages.negatives import NegativesStage
from glit.training import loop
from glit.training.checkpoint import Checkpoints
from glit.training.config import TrainConfig
from glit.training.setup import prepare
from glit.training.step import run_step

# How often a GPU is waited for: these numbers may only go down.
PER_STEP = 0
PER_LOG_LINE = 2
PER_CHECKPOINT = 1


def some_without_pairs(index: int, row) -> None:
    if index % 3 == 0:
        row["pairs"] = []


def one_batch(tiny_clip, dataset, device: str, *, precision: str = "no", **changes):
    """Metrics, gradients and waits of a step."""
    torch.manual_seed(0)  # of the objective's own parameters
    config = TrainConfig(model=str(tiny_clip), batch_size=8, num_workers=0, **changes)
    made = prepare(config, str(dataset))
    made.model.to(device)
    parts = [part.to(torch.device(device)) for part in next(made.loader.epoch(0))]
    torch.manual_seed(7)
    with counting() as counts, torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        metrics = run_step(
            parts, model=made.model, objective=made.objective, accelerator=Accelerator(cpu=True)
        )
    assert counts.num_syncs <= PER_STEP, counts
    named = made.model.named_parameters()
    gradients = {name: p.grad.cpu() for name, p in named if p.grad is not None}
    return {name: float(value.cpu()) for name, value in metrics.items()}, gradients


@pytest.mark.parametrize("micro_batch_size", [0, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("objective", DISTINCT)
def test_losses_and_gradients(tiny_clip, make_dataset, objective, micro_batch_size) -> None:
    def change(index: int, row) -> None:
        some_without_pairs(index, row)
        row["negatives"] = [
            {"sentence": k, "kind": "object", "text": f"No {each['text']}"}
            for k, each in enumerate(row["sentences"])
        ]

    dataset = make_dataset(8, change=change, further=NegativesStage.dataset_columns)
    changes = {"objective": objective, "micro_batch_size": micro_batch_size}
    wanted, wanted_gradients = one_batch(tiny_clip, dataset, "cpu", **changes)
    with pretend_cuda():
        found, gradients = one_batch(tiny_clip, dataset, "cuda", **changes)
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert set(gradients) == set(wanted_gradients) and len(gradients) > 60
    for name, gradient in wanted_gradients.items():
        torch.testing.assert_close(
            gradients[name],
            gradient,
            rtol=1e-3,
            atol=1e-5,
            msg=lambda text, at=name: f"{at}: {text}",
        )


def test_in_half_precision(tiny_clip, make_dataset) -> None:
    dataset = make_dataset(8)
    wanted, _ = one_batch(tiny_clip, dataset, "cpu")
    with pretend_cuda():
        found, _ = one_batch(tiny_clip, dataset, "cuda", precision="bf16")
    assert found != wanted and found == pytest.approx(wanted, rel=5e-2)


@pytest.fixture
def gpu_run(tiny_clip, make_dataset, tmp_path, monkeypatch):
    """Whole runs on the pretended GPU; checkpoints are counted and not written."""
    saved = []
    monkeypatch.setattr(
        Checkpoints, "save", lambda self, position, *_, **__: saved.append(position)
    )
    dataset = make_dataset(32, change=some_without_pairs)

    def run(device, **changes):
        values = {
            "model": str(tiny_clip), "batch_size": 8, "epochs": 1, "lr": 1e-3, "num_workers": 0,
            "precision": "no", "trackers": (), **changes,
        }  # fmt: skip
        saved.clear()
        lines = []
        AcceleratorState._reset_state(reset_partial_state=True)
        monkeypatch.setattr(device_module, "accelerators", lambda: ["cuda"][: device == "cuda"])
        folder = tmp_path / device
        result = loop.train(TrainConfig(**values), str(dataset), folder, report=lines.append)
        return result, lines, saved

    yield run
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="module")
def on_cpu() -> dict[str, tuple[float, float]]:
    """Loss and best loss of runs on the CPU, which are compared with several others."""
    return {}


@pytest.mark.parametrize(
    ("log_every", "num_lines", "changes"),
    [
        (1, 4, {}),
        (2, 2, {"max_grad_norm": 1.0}),
        (100, 1, {}),
        (100, 1, {"accumulation_steps": 2}),
    ],
)
def test_a_run_waits_only_to_log_and_to_save(
    gpu_run, on_cpu, log_every, num_lines, changes
) -> None:
    with pretend_cuda(), counting() as counts:
        result, lines, saved = gpu_run("cuda", log_every=log_every, **changes)
    if "accumulation_steps" not in changes:
        assert len(lines) == num_lines
    assert len(saved) == 1
    assert counts.num_syncs <= PER_LOG_LINE * len(lines) + PER_CHECKPOINT, counts
    best, key = saved[0].best, repr(changes)
    if key not in on_cpu:
        wanted, _, (position,) = gpu_run("cpu", log_every=1, **changes)
        on_cpu[key] = wanted.loss, position.best
    assert (result.loss, best) == pytest.approx(on_cpu[key], rel=1e-3)


def test_convolutions_are_not_rounded_to_tf32(gpu_run, monkeypatch) -> None:
    plain, seen = loop.run_step, []

    def looks(*args, **kwargs):
        seen.append(torch.backends.cudnn.conv.fp32_precision)
        return plain(*args, **kwargs)

    monkeypatch.setattr(loop, "run_step", looks)
    before = torch.backends.cudnn.conv.fp32_precision
    with pretend_cuda():
        gpu_run("cuda")
    assert set(seen) == {"ieee"} and torch.backends.cudnn.conv.fp32_precision == before


@pytest.mark.parametrize("checkpoint_every, log_every", [(0, 100), (0, 2), (4, 100)])
def test_numbers_that_are_not_finite_are_seen_before_they_are_logged_or_saved(
    gpu_run, monkeypatch, checkpoint_every, log_every
) -> None:
    plain, calls = loop.run_step, []

    def fails_at_three(*args, **kwargs):
        calls.append(1)
        metrics = plain(*args, **kwargs)
        return {**metrics, "loss": metrics["loss"] * (float("nan") if len(calls) == 3 else 1)}

    monkeypatch.setattr(loop, "run_step", fails_at_three)
    lines, saved = [], []
    monkeypatch.setattr(
        Checkpoints, "save", lambda self, position, *_, **__: saved.append(position)
    )
    with pretend_cuda(), pytest.raises(RunError, match=r"loss became nan at step 3 .*batch 3 of 4"):
        gpu_run("cuda", checkpoint_every=checkpoint_every, log_every=log_every)
    assert saved == [] and lines == []
