"""``glit eval``."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import typer

from glit.cli.main import app
from glit.evaluation.tasks import TASKS
from glit.inputs.published import measured


@pytest.mark.parametrize("task", ["joint-map", "localize", "robustness", "caption-quality"])
def test_every_measurement(tiny_clip, make_dataset, run_glit, task: str) -> None:
    done = run_glit("eval", task, tiny_clip, make_dataset(8), "--json")
    (result,) = json.loads(done.output)
    for told in (f"model    0/1  loading {tiny_clip}", "\nmodel    1/1  \n"):
        assert told in done.errors
    assert re.search(r"^images +(8/8|16/16) ", done.errors, re.MULTILINE)
    assert re.search(r"^texts +(\d+)/\1 ", done.errors, re.MULTILINE)
    assert (done.code, result["task"], result["num_images"]) == (0, task, 8)


def test_the_help_names_every_task_and_format() -> None:
    group: Any = typer.main.get_command(app)
    command = group.commands["eval"]
    (option,) = [p for p in command.params if "--format" in p.opts]
    of_tasks = {name: task.formats for name, task in TASKS.items() if task.formats}
    known = {"glit", *measured(), *of_tasks, *(f for some in of_tasks.values() for f in some)}
    assert set(re.findall(r"[\w-]+", option.help)) == known
    lines = command.help.partition("\b\n")[2].splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[n, t.about] for n, t in TASKS.items()]


def test_false_sentences_belong_to_robustness(tiny_clip, make_dataset, tmp_path, run_glit) -> None:
    words = ["eval", "retrieval", tiny_clip, make_dataset(2), "--false-sentences", tmp_path / "x"]
    done = run_glit(*words)
    assert done.code == 2
    assert done.errors == "glit: --false-sentences belongs to robustness, not to retrieval\n"


def test_a_model_that_is_not_here_is_one_line(make_dataset, tmp_path, run_glit) -> None:
    done = run_glit("eval", "retrieval", tmp_path / "nowhere", make_dataset(2), "--quiet")
    assert done.code == 2
    assert done.errors == f"glit: model '{tmp_path}/nowhere': no such file or folder\n"


def test_a_checkpoint_of_what_is_no_run_is_refused(tiny_clip, make_dataset, run_glit) -> None:
    done = run_glit("eval", "retrieval", tiny_clip, make_dataset(2), "--checkpoint", "last")
    assert done.code == 2
    assert done.errors.startswith(f"glit: --checkpoint last: {tiny_clip} is no run of glit train")


def test_where_nothing_can_be_written_nothing_is_measured(tmp_path, run_glit) -> None:
    """Neither is the model looked for before, nor the dataset opened."""
    (tmp_path / "file").touch()
    for output, reason in (("file", "it is a file, want a folder"), ("file/x", "cannot write")):
        done = run_glit("eval", "retrieval", "nowhere", tmp_path, "-o", tmp_path / output)
        assert done.code == 2 and done.errors.count("\n") == 1
        assert reason in done.errors
