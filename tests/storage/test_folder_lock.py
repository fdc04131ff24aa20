"""One command at a time in a folder, whichever command it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from glit.cli import bench as bench_commands
from glit.errors import InputError, UserError
from glit.storage.folder_lock import folder_lock
from glit.storage.outputs import new_folder

HOLD = """
import sys
from pathlib import Path
from glit.storage.folder_lock import folder_lock
with folder_lock(Path(sys.argv[1]), beside=sys.argv[2] == "beside"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held_by_another():
    """Starts a process that holds a folder until the test ends."""
    started = []

    def hold(folder: Path, *, beside: bool = False) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder), "beside" if beside else "inside"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        return process.pid

    yield hold
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("beside", [False, True])
def test_nothing_is_left_of_a_lock(tmp_path, beside) -> None:
    with folder_lock(tmp_path / "made" / "out", beside=beside):
        assert len([*(tmp_path / "made").rglob("*.lock")]) == 1
    assert [*tmp_path.iterdir()] == []
    with folder_lock(tmp_path / "out", beside=beside):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "file").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "file"]


@pytest.mark.parametrize("beside", [False, True])
def test_a_second_one_is_refused_by_the_holders_name(tmp_path, beside) -> None:
    out = tmp_path / "out"
    refused = f"out: another glit is writing here .pid {os.getpid()} on .*, since 20.*; wait"
    with folder_lock(out, beside=beside):
        for _ in range(2):  # the first refusal takes nothing away
            with pytest.raises(UserError, match=refused), folder_lock(out, beside=beside):
                pass
    with folder_lock(out, beside=beside):
        pass


def test_what_a_killed_holder_left_is_taken_over(tmp_path) -> None:
    (tmp_path / ".lock").write_text("pid 1 on elsewhere")
    with folder_lock(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith(f"pid {os.getpid()} on ")


def test_a_lock_whose_holder_removes_it_meanwhile_is_made_anew(tmp_path, monkeypatch) -> None:
    """Or two would hold files of one name."""
    from glit.storage import folder_lock as module

    plain, removed = module._lock, []

    def after_the_holder_ended(handle: int, file: Path) -> None:
        if not removed:
            file.unlink()
            removed.append(file)
        plain(handle, file)

    monkeypatch.setattr(module, "_lock", after_the_holder_ended)
    with folder_lock(tmp_path):
        monkeypatch.undo()
        with pytest.raises(UserError, match="another glit"), folder_lock(tmp_path):
            pass
    assert removed


def test_a_link_in_the_place_of_a_lock_is_not_written_through(tmp_path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="cannot write there"), folder_lock(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_file_system_without_locks_warns_and_goes_on(tmp_path, monkeypatch) -> None:
    def none(handle: int, what: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.warns(UserWarning, match="no locks .Function not impl"), folder_lock(tmp_path):
        pass


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ZeroDivisionError), new_folder(out) as folder:
        (folder / "file").touch()
        raise ZeroDivisionError
    assert [*tmp_path.iterdir()] == []
    with new_folder(out) as folder:
        (folder / "file").touch()
        assert not out.exists()
        with pytest.raises(UserError, match="another glit is writing here"), new_folder(out):
            pass
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "file"]
    with pytest.raises(InputError, match="exists already"), new_folder(out):
        pass


@pytest.mark.parametrize(
    "words",
    [
        ["export", "{dataset}", "--to", "coco"],
        ["pair", "{dataset}"],
        ["interpolate", "{clip}", "{clip}"],
    ],
)
def test_commands_that_make_a_folder(words, tiny_clip, built, tmp_path, run_glit, held_by_another):
    """Two at once shared a temporary name: one of them was wrong, with exit code 0."""
    out = tmp_path / "out"
    holder = held_by_another(out, beside=True)
    words = [word.format(dataset=built, clip=tiny_clip) for word in words]
    done = run_glit(*words, "-o", out)
    assert done.code == 2 and done.errors.count("glit: ") == 1
    assert f"{out}: another glit is writing here (pid {holder} on " in done.errors
    assert not out.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["train", "{dataset}", "-r", "mini"],
        ["eval", "retrieval", "{clip}", "{dataset}"],
        ["scenes", "-n", "2"],
        ["bench", "lism-flism", "--weights", "mini"],
        ["bench", "objectives", "--train", "{dataset}", "--test", "{dataset}"],
        ["build", "{dataset}", "-r", "mini"],
    ],
)
def test_commands_that_write_into_a_folder(
    words, tiny_clip, built, tmp_path, run_glit, held_by_another
) -> None:
    out = tmp_path / "out"
    holder = held_by_another(out / "work" if words[0] == "build" else out)
    words = [word.format(dataset=built, clip=tiny_clip) for word in words]
    done = run_glit(*words, "-o", out)
    assert done.code == 2
    assert f"here (pid {holder} on " in done.errors.splitlines()[-1]
    assert not [path for path in out.rglob("*") if path.is_file() and path.name != ".lock"]


def test_every_command_of_the_benchmark_holds_its_folder() -> None:
    group: Any = typer.main.get_command(bench_commands.bench_command)
    writing = {
        name
        for name, command in group.commands.items()
        if any(option.name == "output" for option in command.params)
    }
    assert writing == {"lism-flism", "objectives"}
