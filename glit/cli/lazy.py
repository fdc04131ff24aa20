"""Commands whose modules are imported when they are run, so that ``glit --help`` is quick."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from glit.recipes import plugins


class LazyCommand(TyperCommand):
    """A command or group whose module ``glit --help`` does not import: it reads the docstring.

    Args:
        name: of the command.
        place: ``module:name`` of its function, or of its :class:`typer.Typer`.
        panel: the heading that ``glit --help`` lists it under.
    """

    def __init__(self, name: str, place: str, *, panel: str) -> None:
        super().__init__(name, rich_help_panel=panel)
        self._place = place
        del self.params, self.help  # those of the command itself; see __getattr__

    @cached_property
    def loaded(self) -> Any:
        """The command itself."""
        module, _, name = self._place.partition(":")
        plugins.load_installed()
        found = getattr(importlib.import_module(module), name)
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False)
            app.command(self.name)(found)
            found = app
        command = typer.main.get_command(found)
        command.name = self.name
        return command

    def __getattr__(self, name: str) -> Any:
        """Load the command for its parameters or, if it is a group, its commands; but read its
        line of help without that."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "help":
            self.help = line_of_help(self._place)
            return self.help
        return getattr(self.loaded, name)

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> Any:
        """Return the loaded command's context, so that it is what runs."""
        try:
            return self.loaded.make_context(info_name, args, *rest, **more)
        except Exception as error:
            told = getattr(error, "message", "")
            found = re.match(r"Got unexpected extra arguments? \((.*)\)", str(told), re.DOTALL)
            if found is None:
                raise
            names = found[1].split()
            some = " ".join(names[:3]) + (" …" if len(names) > 3 else "")
            error.message = (  # pyright: ignore[reportAttributeAccessIssue]
                f"{len(names)} words too many: {some}; a pattern such as 'photos/*.jpg' goes in "
                "quotes, and a name with a blank too"
            )
            raise


def line_of_help(place: str) -> str:
    """The first paragraph of a command's docstring, or of its group's callback.

    It is read from the source, because to import all commands takes a second.
    """
    module, _, name = place.partition(":")
    loader: Any = getattr(importlib.util.find_spec(module), "loader", None)
    start = rf"^(?:def {name}\(|@{name}\.callback\()"
    pattern = rf'{start}.*?"""(.+?)(?:\n\n|""")'
    found = re.search(pattern, loader.get_source(module) or "", re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def lazy_group(panels: Mapping[str, Mapping[str, str]]) -> type[TyperGroup]:
    """A group of lazy commands; see :class:`LazyCommand`.

    Args:
        panels: place of each command, by its name, by its panel.
    """

    class LazyGroup(TyperGroup):
        """These commands, none of them imported."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for panel, commands in panels.items():
                for name, place in commands.items():
                    self.add_command(LazyCommand(name, place, panel=panel), name)

    return LazyGroup
