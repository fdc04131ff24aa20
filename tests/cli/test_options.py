"""Options that come from a function's signature and docstring."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
import typer

from glit.cli.derived import command_of
from glit.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glit.api import PathLike


def measure(
    task: str,
    dataset: PathLike,
    *,
    kind: Literal["glit", "coco"] = "glit",
    split: str | None = None,
    settings: Sequence[str] = (),
    max_hours: float = math.inf,
    rates: dict[str, float] | None = None,
    report: Callable[[], None] | None = None,
) -> None:
    """Measure.

    Args:
        task: one of the tasks.
        dataset: a folder; with ``kind``, annotations
            that :func:`evaluate` takes, [boxes] or ``captions``.
        kind: ``glit`` or another format.
        split: one part. All by default.
        settings: changes.
        max_hours: as in :func:`build`.
        rates: of stages.
        report: called at the end.
    """


def options_of(command: Any) -> dict[str, Any]:
    own = typer.Typer(add_completion=False)
    own.command()(command)
    return {each.name: each for each in typer.main.get_command(own).params if each.name != "help"}


@command_of(measure, without=["rates"])
def measure_command(
    *,
    task: str,
    model: Annotated[str, typer.Argument(help="A model.")],
    split: Annotated[str | None, typer.Option("-s", help="Parts.")] = "test",
    summary: Annotated[bool, typer.Option(help="Draft a summary.")] = False,
    **given: Any,
) -> None:
    pass


def test_names_types_defaults_and_texts_are_the_function_s() -> None:
    found = options_of(measure_command)
    assert [(each.opts, each.default, each.help) for each in found.values()] == [
        (["task"], None, "One of the tasks."),
        (["model"], None, "A model."),
        (["dataset"], None,
         r"A folder; with --format, annotations that glit eval takes, \[boxes] or captions."),
        (["--format"], "glit", "glit or another format."),
        (["-s", "--split"], "test", "Parts."),
        (["--set"], [], "Changes; repeatable."),
        (["--max-hours"], math.inf,
         "Stop after so many hours, when a chunk is done. Default: never."),
        (["--summary"], False, "Draft a summary."),
    ]  # fmt: skip
    assert [name for name, each in found.items() if each.required] == ["task", "model", "dataset"]
    assert found["settings"].multiple and not found["max_hours"].show_default


def test_a_command_that_drops_an_option_or_invents_one_is_refused() -> None:
    def drops(*, task: str) -> None:
        pass

    def invents(*, colour: str, **given: Any) -> None:
        pass

    with pytest.raises(AssertionError, match="drops: some options are lost"):
        command_of(measure)(drops)
    with pytest.raises(AssertionError, match="colour: the library has no such parameter"):
        command_of(measure)(invents)
    with pytest.raises(KeyError, match="colour"):
        command_of(measure, without=["colour"])(measure_command)


def below(command: Any, words: str) -> list[tuple[str, Any]]:
    command = getattr(command, "loaded", command)
    parts = getattr(command, "commands", {})
    found = [each for name, part in parts.items() for each in below(part, f"{words} {name}")]
    return found or [(words, command)]


@pytest.mark.parametrize(("words", "command"), below(typer.main.get_command(app), "glit"))
def test_every_option_has_a_text(words, command) -> None:
    assert [each.name for each in command.params if each.name != "help" and not each.help] == []
