"""Shared fixtures: scenes, a built dataset, a tiny CLIP, bad files; everything is made once per run."""

# ruff: noqa: E402 (what is imported before shapes are checked is not checked)

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

gc.disable()  # until all tests are imported, see pytest_runtestloop
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # or Ray's workers wait for all other tests

import shapes

shapes.check_from_here_on()

import building
import cpu_only
import pytest
import shared
from browser import chromium
from building import run_build
from hypothesis import settings
from random_dataset import DatasetShape, write_random_dataset
from vllm_forks import vllm_forks
from warm import warm

from glit.cli import main as command_line
from glit.models.tokenizer import TextTokenizer, tokenizer_hash
from glit.scenes import write_scenes

shared.root()  # before other processes are started, which share it

settings.register_profile("glit", deadline=None)  # a busy machine is no failure
settings.load_profile("glit")

HERE = Path(__file__).parent
TEST_SEED = 2_000_000
MakeDataset = Callable[..., Path]


class Done(NamedTuple):
    """How a command line ended."""

    code: int
    output: str
    errors: str


WITH_RAY = (
    "executors/test_on_ray.py",
    "executors/test_kills_on_ray.py",
    "executors/test_ray_pool.py",
    "executors/test_ray_on_s3.py",
    "executors/test_cluster.py",
    "training/test_launch.py",
    "cli/test_build.py",
    "test_plugins.py",
)
"""Files whose tests start Ray or torchrun. Beside each other they take ten times as long."""
WITH_COMMANDS = ("tools/test_demo.py", "test_bad_inputs.py", "tools/test_faults.py")
"""Files whose tests are command lines, which share ``warm_glit``."""
WITH_VLLM = ("backends/test_captioners.py", "backends/test_tiny_captioners.py")
"""Files whose tests share ``forks_with_vllm``."""
TOGETHER = (WITH_RAY, WITH_COMMANDS, WITH_VLLM)
"""One tester has all files of a group, one after the other."""
LONGEST = (
    *WITH_RAY,
    "smoke/test_docs.py",
    *WITH_VLLM,
    "pipeline/test_on_s3.py",
    *WITH_COMMANDS,
    "pipeline/test_add_and_go_on.py",
    "pipeline/test_run.py",
    "bench/test_pairs.py",
    "bench/test_objectives.py",
    "bench/test_gpu.py",
    "training/test_on_pretended_cuda.py",
    "training/test_loop.py",
    "training/test_distributed.py",
    "attaching/test_attach.py",
    "pipeline/test_retry.py",
    "test_mini_pack.py",
)
"""Files of tests that take half a minute and more, to be begun first: a process has a whole file,
and one that is begun last keeps all others waiting."""


def pytest_xdist_make_scheduler(config, log):
    """By files, and those of a group of ``TOGETHER`` as if they were one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid).removeprefix("tests/")
            return next((files[0] for files in TOGETHER if file in files), file)

    return Scheduler(config, log)


SLOW_FIXTURES = {"browser", "random_tiny"}
"""What takes seconds to start: every test that asks for one of them is marked slow."""


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if fixtures or item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.slow)
    first = {HERE / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))


@pytest.hookimpl(tryfirst=True)  # and others run the tests
def pytest_runtestloop() -> None:
    """Modules and tests live to the end. To look through them for garbage again and again takes a
    twentieth of the time of all tests; what tests make is still looked through, less often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


atexit.register(gc.unfreeze)  # or DuckDB's bindings say at the end that they leak


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def no_accelerators():
    with cpu_only.no_accelerators():
        yield


@pytest.fixture(scope="session", autouse=True)
def what_costs_time_alone():
    """Nothing is flushed to disks, since processes die here and not the machine; transformers does
    not format every configuration for a log that nobody reads; and a model that has been read is
    copied, which takes an eighth of the time."""
    from transformers import PreTrainedConfig

    from glit.models import tokenizer
    from glit.models.clip import kinds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "load_model", shared.copies_of_one(kinds.load_model))
        patch.setattr(tokenizer, "load_tokenizer", shared.copies_of_one(tokenizer.load_tokenizer))
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(PreTrainedConfig, "__repr__", object.__repr__)
        yield


@pytest.fixture
def fresh_verdicts(monkeypatch):
    """Fast paths are checked again, and what is found here is forgotten."""
    from glit.runtime import verified_paths as fast_path

    monkeypatch.setattr(fast_path, "_verdicts", {})


@pytest.fixture(scope="session")
def scenes() -> Path:
    """24 scenes with captions and ground truth; do not write into it."""
    return shared.once("scenes", lambda folder: write_scenes(folder, num=24, seed=TEST_SEED))


def _built(scenes: Path, folder: Path, **how: Any) -> object:
    return run_build(scenes / "images", folder, captions=scenes / "captions.jsonl", **how)


@pytest.fixture(scope="session")
def built(scenes) -> Path:
    """A dataset of the scenes with their own captions, local executor; do not write into it."""
    return shared.once("built", lambda folder: _built(scenes, folder / "dataset")) / "dataset"


@pytest.fixture(scope="session")
def built_by_mini(scenes) -> Path:
    """The same by the mini models, as recipe `mini` builds it; do not write into it."""
    return (
        shared.once("by-mini", lambda folder: _built(scenes, folder / "dataset", recipe="mini"))
        / "dataset"
    )


