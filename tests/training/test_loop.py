"""Whole runs on a tiny model: resuming, stopping, refusing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from functools import cache
from pathlib import Path

import accelerate
import cpu_only
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoProcessor, CLIPModel

from glit.errors import InputError, RecipeError, RunError, UserError, WeightsError
from glit.models.clip.position import read_position
from glit.models.clip.runs import model_of_run
from glit.training import loop
from glit.training.checkpoint import Checkpoints
from glit.training.config import TrainConfig
from glit.training.log import numbers
from glit.training.loop import train
from glit.training.optim import total_steps
from glit.training.setup import prepare


def config(tiny_clip: Path, **changes) -> TrainConfig:
    values = {
        "model": str(tiny_clip),
        "batch_size": 8,
        "epochs": 2,
        "lr": 1e-3,
        "num_workers": 2,
        "log_every": 1,
        "shuffle_row_groups": 2,
        "trackers": (),
    }
    return TrainConfig(**{**values, **changes})


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "last" / "model.safetensors")


def assert_same_weights(run: Path, wanted: Path) -> None:
    before, after = weights(wanted), weights(run)
    assert set(after) == set(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def lines(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def plain(tiny_clip, write_dataset, tmp_path_factory) -> tuple[str, Path]:
    """A dataset of two batches, and a run of one epoch over it."""
    folder = tmp_path_factory.mktemp("plain")
    dataset = str(write_dataset(folder / "dataset", 16))
    train(config(tiny_clip, epochs=1), dataset, folder / "run")
    return dataset, folder / "run"


@pytest.fixture(scope="module")
def undisturbed(tiny_clip, write_dataset, tmp_path_factory):
    """A dataset of 45 samples, six batches, and whole runs over it by their accumulation steps."""
    folder = tmp_path_factory.mktemp("undisturbed")
    dataset = str(write_dataset(folder / "dataset", 45))

    @cache
    def run(accumulation_steps: int) -> Path:
        made = folder / f"whole-{accumulation_steps}"
        train(whole(tiny_clip, accumulation_steps), dataset, made)
        return made

    return dataset, run


def whole(tiny_clip: Path, accumulation_steps: int) -> TrainConfig:
    return config(tiny_clip, accumulation_steps=accumulation_steps, checkpoint_every=1)


def test_a_run_learns_and_leaves_a_model_anybody_loads(tiny_clip, make_dataset, tmp_path) -> None:
    run = tmp_path / "run"
    result = train(
        config(tiny_clip, epochs=6, trackers=("tensorboard",)), str(make_dataset(24)), run
    )
    assert (result.step, result.total_steps, result.interrupted) == (18, 18, False)
    losses = [line["loss"] for line in lines(run)]
    assert losses[-1] < losses[0]
    model = CLIPModel.from_pretrained(run / "last")
    assert model.config.text_config.max_position_embeddings == 248
    processor = AutoProcessor.from_pretrained(run / "best")
    batch = processor(text=["a red house."], images=[torch.zeros(3, 40, 60)], return_tensors="pt")
    assert batch["pixel_values"].shape == (1, 3, 32, 32)
    assert processor.tokenizer.model_max_length == 248
    assert list(run.rglob("events.out.tfevents*"))
    assert len(list((run / "checkpoints").iterdir())) <= 2


@pytest.mark.parametrize(
    ("stop_at", "accumulation", "sent"),
    [(3, 1, signal.SIGINT), (6, 1, signal.SIGTERM), (4, 2, signal.SIGTERM)],
)
def test_resuming_gives_the_weights_of_the_whole_run(
    tiny_clip, undisturbed, tmp_path, stop_at: int, accumulation: int, sent: signal.Signals
) -> None:
    """Stop within an epoch, and at its end."""
    dataset, run = undisturbed
    settings, wanted = whole(tiny_clip, accumulation), run(accumulation)

    def stop(line) -> None:
        if line["step"] == stop_at:
            for _ in range(2 if sent == signal.SIGTERM else 1):
                os.kill(os.getpid(), sent)

    parted = tmp_path / "parted"
    first = train(settings, dataset, parted, report=stop)
    assert first.interrupted and first.step == stop_at
    second = train(settings, dataset, parted, resume=True)
    assert not second.interrupted and second.step == second.total_steps
    assert_same_weights(parted, wanted)
    drop = ("samples_per_s", "steps_per_s")
    assert [{k: v for k, v in line.items() if k not in drop} for line in lines(parted)] == [
        {k: v for k, v in line.items() if k not in drop} for line in lines(wanted)
    ]
    assert model_of_run(parted).folder.name == model_of_run(wanted).folder.name


def test_a_crash_loses_no_more_than_the_steps_since_the_checkpoint(
    tiny_clip, undisturbed, tmp_path
) -> None:
    (dataset, whole_run), run = undisturbed, tmp_path / "run"

    def crash(line) -> None:
        if line["step"] == 4:
            raise ConnectionError("the machine went away")

    with pytest.raises(ConnectionError):
        train(config(tiny_clip, checkpoint_every=3), dataset, run, report=crash)
    last = Checkpoints(run).last()
    assert last is not None
    position = read_position(last)
    assert (position.step, position.epoch, position.batch) == (3, 0, 3)
    train(config(tiny_clip, checkpoint_every=3), dataset, run, resume=True)
    assert [line["step"] for line in lines(run)] == list(range(1, 13))
    assert_same_weights(run, whole_run(1))


def test_a_loss_that_is_not_finite_stops_the_run(tiny_clip, make_dataset, tmp_path) -> None:
    dataset, run = str(make_dataset(40)), tmp_path / "run"
    blown_up = config(tiny_clip, lr=1e30, warmup_steps=0, checkpoint_every=1, epochs=1)
    with pytest.raises(RunError, match=r"became nan at step \d+ \(epoch 1, batch \d+ of 5\)"):
        train(blown_up, dataset, run)
    last = Checkpoints(run).last()
    assert last is not None


def test_nan_weights_name_the_step_and_keep_the_good_checkpoint(
    tiny_clip, make_dataset, tmp_path, monkeypatch
) -> None:
    from glit.training import loop

    dataset, run = str(make_dataset(40)), tmp_path / "run"
    plain = loop.run_step
    calls: list[int] = []

    def fails_at_four(*args, **kwargs):
        calls.append(1)
        metrics = plain(*args, **kwargs)
        return {**metrics, "loss": torch.tensor(float("nan"))} if len(calls) == 4 else metrics

    monkeypatch.setattr(loop, "run_step", fails_at_four)
    with pytest.raises(RunError, match=r"the loss became nan at step 4 .*step-00000003"):
        train(config(tiny_clip, checkpoint_every=1), dataset, run)
    assert all(bool(torch.isfinite(value).all()) for value in weights(run).values())


def test_the_logit_scale_is_limited(tiny_clip, plain, tmp_path) -> None:
    dataset, free = plain
    train(config(tiny_clip, epochs=1, max_logit_scale=10.0), dataset, tmp_path / "limited")
    assert weights(free)["logit_scale"].exp().item() > 14
    assert 9.9 < weights(tmp_path / "limited")["logit_scale"].exp().item() <= 10


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"epochs": 4, "keep_every": 2}, {4, 8}),
        ({"epochs": 3, "checkpoint_every": 1, "keep_every": 3}, {3, 6}),
    ],
)
def test_some_checkpoints_stay(tiny_clip, make_dataset, tmp_path, changes, kept) -> None:
    """Two steps an epoch."""
    run = tmp_path / "run"
    train(config(tiny_clip, objective="clip", **changes), str(make_dataset(16)), run)
    linked = {(run / name).resolve().name for name in ("best", "last")}
    found = {folder.name for folder in (run / "checkpoints").iterdir()}
    assert found == linked | {f"step-{step:08d}" for step in kept}


def test_max_steps_ends_the_schedule(tiny_clip, make_dataset, tmp_path) -> None:
    short = config(tiny_clip, max_steps=3, epochs=9)
    assert train(short, str(make_dataset(16)), tmp_path / "run").step == 3
    assert lines(tmp_path / "run")[-1]["lr"] < 1e-3


def test_steps_of_a_schedule(tiny_clip) -> None:
    assert total_steps(config(tiny_clip, epochs=3, accumulation_steps=4), 10) == 9
    assert total_steps(config(tiny_clip, epochs=3, max_steps=5), 10) == 5


def test_a_batch_larger_than_the_dataset(tiny_clip, make_dataset, tmp_path) -> None:
    with pytest.raises(InputError, match=r"batch_size = 64 is larger than the dataset's 9 samples"):
        train(config(tiny_clip, batch_size=64), str(make_dataset(9)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_objective_without_its_pairs(tiny_clip, make_dataset, tmp_path) -> None:
    def no_pairs(index: int, row) -> None:
        row["pairs"] = []

    dataset = str(make_dataset(16, change=no_pairs))
    with pytest.raises(InputError, match=r"no sample has a local pair.*use --objective clip"):
        train(config(tiny_clip), dataset, tmp_path / "run")
    result = train(config(tiny_clip, objective="clip", epochs=1), dataset, tmp_path / "clip")
    assert result.step == 2


def test_another_tokenizer_is_refused_by_name(tiny_clip, tmp_path, tokenizer_identity) -> None:
    tokenizer_identity = {**tokenizer_identity, "name": "another-clip", "sha256": "f" * 64}
    from random_dataset import DatasetShape, write_random_dataset

    dataset = write_random_dataset(
        tmp_path / "other",
        DatasetShape(num_samples=16),
        seed=0,
        encode=lambda texts: [[0] * len(t.split()) for t in texts],
        tokenizer=tokenizer_identity,
    )
    with pytest.raises(WeightsError, match=rf"{tiny_clip}.*another-clip"):
        train(config(tiny_clip), str(dataset), tmp_path / "run")


def test_regions_thinner_than_a_patch_and_spans_outside_train(
    tiny_clip, make_dataset, tmp_path
) -> None:
    def awkward(index: int, row) -> None:
        region = row["regions"][row["pairs"][0]["region"]]
        region.update(x0=10.0, x1=10.5, y0=7.0, y1=7.25)
        row["sentences"][row["pairs"][0]["sentence"]].update(
            in_window=False, token_start=400, token_end=420
        )

    result = train(config(tiny_clip), str(make_dataset(16, change=awkward)), tmp_path / "run")
    assert result.loss == pytest.approx(lines(tmp_path / "run")[-1]["loss"])
    assert lines(tmp_path / "run")[-1]["loss_tsl_token"] == 0
    assert lines(tmp_path / "run")[-1]["loss_tsl_patch"] > 0


def test_a_run_folder_in_use_and_one_with_nothing_to_resume(
    tiny_clip, make_dataset, tmp_path
) -> None:
    dataset, run = str(make_dataset(8)), tmp_path / "run"
    with pytest.raises(InputError, match="no checkpoint to resume from"):
        train(config(tiny_clip), dataset, run, resume=True)
    train(config(tiny_clip, epochs=1), dataset, run)
    with pytest.raises(InputError, match="holds a run already"):
        train(config(tiny_clip, epochs=1), dataset, run)


def test_a_model_that_is_no_clip(tiny_clip, make_dataset, tmp_path) -> None:
    from transformers import BertConfig, BertModel

    other = tmp_path / "bert"
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    BertModel(BertConfig(vocab_size=9, intermediate_size=8, **sizes)).save_pretrained(other)
    with pytest.raises(WeightsError, match="holds a 'bert' model"):
        train(config(other, objective="clip"), str(make_dataset(8)), tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, "lr: found 0.0, want above 0"),
        ({"batch_size": 0}, "batch_size: found 0, want >= 1"),
        ({"batch_size": 4, "micro_batch_size": 8}, "larger than train.batch_size"),
        ({"beta2": 1.0}, "beta2: found 1.0, want >= 0, below 1"),
        ({"eps": 0.0}, "eps: found 0.0, want above 0"),
        ({"unlocked_blocks": 2}, "nothing is locked; set train.lock_image"),
        ({"lock_text": True, "text_lr": 1e-5}, "train.lock_text leaves nothing to learn"),
    ],
)
def test_values_that_cannot_be(changes, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        TrainConfig(**changes)


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"gradient_checkpointing": True}, 1e-5),
        ({"micro_batch_size": 3}, 1e-4),
        ({"max_grad_norm": 1e9}, 1e-5),
        ({"image_fit": "centre-crop"}, None),
    ],
)
def test_options_that_change_how_and_not_what(
    tiny_clip, plain, tmp_path, changes, tolerance
) -> None:
    dataset, run = plain
    train(config(tiny_clip, epochs=1, **changes), dataset, tmp_path / "changed")
    wanted = [line["loss"] for line in lines(run)]
    found = [line["loss"] for line in lines(tmp_path / "changed")]
    if tolerance is None:
        assert found != wanted
    else:
        assert found == pytest.approx(wanted, rel=tolerance)


@pytest.mark.parametrize("native", [True, False])
def test_bfloat16_is_near_float32(tiny_clip, plain, tmp_path, native) -> None:
    dataset, run = plain
    with cpu_only.processor(bfloat16=native):
        train(config(tiny_clip, epochs=1, precision="bf16"), dataset, tmp_path / "bf16")
    wanted = [line["loss"] for line in lines(run)]
    found = [line["loss"] for line in lines(tmp_path / "bf16")]
    assert found != wanted and found == pytest.approx(wanted, rel=5e-2)


class ScaledOnCpu(accelerate.Accelerator):
    """Multiplies losses by a factor as it does for fp16 on a GPU, but computes in float32."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def prepare(self, *parts, **options):
        prepared = super().prepare(*parts, **options)
        self.native_amp = True  # from here on, or the model would be wrapped in autocast
        return prepared

    def autocast(self):
        return contextlib.nullcontext()


