"""Options that come from signatures and docstrings."""

from __future__ import annotations

import math
from typing import Annotated, Any

import pytest
import typer

from glit import api
from glit.cli.derived import command, command_of
from glit.cli.main import app


def commands_below(group: Any, words: str) -> dict[str, Any]:
    found = {}
    for name, each in group.commands.items():
        below = hasattr(each, "commands")
        found |= commands_below(each, f"{words}{name} ") if below else {f"{words}{name}": each}
    return found


COMMANDS = commands_below(typer.main.get_command(app), "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_text(name) -> None:
    assert [
        each.name for each in COMMANDS[name].params if each.name != "help" and not each.help
    ] == []


def test_options_are_the_parameters_of_the_function() -> None:
    found = {each.name: each for each in COMMANDS["select"].params}
    assert [*found][:4] == ["dataset", "output", "shares", "where"]
    assert [name for name, each in found.items() if each.required] == ["dataset", "output"]
    assert found["seed"].default == 0 and found["sample"].min == 1
    assert found["shares"].opts == ["--split"] and found["output"].opts == ["-o", "--output"]
    by, where = found["by"].help, found["where"].help
    assert by == "With --sample: as many of each value of this column or SQL."
    assert where == "Take only samples that meet this SQL condition."  # as select's, by reference
    hours = next(each for each in COMMANDS["add"].params if each.name == "max_hours")
    assert hours.default == math.inf and not hours.show_default
    table = next(each for each in COMMANDS["pair"].params if each.name == "recipe")
    assert table.help == r"The recipe whose \[pair] table is used. Default: the dataset's own."


def test_a_command_says_what_differs() -> None:
    @command_of(api.lock)
    def lock(
        *, recipe: str = "mini", where: Annotated[str, typer.Option("-w")], **given: Any
    ) -> None:
        """Lock.

        Args:
            recipe: a name.
            where: as in :func:`select`.
        """

    own = typer.Typer(add_completion=False)
    own.command()(lock)
    recipe, where, settings = typer.main.get_command(own).params
    assert (recipe.default, recipe.help, where.opts) == ("mini", "A name.", ["-w", "--where"])
    assert where.required and where.help == "Take only samples that meet this SQL condition."
    assert settings.help == "Override recipe keys: table.key=value; repeatable."
    assert lock.__doc__ == "Lock."


def test_a_command_that_loses_an_option_or_says_nothing_of_one_is_refused() -> None:
    with pytest.raises(AssertionError, match="some options are lost"):
        command_of(api.lock)(lambda *, recipe: None)
    with pytest.raises(AssertionError, match="colour: no docstring says what it is"):
        command(lambda *, colour="red": None)
    with pytest.raises(KeyError, match="colour"):
        command_of(api.lock, without=["colour"])
