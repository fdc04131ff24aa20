"""The command lines that the wheel's check runs reach every command, option and choice."""

from typing import Annotated

import pytest
import typer

from glit.storage.folder_lock import folder_lock
from tools import command_lines as module
from tools.check_wheel import names_an_extra
from tools.command_lines import command_lines


def walk(command, words=()):
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from walk(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command


def test_every_option_of_every_command_is_used():
    lines = [tuple(line) for line in command_lines()]
    for words, command in walk(typer.main.get_command(module.app)):
        if " ".join(words) in module.BY_HAND:
            continue
        own = [line for line in lines if line[: len(words)] == words]
        used = {word for line in own for word in line}
        options = [p for p in command.params if p.param_type_name == "option"]
        assert len(own) > 1
        for option in options:
            elsewhere = module._OF_COMMAND.get((words[0], option.name)) == []
            assert elsewhere or used & set(option.opts) or set(option.opts) <= module.ENDLESS


def test_every_choice_of_a_recipe_is_used():
    used = {word for line in command_lines() for word in line}
    wanted = {
        "caption.backend=vllm", "propose.backend=sam+grid", "split.splitter=punkt",
        "pair.rule=lism", "score.precision=bfloat16", "lism-sa1b", "hard-negatives", "goal-joint",
    }  # fmt: skip
    assert wanted <= used


def test_an_option_that_nobody_gave_a_value_is_an_error(monkeypatch):
    app = typer.Typer()

    @app.command("new")
    def new(surprise: Annotated[str, typer.Option("--surprise")] = "") -> None: ...

    @app.command("other")
    def other() -> None: ...

    monkeypatch.setattr(module, "app", app)
    with pytest.raises(LookupError, match="glit new: --surprise is new"):
        list(command_lines())


@pytest.mark.parametrize(
    ("code", "errors", "well"),
    [
        (2, "glit: x needs ray; install it with: pip install 'glit-datasets[ray]'\n", True),
        (2, "glit: x needs torch; install it with: pip install 'glit[models]'\n", False),
        (2, "glit: no such folder\n", False),
        (-1, "Traceback\nModuleNotFoundError: No module named 'torch'\n", False),
        (1, "glit: x needs ray; install it with: pip install 'glit-datasets[ray]'\n", False),
    ],
)
def test_what_counts_as_naming_an_extra(code, errors, well):
    assert names_an_extra(code, errors) is well


@pytest.mark.parametrize("name", ["pairs"])
def test_a_measurement_holds_its_folder(name, tmp_path, run_tool):
    with folder_lock(tmp_path / "out"):
        code, _, errors = run_tool(name, "-o", tmp_path / "out")
    assert code == 2 and "another glit is writing here" in errors
