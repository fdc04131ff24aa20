"""What all commands have in common: help, version, and errors in one line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import glit
from glit.cli import main
from glit.cli.commands import PANELS
from glit.installation import install_command

ADDRESS = "s3://bucket/x"
WRITING = {
    "export": ["export", "{built}", "--to", "coco", "-o", ADDRESS],
    "train": ["train", "{built}", "-o", ADDRESS, "-r", "mini"],
    "train --resume": ["train", "{built}", "-o", ADDRESS, "--resume"],
    "eval": ["eval", "retrieval", "mini-matcher", "{built}", "-o", ADDRESS],
    "scenes": ["scenes", "-o", ADDRESS, "-n", "1"],
    "bench": ["bench", "lism-flism", "-o", ADDRESS],
}
READING = {
    "build there": ["build", "{images}", "-o", ADDRESS, "-r", "mini", "--executor", "local"],
    "add": ["add", ADDRESS, "--executor", "local"],
    "retry": ["retry", ADDRESS, "--executor", "local"],
    "clean": ["clean", ADDRESS],
    "build": ["build", ADDRESS, "-o", "out", "-r", "mini", "--executor", "local"],
    "status": ["status", ADDRESS],
    "verify": ["verify", ADDRESS],
    "query": ["query", ADDRESS, "select 1"],
    "export": ["export", ADDRESS, "--to", "coco", "-o", "out"],
    "train": ["train", ADDRESS, "-o", "out", "-r", "mini"],
    "eval": ["eval", "retrieval", "mini-matcher", ADDRESS],
}


@pytest.fixture
def empty(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def filled(words, built, scenes):
    return [word.format(built=built, images=scenes / "images") for word in words]


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
def test_an_address_to_write_to_is_refused_and_becomes_no_folder(
    words, built, scenes, empty, run_glit
):
    done = run_glit(*filled(words, built, scenes))
    assert done.code == 2
    assert done.errors == (
        "glit: s3://bucket/x: an address, but this command writes to local folders only (glit build "
        "writes to addresses); want a local folder: write it here and upload it afterwards\n"
    )
    assert [*empty.iterdir()] == []


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_an_address_whose_package_is_missing_is_one_line(
    words, built, scenes, empty, run_glit, monkeypatch
):
    """As without s3fs, whether it is installed or not."""

    def missing(*_, **__):
        raise ImportError("No")

    monkeypatch.setattr("glit.storage.remote.url_to_fs", missing)
    done = run_glit(*filled(words, built, scenes))
    assert done.code == 2
    assert done.errors.startswith("glit: s3://bucket/x")
    assert done.errors.endswith(
        f"needs the package s3fs; install it with: {install_command('s3')}\n"
    )
    assert [*empty.iterdir()] == []


def test_the_version(run_glit):
    assert run_glit("--version").output == f"glit {glit.__version__}\n"


def test_the_help_names_every_command_with_a_line(run_glit):
    shown = run_glit("--help").output
    for panel, commands in PANELS.items():
        _, found, below = shown.partition(f"─ {panel} ─")
        for name, (_, line) in commands.items():
            words = " ".join(below.partition("╰─")[0].replace("│", " ").split())
            assert found and f"{name} {line}" in words


def test_a_command_that_does_not_exist(run_glit):
    done = run_glit("biuld")
    assert done.code == 2 and "No such command 'biuld'. Did you mean 'build'?" in done.errors


def test_a_pattern_without_quotes_is_named_as_the_cause_of_too_many_words(run_glit, tmp_path):
    done = run_glit("build", tmp_path, "b 1", "c", "d", "e", "-o", "out", "-r", "mini")
    message = " ".join(done.errors.replace("│", " ").split())
    assert "4 words too many: b 1 c d …; a pattern such as 'photos/*.jpg' goes in" in message
    assert done.code == 2


@pytest.mark.slow
def test_a_key_without_effect_is_one_plain_line_before_the_result(tmp_path):
    words = ["eval", "retrieval", "mini-clip", str(tmp_path), "--set", "evaluate.window=2"]
    done = subprocess.run([sys.executable, "-m", "glit", *words], capture_output=True, text=True)
    assert done.stderr.splitlines() == [
        "glit: warning: [evaluate] window: ignored, scorer = 'cosine' does not use it",
        f"glit: {tmp_path}: no dataset here (no manifest.json)",
    ]


def test_warnings_of_libraries_keep_their_place(tmp_path):
    (tmp_path / "loud.py").write_text("import warnings\nwarnings.warn('of a library')\n")
    script = (
        "import sys; from glit.cli.main import main; sys.argv = ['glit', '--version']\n"
        "try: main()\n"
        "finally: import loud\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path
    )
    assert f"{tmp_path}/loud.py:2: UserWarning: of a library" in done.stderr


@pytest.mark.slow
def test_a_process_that_cannot_name_files_is_told_so(tmp_path):
    """Else every picture with an accent in its name would be dropped."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "glit", "status", "x"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **ascii_only})
    said = "Python reads file names as ascii here, which not every name is; set PYTHONUTF8=1"
    assert (done.returncode, done.stderr) == (2, f"glit: {said}\n")


@pytest.mark.slow
def test_a_working_folder_that_is_gone_is_told(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    leave = f"import os; os.rmdir({str(there)!r}); from glit.cli.main import main; main()"
    words = [sys.executable, "-c", leave, "status", "x"]
    done = subprocess.run(words, cwd=there, capture_output=True, text=True)
    said = "glit: the folder that this runs in is gone; change to another\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1"])
def test_a_terminal_that_is_closed_and_slurm_stop_as_sigterm_does(name):
    """With the handlers of a build; under nohup it goes on."""
    script = (
        "import os, signal, sys, time\nfrom glit.cli import main as cli\n"
        "from glit.pipeline.executors import open_executor\n"
        "def build():\n"
        "    with open_executor('local'):\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "        for _ in range(30): time.sleep(0.01)\n"
        "cli._run = build\ncli.main()\n"
    )
    for handler, code in (("SIG_DFL", 143), ("SIG_IGN", 0)):
        before = f"import signal; signal.signal(signal.{name}, signal.{handler})\n"
        words = [sys.executable, "-c", before + script]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == code, done.stderr


def test_short_options_and_completion(run_glit):
    for words in (["-h"], ["view", "-h"], ["pairs", "-h"], ["pairs", "label", "-h"]):
        done = run_glit(*words)
        assert done.code == 0 and "Usage:" in done.output and "--help" in done.output
    asked = {"_GLIT_COMPLETE": "complete_bash", "COMP_WORDS": "glit view --ser", "COMP_CWORD": "2"}
    program = os.path.join(os.path.dirname(sys.executable), "glit")
    done = subprocess.run(
        [program], capture_output=True, text=True, check=True, env={**os.environ, **asked}
    )
    assert done.stdout.split() == ["--serve"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [["recipes"], ["stats"], ["query", "SELECT 1", "--format", "json"]]
)
def test_a_full_standard_output_is_one_line(built, words):
    command = [words[0], *([] if words[0] == "recipes" else [built]), *words[1:]]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "glit", *map(str, command)], stdout=full,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1, "glit: standard output: cannot be written (No space left on device)\n"
    )  # fmt: skip


def test_a_lack_of_memory_is_one_line(monkeypatch, capsys):
    def short():
        raise MemoryError

    monkeypatch.setattr(main, "app", short)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("glit: not enough memory here")
