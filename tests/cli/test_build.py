"""``glit build``: mistakes, a stop, locked models, and what it prints."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
from building import data_bytes, tiny

from glit.pipeline.stage_task import StageWorker
from glit.recipes.resources import mini_model
from glit.sample import HERE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "-o", "{out}"], "nowhere: no such folder"),
        (["{images}", "-o", "{out}", "-r", "flizm"], "did you mean 'flism'"),
        (
            ["{images}", "-o", "{out}", "-r", "mini", "--set", "score.batchsize=3"],
            "did you mean 'batch_size'",
        ),
        (["{images}", "-o", "{out}", "-r", "mini", "--captions", "no.jsonl"], "no such file"),
        (
            ["{images}", "-o", "{out}", "-r", "mini", "--set", "propose.model=yolos-tiny"],
            "not in the Hugging Face cache",
        ),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_two(
    scenes, tmp_path, run_glit, arguments, message
):
    filled = [a.format(images=scenes / "images", out=tmp_path / "out") for a in arguments]
    done = run_glit("build", *filled, "--executor", "local")
    assert done.code == 2
    lines = done.errors.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("glit: ") and message in lines[0]


def test_missing_models_have_a_line_each_that_a_shell_takes(scenes, tmp_path, run_glit):
    done = run_glit(
        "build", scenes / "images", "-o", tmp_path / "out", "-r", "flism", "--executor", "local"
    )
    first, *lines = done.errors.splitlines()
    assert done.code == 2 and first.startswith("glit: recipe 'flism': 3 of its models")
    assert [line.split()[:2] for line in lines] == [["hf", "download"]] * 3


def test_another_model_is_refused_by_its_role_before_the_first_image(
    scenes, tmp_path, run_glit, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run_glit("lock", "mini").code == 0
    other = shutil.copytree(mini_model("proposer"), tmp_path / "other")
    weights = other / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    done = run_glit(
        "build", scenes / "images", "-o", tmp_path / "out", "-r", "mini", "--executor", "local",
        "--locked", "--set", f"propose.model={other}",
    )  # fmt: skip
    assert done.code == 2 and len(done.errors.splitlines()) == 1
    assert "mini.lock.json: proposer: found 'other' at local with sha256" in done.errors
    assert "locked is 'mini-proposer' at 1 with sha256" in done.errors
    assert not [*(tmp_path / "out").rglob("*.parquet")]


def test_photographs_want_a_recipe_by_name(tmp_path, run_glit):
    shutil.copytree(HERE / "photographs", tmp_path / "in")
    done = run_glit("build", tmp_path / "in", "-o", tmp_path / "out")
    assert done.code == 2 and len(done.errors.splitlines()) == 1
    assert "these are photographs" in done.errors and "-r laptop" in done.errors
    assert not (tmp_path / "out").exists()


def test_a_first_build_that_is_refused_leaves_no_folder(tmp_path, run_glit):
    (tmp_path / "in").mkdir()
    done = run_glit("build", tmp_path / "in", "-o", tmp_path / "out", "--executor", "local")
    assert done.code == 2 and "no images found" in done.errors
    assert not (tmp_path / "out").exists()


def test_control_c_says_that_the_same_command_goes_on(
    scenes, built, tmp_path, monkeypatch, run_glit
):
    """The signal comes in the first stage after ingest, when two tables are there."""
    # a suite started in the background may have SIGINT ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    run, out = StageWorker.run, tmp_path / "out"
    arguments = [
        "build", scenes / "images", "-o", out, "-r", "mini", "--executor", "local",
        *(word for override in tiny() for word in ("--set", override)),
        "--captions", scenes / "captions.jsonl",
    ]  # fmt: skip

    def interrupted(worker, unit, excluded):
        if worker._name != "ingest":
            signal.raise_signal(signal.SIGINT)
        return run(worker, unit, excluded)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(StageWorker, "run", interrupted)
            done = run_glit(*arguments)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.code == 130
    said, command = done.errors.strip().splitlines()[-1].rsplit(": ", 1)
    assert said == "glit: stopped; what is done is kept, the same command goes on from here"
    assert shlex.split(command)[1:] == [
        *map(str, arguments[:6]), *map(str, arguments[8:]), "--executor", "local"
    ]  # fmt: skip
    assert command in run_glit("status", out).output
    assert run_glit("view", out, "-o", tmp_path / "page.html").code == 0
    assert command in (tmp_path / "page.html").read_text()
    assert len(list(out.glob("work/*/*.parquet"))) == 2
    assert run_glit(*arguments).code == 0
    assert data_bytes(out) == data_bytes(built)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_sigterm_stops_in_one_line(scenes, built_by_mini, tmp_path, run_glit, executor):
    """As Slurm and Kubernetes send it, here twice to every process."""
    out = tmp_path / "out"
    words = ["build", scenes / "images", "-o", out, "-r", "mini", "--executor"]
    captions = ["--captions", scenes / "captions.jsonl"]
    command = [sys.executable, "-m", "glit", *map(str, [*words, executor, *captions])]
    with subprocess.Popen(
        command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as build:
        assert build.stdout is not None
        while "loading" not in build.stdout.readline():
            pass
        for _ in range(2):
            os.killpg(build.pid, signal.SIGTERM)
        rest = build.stdout.read().splitlines()
    stages = [line for line in rest if re.match(r"[a-z]+ +\d+/24 ", line)]
    rest[-1] = rest[-1].partition(": glit build ")[0]
    ours = [*stages, "glit: stopped; what is done is kept, the same command goes on from here"]
    if executor == "ray" and any("(raylet)" in line for line in rest):
        # on a busy machine Ray's autoscaler tells of its own signal before Ray is gone
        assert [line for line in rest if line in ours] == ours
        assert not any("Stack trace" in line or "*** SIG" in line for line in rest)
    else:
        assert rest == ours
    assert build.returncode == 143
    assert run_glit(*words, "local", *captions).code == 0
    assert data_bytes(out) == data_bytes(built_by_mini)


def test_sigterm_within_code_that_exec_runs_has_its_exit_code_too(tmp_path):
    """As where a library makes its classes while it is imported."""
    (tmp_path / "stopped.py").write_text(
        "import sys\nfrom glit.errors import StoppedError\n"
        "from glit.pipeline.executors import open_executor\n"
        "try:\n    with open_executor('local'):\n"
        "        exec('import os\\nos.kill(os.getpid(), 15)\\nfor _ in range(9**6): pass')\n"
        "except StoppedError as error:\n    sys.exit(error.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-m", "stopped"], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (143, b"")


def test_what_is_printed(scenes, tmp_path, run_glit):
    words = [
        "build", scenes / "images", "-o", tmp_path / "out", "-r", "mini", "--executor", "local",
        *(word for override in tiny() for word in ("--set", override)),
        "--captions", scenes / "captions.jsonl", "--limit", 3,
    ]  # fmt: skip
    done = run_glit(*words)
    line = f"{tmp_path}/out: 3 images = 3 shipped + 0 dropped + 0 duplicates"
    *_, balance, took, following = done.output.splitlines()
    assert (done.code, balance) == (0, line)
    assert re.fullmatch(r"took \d+ s", took)
    assert following == f"next: glit view {tmp_path}/out -o {tmp_path}/out.html"
    again = run_glit(*words, "--json")
    assert json.loads(again.output) == {
        "dataset": f"{tmp_path}/out",
        "counts": {
            "ingested": 3,
            "shipped": 3,
            "dropped": 0,
            "duplicates": 0,
            "drops": {},
            "without_pair": 0,
        },
    }


def test_without_a_recipe_the_one_taken_is_named(tmp_path, monkeypatch, run_glit):
    monkeypatch.setattr("glit.models.device.best_device", lambda: "cpu")
    (tmp_path / "empty").mkdir()
    done = run_glit("build", tmp_path / "empty", "-o", tmp_path / "out", "--executor", "local")
    assert done.code == 2
    assert "using the recipe 'mini'" in " ".join(done.output.split())
    assert done.errors.startswith(f"glit: {tmp_path}/empty: no images")