@pytest.fixture
def built_copy(built, tmp_path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(built, tmp_path / "dataset"))


@pytest.fixture(scope="session")
def sample() -> Path:
    """What ``glit sample`` writes; do not write into it."""
    from glit.sample import write_sample

    return shared.once("photographs", lambda folder: write_sample(folder, building.quiet()))


@pytest.fixture(scope="session")
def photographs() -> Path:
    """Fifty real photographs; do not write into the folder."""
    import fetched

    return fetched.photographs()


@pytest.fixture(scope="session")
def tiny_clip() -> Path:
    """Folder of a CLIPModel with 32-pixel images, 8-pixel patches and 77 text positions."""
    return building.tiny_clip()


@pytest.fixture(scope="session")
def tokenizer(tiny_clip) -> TextTokenizer:
    return TextTokenizer(tiny_clip)


@pytest.fixture(scope="session")
def tokenizer_identity(tiny_clip) -> dict[str, Any]:
    return {"name": "tiny-clip", "sha256": tokenizer_hash(tiny_clip), "context": 248}


@pytest.fixture(scope="session")
def random_tiny():
    """A report of the benchmark with tiny random models."""
    from measuring import measured

    from glit.bench.lism_flism.models import TINY as TINY_SIZES

    return measured(weights="random", sizes=TINY_SIZES)


@pytest.fixture(scope="session")
def write_dataset(tokenizer, tokenizer_identity, tmp_path_factory) -> MakeDataset:
    """``write_dataset(folder, num_samples, change=None, **shape)`` writes a dataset, returns its
    folder. One that nothing changes is made once and copied from then on."""
    made: dict[Any, Path] = {}

    def write(
        folder: Path, num_samples: int, *, seed: int = 0, change=None, further=(), **shape
    ) -> Path:
        key = num_samples, seed, *shape.items()
        if change is None and not further and key in made:
            return Path(shutil.copytree(made[key], folder, dirs_exist_ok=True))
        written = write_random_dataset(
            folder,
            DatasetShape(num_samples=num_samples, **shape),
            seed=seed,
            encode=tokenizer.encode,
            tokenizer=tokenizer_identity,
            change=change,
            further=further,
        )
        if change is None and not further:
            kept = tmp_path_factory.mktemp("random") / "dataset"
            made[key] = Path(shutil.copytree(written, kept))
        return written

    return write


@pytest.fixture
def make_dataset(tmp_path, write_dataset) -> MakeDataset:
    """``make_dataset(num_samples, name="dataset", **how)``: the same in a test's own folder."""
    return lambda num, *, name="dataset", **how: write_dataset(tmp_path / name, num, **how)


@pytest.fixture(scope="session")
def warm_glit():
    """Command lines in processes of their own that import nothing anew; see :mod:`warm`."""
    with warm() as process:
        yield process


@pytest.fixture(scope="session")
def forks_with_vllm():
    """Programs with vLLM, which is imported once for all; see :mod:`vllm_forks`."""
    with vllm_forks() as process:
        yield process


@pytest.fixture(scope="session")
def browser():
    """A Chromium without a window; a process of tests has one, as Playwright wants it."""
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def s3_server():
    """An S3 server on loopback behind a proxy that fails on demand; see :mod:`faulty_s3`."""
    from faulty_s3 import faulty_s3

    with faulty_s3() as running:
        yield running


@pytest.fixture
def s3(s3_server, monkeypatch):
    """The same; what fails for good fails after two attempts of botocore's."""
    from fsspec.config import conf

    monkeypatch.setitem(
        conf, "s3", {"config_kwargs": {"retries": {"mode": "standard", "total_max_attempts": 2}}}
    )
    s3_server.faults.clear()
    s3_server.requests.clear()
    return s3_server


@pytest.fixture(scope="session")
def running_hub():
    from small_hub import small_hub

    with small_hub() as found:
        yield found


@pytest.fixture
def hub(running_hub, monkeypatch, tmp_path):
    """An empty Hub on loopback, with a token that may write; nothing waits before it tries again."""
    from small_hub import TOKEN

    running_hub.clear()
    monkeypatch.setenv("HF_ENDPOINT", running_hub.address)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return running_hub


@pytest.fixture(scope="session")
def google_server():
    """Google's storage on loopback behind a proxy that fails on demand; see :mod:`faulty_google`."""
    from faulty_google import faulty_google

    with faulty_google() as running:
        yield running


@pytest.fixture
def google(google_server):
    """The same, with nothing behind it."""
    google_server.faults.clear()
    google_server.requests.clear()
    return google_server


@pytest.fixture
def hide(monkeypatch) -> Callable[..., None]:
    """``hide(*names)`` makes modules look as if they were not installed."""
    find = importlib.util.find_spec

    def hide(*names: str) -> None:
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *rest: None if name in names else find(name, *rest),
        )

    return hide


@pytest.fixture
def run_glit(monkeypatch, capsys):
    """Runs a command line in this process, errors made into exit codes as a user meets them."""

    def run(*words) -> Done:
        monkeypatch.setattr("sys.argv", ["glit", *map(str, words)])
        code = 0
        try:
            command_line.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    return run
