"""Two processes on a CPU (gloo) give the loss and the gradients of one."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
import torch
import torch.multiprocessing

from glit.evaluation.validation import open_validation
from glit.stages.negatives import NegativesStage
from glit.training.config import TrainConfig
from glit.training.interrupt import Vote
from glit.training.log import VALIDATION
from glit.training.loop import train

CASES = {
    "fast-goal": {"objective": "fast-goal"},
    "cached": {"objective": "top3-uniform", "micro_batch_size": 2},
    "uneven": {"objective": "global+local", "last_batch": True},
    "hard-negatives": {"objective": "hard-negatives"},
    "clip": {"objective": "clip"},
    "siglip": {"objective": "siglip"},
    "finelip": {"objective": "finelip"},
    "mulclip": {"objective": "mulclip"},
    "beta-clip": {"objective": "beta-clip"},
    "f-cast": {"objective": "f-cast"},
    "glit": {"objective": "glit", "micro_batch_size": 2},
    "fg-clip": {"objective": "fg-clip", "micro_batch_size": 2},
    "adapters": {"objective": "fast-goal", "lora_rank": 2},
    "siglip cached": {"objective": "siglip", "micro_batch_size": 2},
}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def measure(model: str, dataset: str) -> dict[str, dict[str, torch.Tensor]]:
    """Loss and gradients of one batch for every case, in whatever process group there is."""
    from glit.training.accelerated import open_accelerator
    from glit.training.setup import prepare
    from glit.training.step import run_step

    torch.set_num_threads(1)
    accelerator, _ = open_accelerator(TrainConfig(model=model, trackers=()), Path(dataset))
    results = {}
    for name, options in CASES.items():
        options = dict(options)
        last_batch = options.pop("last_batch", False)
        made = prepare(
            TrainConfig(model=model, batch_size=8, num_workers=0, **options),
            dataset,
            rank=accelerator.process_index,
            num_ranks=accelerator.num_processes,
        )
        model_ = accelerator.prepare(made.model)
        start = len(made.loader) - 1 if last_batch else 0
        parts = next(made.loader.epoch(0, start=start))
        metrics = run_step(parts, model=model_, objective=made.objective, accelerator=accelerator)
        results[name] = {
            "loss": metrics["loss"],
            **{n: p.grad for n, p in made.model.named_parameters() if p.grad is not None},
        }
    return results


def one_of_two(rank: int, port: int, model: str, dataset: str, out: str) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    results = measure(model, dataset)
    assert torch.distributed.get_world_size() == 2
    vote = Vote()
    results["votes"] = {"stop": [vote(step == 2 and rank == 1) for step in range(5)]}
    torch.save(results, f"{out}/rank-{rank}.pt")
    config = TrainConfig(
        model=model, objective="clip", batch_size=8, max_steps=2, num_workers=0, trackers=(),
        validation=f"{out}/validation",
    )  # fmt: skip
    train(config, dataset, Path(out, "run"), open_measure=open_validation)  # ends the group


@pytest.fixture(scope="module")
def both(tmp_path_factory, tiny_clip, write_dataset):
    def some_without_pairs(index: int, row) -> None:
        if index % 4 == 1:
            row["pairs"] = []
        row["negatives"] = [
            {"sentence": k, "kind": "object", "text": f"No {each['text']}"}
            for k, each in enumerate(row["sentences"])
        ]

    folder: Path = tmp_path_factory.mktemp("two")
    dataset = write_dataset(
        folder / "dataset", 21, seed=3, change=some_without_pairs,
        further=NegativesStage.dataset_columns,
    )  # fmt: skip
    write_dataset(folder / "validation", 9, seed=4)
    torch.multiprocessing.start_processes(
        one_of_two,
        args=(free_port(), str(tiny_clip), str(dataset), str(folder)),
        nprocs=2,
        start_method="spawn",
    )
    two = [torch.load(folder / f"rank-{rank}.pt") for rank in (0, 1)]
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    two[0]["lines"] = [json.loads(line) for line in lines]
    return measure(str(tiny_clip), str(dataset)), two


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_equal_one(both, case: str) -> None:
    """The case "uneven" is the last batch of 21 samples in batches of 8: 3 and 2 with a filler."""
    one, two = both
    for rank in (0, 1):
        assert set(two[rank][case]) == set(one[case])
        for name, wanted in one[case].items():
            found = two[rank][case][name]
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5, msg=f"{name}: {found}")


@pytest.mark.slow
def test_all_processes_stop_after_the_same_step(both) -> None:
    """Rank 1 is interrupted in step 2; both hear of it a step later."""
    assert [rank["votes"]["stop"] for rank in both[1]] == [[False, False, False, True, False]] * 2


@pytest.mark.slow
def test_the_first_process_measures_and_the_other_waits(both) -> None:
    """A run of two steps: its start, and its end."""
    found = [line["step"] for line in both[1][0]["lines"] if VALIDATION in line]
    assert found == [0, 2]


def test_one_process_is_answered_at_once() -> None:
    vote = Vote()
    assert [vote(False), vote(True)] == [False, True]