@pytest.mark.parametrize("max_grad_norm", [0.0, 1e9])
def test_the_gradient_norm_of_fp16_is_logged_without_its_loss_scale(
    tiny_clip, plain, tmp_path, monkeypatch, max_grad_norm
) -> None:
    (dataset, run), scaled = plain, tmp_path / "scaled"
    monkeypatch.setattr(accelerate, "Accelerator", ScaledOnCpu)
    settings = {"epochs": 1, "max_grad_norm": max_grad_norm}
    train(config(tiny_clip, precision="fp16", **settings), dataset, scaled)
    for key in ("grad_norm", "loss"):
        wanted, found = ([line[key] for line in lines(each)] for each in (run, scaled))
        assert found == pytest.approx(wanted, rel=1e-3), key


def test_fp16_without_a_gpu_is_refused(tiny_clip, make_dataset, tmp_path) -> None:
    """accelerate would train in float32 without a word."""
    with pytest.raises(UserError, match="train.precision = 'fp16': wants a GPU"):
        train(config(tiny_clip, precision="fp16"), str(make_dataset(8)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED"])
def test_sharded_weights_are_refused(tiny_clip, make_dataset, tmp_path, monkeypatch, name) -> None:
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    with pytest.raises(UserError, match=f"ACCELERATE_USE_{name}: checkpoints would hold one part"):
        train(config(tiny_clip), str(make_dataset(8)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("CUDA error: an illegal memory access\nmore"), r"GPU failed .*--resume"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), r"memory was short .*micro_batch"),
    ],
)
def test_a_gpu_that_fails_ends_a_run_in_one_line(
    tiny_clip, make_dataset, tmp_path, monkeypatch, error, message
) -> None:
    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr(loop, "run_step", fails)
    config = TrainConfig(model=str(tiny_clip), batch_size=8, num_workers=0, trackers=())
    with pytest.raises(RunError, match=message) as caught:
        train(config, str(make_dataset(8)), tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("context", [77, 74])
def test_a_caption_that_fills_a_window_that_is_no_multiple_of_8(
    tiny_clip, make_dataset, tmp_path, context
) -> None:
    """73 tokens round up to 80 slots, which a window of 77 positions does not take."""
    dataset = str(make_dataset(8, change=long_caption))
    result = train(config(tiny_clip, objective="clip", context=context), dataset, tmp_path / "run")
    assert result.loss == result.loss


def long_caption(index: int, row) -> None:
    row["caption"] = " ".join(["red"] * 200)


def test_figures_of_an_objective_may_be_plain_numbers() -> None:
    assert numbers([torch.tensor([1.5]), 2.0, 3]) == [1.5, 2.0, 3.0]
    assert numbers([2.0, torch.tensor(1.5, dtype=torch.float64)]) == [2.0, 1.5]


def test_weights_lie_where_they_would_in_a_run_that_was_never_stopped(
    tiny_clip, plain, tmp_path
) -> None:
    """A file has them at any byte; products with one sample add up by it in another order."""
    dataset, run = plain
    checkpoint = shutil.copytree(model_of_run(run).folder, tmp_path / "step")
    file = checkpoint / "model.safetensors"
    save_file(load_file(file), file, metadata={"format": "pt", "pad": "x" * 20})
    found = prepare(config(tiny_clip), dataset, checkpoint=checkpoint)
    with contextlib.closing(found.loader):
        assert {weight.data_ptr() % 64 for weight in found.model.parameters()} == {0}


def test_a_finished_run_that_is_resumed_knows_its_loss(tiny_clip, plain, tmp_path) -> None:
    dataset, run = plain
    again = shutil.copytree(run, tmp_path / "run", symlinks=True)
    result = train(config(tiny_clip, epochs=1), dataset, again, resume=True)
    assert (result.step, result.loss) == (2, lines(run)[-1]["loss"])


def test_the_loss_of_an_accumulated_step_is_that_of_all_its_batches(
    tiny_clip, plain, tmp_path
) -> None:
    dataset, _ = plain
    still = {"lr": 1e-30, "epochs": 1, "warmup_steps": 0}
    train(config(tiny_clip, **still), dataset, tmp_path / "one")
    train(config(tiny_clip, **still, accumulation_steps=2), dataset, tmp_path / "two")
    apart = [line["loss"] for line in lines(tmp_path / "one")]
    (together,) = [line["loss"] for line in lines(tmp_path / "two")]
    assert len(apart) == 2 and together == pytest.approx(sum(apart) / 2, rel=1e-4)


def test_a_fresh_run_keeps_no_line_of_one_that_was_killed_before(tiny_clip, plain, tmp_path):
    dataset, run = plain[0], tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 0, "validation_score": 0.5}\n')
    train(config(tiny_clip, epochs=1), dataset, run)
    assert [line["step"] for line in lines(run)] == [1, 2]


def test_rates_are_those_of_learning_and_not_of_checkpoints(
    tiny_clip, plain, tmp_path, monkeypatch
):
    clock = [0.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: clock[0])
    step, save = loop._Run._step, loop.Checkpoints.save

    def slow_step(self, group) -> None:
        clock[0] += 2.0
        step(self, group)

    def slow_save(self, *parts, **named):
        clock[0] += 1000.0
        return save(self, *parts, **named)

    monkeypatch.setattr(loop._Run, "_step", slow_step)
    monkeypatch.setattr(loop.Checkpoints, "save", slow_save)
    train(config(tiny_clip, epochs=1, checkpoint_every=1), plain[0], tmp_path / "run")
    assert [line["steps_per_s"] for line in lines(tmp_path / "run")] == [0.5, 0.5]
