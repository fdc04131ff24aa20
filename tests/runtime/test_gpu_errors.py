"""Errors that end a process, those that concern a batch, and what a failed batch leaves behind."""

from __future__ import annotations

import contextlib
import weakref

import numpy as np
import pytest
import torch

from glit.data.records import Drop
from glit.errors import RunError
from glit.pipeline.executors import local
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.executors.protocols import Job, Resources, Tally
from glit.runtime.gpu_errors import is_out_of_memory, ruins_process
from glit.stages.base import isolate

HINT = "\nCUDA kernel errors might be asynchronously reported at some other API call."
ILLEGAL = "CUDA error: an illegal memory access was encountered" + HINT
OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB"


class EngineDeadError(Exception):
    """As vLLM's."""


def caused_by(cause: Exception) -> Exception:
    try:
        raise ValueError("the model failed") from cause
    except ValueError as error:
        return error


def in_the_course_of(context: Exception) -> Exception:
    """An error that was raised while the other one was handled."""
    error = KeyError("cleaning up")
    error.__context__ = context
    return error


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError(ILLEGAL),
        torch.AcceleratorError("CUDA error: device-side assert triggered" + HINT),
        torch.AcceleratorError("CUDA error: unspecified launch failure"),
        RuntimeError(ILLEGAL),
        RuntimeError("CUDA driver error: an illegal memory access was encountered"),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(...)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        EngineDeadError("EngineCore encountered an issue."),
        caused_by(RuntimeError(ILLEGAL)),
        in_the_course_of(RuntimeError(ILLEGAL)),
    ],
    ids=lambda error: f"{type(error).__name__}: {str(error)[:60]}",
)
def test_after_these_only_a_fresh_process_helps(error):
    assert ruins_process(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("CUDA error: said a user's model"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)"),
        RuntimeError("the caption mentions a CUDA error: nothing more"),
        torch.OutOfMemoryError(OOM),
        torch.AcceleratorError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"),
        torch.AcceleratorError("CUDA error: invalid configuration argument" + HINT),
        torch.AcceleratorError("CUDA error: no kernel image is available for execution"),
        MemoryError(),
        FloatingPointError("SAM answered NaN or infinity"),
    ],
    ids=lambda error: f"{type(error).__name__}: {str(error)[:60]}",
)
def test_these_concern_their_batch(error):
    assert not ruins_process(error)


def test_memory_that_is_short():
    assert is_out_of_memory(torch.OutOfMemoryError(OOM)) and is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"))
    assert not is_out_of_memory(ValueError("out of memory")) and not is_out_of_memory(KeyError())


@pytest.mark.parametrize("kept", [False, True], ids=["plain", "in a cycle"])
def test_a_batch_in_halves_finds_nothing_of_the_whole_one_alive(kept, monkeypatch):
    """Or the halves have less memory than the whole had."""
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(len(held)))
    held: list[weakref.ref] = []

    def model(items):
        activations = np.zeros((len(items), 8))
        held.append(weakref.ref(activations))
        if len(items) > 2:
            try:
                raise torch.OutOfMemoryError(OOM)
            except RuntimeError as error:
                remembered = error if kept else None  # a frame that holds its own error
                assert remembered is None or kept
                raise
        return items

    def run(items):
        assert [each() for each in held] == [None] * len(held)
        return model(items)

    assert isolate(range(8), run) == list(range(8))
    assert len(held) == 7 and emptied == [1, 2, 5]


def test_a_sample_too_large_for_the_memory_is_a_drop():
    def run(items):
        if 3 in items:
            raise torch.OutOfMemoryError(OOM)
        return list(items)

    *rest, last = isolate(range(4), run)
    assert rest == [0, 1, 2] and isinstance(last, Drop) and last.reason == "model_error"


def test_no_sample_is_dropped_for_a_gpu_that_failed():
    tried = []

    def run(items):
        tried.append(len(items))
        raise torch.AcceleratorError(ILLEGAL)

    with pytest.raises(torch.AcceleratorError):
        isolate(range(8), run)
    assert tried == [8]


class Failing:
    """A task and its worker, whose second unit meets an error."""

    name, loads, needs = "propose", "", Resources(memory_bytes=1, gpus=1)

    def __init__(self, error):
        self.error = error

    def open(self, threads):
        return self

    def run(self, unit, excluded):
        yield from ()
        if unit == 1:
            raise self.error
        return Tally(rows=1)


def run_units(error, units, on_done=lambda *_: None):
    LocalExecutor().run([Job(task=Failing(error), units=units, on_done=on_done)])


def test_in_one_process_the_run_ends_in_one_line_that_says_how_to_go_on():
    done = []
    with pytest.raises(RunError) as caught:
        run_units(RuntimeError(ILLEGAL), [0, 1, 2], lambda unit, _: done.append(unit))
    assert done == [0]
    assert str(caught.value) == (
        "stage propose: the GPU failed and this process cannot use it any more (CUDA error: an "
        "illegal memory access was encountered); what is done is kept: run the same command "
        "again, it goes on where it stopped"
    )
    with pytest.raises(KeyError):
        run_units(KeyError("ours"), [1])


def test_putting_back_what_a_lost_gpu_holds_may_fail_as_well(monkeypatch):
    @contextlib.contextmanager
    def borrowed(*, for_model):
        try:
            yield
        finally:
            raise torch.AcceleratorError(ILLEGAL)

    monkeypatch.setattr(local, "borrowed_process", borrowed)
    with pytest.raises(RunError, match="the GPU failed"):
        run_units(RuntimeError(ILLEGAL), [1])
