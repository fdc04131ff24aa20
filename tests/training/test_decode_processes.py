"""Images decoded by processes: the same batches, the same errors, and nothing left behind."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace

import loading
import pytest
import torch

from glit.errors import DatasetError, RunError
from glit.training import loader as loader_module
from glit.training.config import TrainConfig
from glit.training.decode_processes import IS_SUPPORTED, DecodeProcesses, Request
from glit.training.objectives.goal import GlobalLocal
from glit.training.setup import prepare

pytestmark = pytest.mark.skipif(
    not IS_SUPPORTED, reason="decoding processes need memfd_create, which Linux has"
)
END_S = 60
"""The longest that a process may take to end."""


loader = partial(loading.loader, rank=1, num_ranks=2)


def tensors(value):
    """All tensors of batches, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from tensors(each)
    elif dataclasses.is_dataclass(value):
        yield from tensors([getattr(value, each.name) for each in dataclasses.fields(value)])
    else:
        assert isinstance(value, int | None), value


def memories() -> list[str]:
    """What is open here of the memory that is shared with processes."""
    found = []
    for each in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{each}"))
        except FileNotFoundError:  # of the listing itself
            continue
    return [each for each in found if "glit-pixels" in each]


def is_alive(group: int) -> bool:
    """Return whether any process of a group is there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def two_processes():
    started = DecodeProcesses(2)
    yield started
    started.close()


@pytest.fixture
def shared(two_processes, monkeypatch) -> None:
    """Loaders take the same two processes, which none of them ends: to start some takes seconds."""
    kept = SimpleNamespace(decode=two_processes.decode, close=lambda: None)
    monkeypatch.setattr(loader_module, "DecodeProcesses", lambda number: kept)


class Means(GlobalLocal):
    """Prepares the mean of every image, which has to be there by then."""

    def inputs(self, side):
        return {"mean": torch.empty(())}

    def prepare(self, image, caption, inputs):
        inputs["mean"].fill_(float(image.float().mean()))


def test_batches_are_those_of_threads_bit_by_bit(make_dataset, tokenizer, shared) -> None:
    """With crops, augmentation, fillers and parts of batches; over two epochs."""
    dataset = make_dataset(45, rows_per_group=5, rows_per_file=15)
    changes = {
        "num_workers": 2,
        "min_crop": 0.5,
        "flip": 0.5,
        "micro_batch_size": 3,
        "image_fit": "centre-crop",
    }
    both = []
    for processes in (False, True):
        made = loader(dataset, tokenizer, Means(), processes=processes, **changes)
        both.append(list(tensors([list(made.epoch(0)), list(made.epoch(1, start=2))])))
        made.close()
    assert len(both[0]) == len(both[1]) > 100
    for threaded, other in zip(*both, strict=True):
        assert threaded.dtype == other.dtype and torch.equal(threaded, other)


@pytest.mark.parametrize("damage", ["bytes", "size"])
def test_a_damaged_image_is_named_as_by_threads(make_dataset, tokenizer, shared, damage) -> None:
    def change(index: int, row) -> None:
        if index == 11 and damage == "bytes":
            row["image"]["bytes"] = row["image"]["bytes"][:200]
        elif index == 11:
            row["width"] += 1

    dataset, said = make_dataset(16, change=change), []
    for processes in (False, True):
        made = loader(dataset, tokenizer, processes=processes, num_workers=2)
        with pytest.raises(DatasetError) as caught:
            list(made.epoch(0))
        said.append(str(caught.value))
        made.close()
    assert said[0] == said[1]
    assert " cannot be decoded (" in said[0]


def test_nothing_is_left_once_closed_or_lost(make_dataset, tokenizer) -> None:
    dataset, others = make_dataset(16), memories()
    closed, lost = (loader(dataset, tokenizer, processes=True, num_workers=2) for _ in range(2))
    groups = [closed.processes.pid, lost.processes.pid]
    assert len(memories()) == len(others) + 4 and all(map(is_alive, groups))
    batches = closed.epoch(0)
    next(batches)
    batches.close()  # in the middle
    closed.close()
    closed.close()
    del lost
    assert not any(map(is_alive, groups))
    assert memories() == others


def test_a_killed_trainer_takes_its_processes_along() -> None:
    program = (
        "from glit.training.decode_processes import DecodeProcesses, Request\n"
        "started = DecodeProcesses(2)\n"
        "assert started.decode(Request([], True, 32, 'resize'), []) is None\n"
        "print(started.pid, flush=True)\n"
        "input()"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdout is not None
    first = os.pidfd_open(int(trainer.stdout.readline()))  # it ends after its forks
    trainer.kill()
    trainer.communicate()
    assert select.select([first], [], [], END_S)[0], "processes are still there"
    os.close(first)


def test_a_dead_process_is_an_error_and_not_a_wait() -> None:
    started = DecodeProcesses(1)
    request = Request([], True, 32, "resize")
    assert started.decode(request, []) is None
    os.killpg(started.pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(RunError, match=r"decodes images died; .*set train.num_workers"):
            started.decode(request, [])
    started.close()


def test_only_beside_a_gpu_and_with_workers(tiny_clip, make_dataset, tokenizer) -> None:
    dataset = make_dataset(8)
    config = TrainConfig(model=str(tiny_clip), batch_size=8)
    assert prepare(config, str(dataset)).loader.processes is None
    assert loader(dataset, tokenizer, processes=True).processes is None


def test_threads_where_no_process_can_be_started(make_dataset, tokenizer, monkeypatch) -> None:
    def refused(name: str) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refused)
    with pytest.warns(UserWarning, match="threads decode the images, no processes"):
        made = loader(make_dataset(8), tokenizer, processes=True, num_workers=2)
    assert made.processes is None and len(list(made.epoch(0))) == len(made)
