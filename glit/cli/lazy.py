"""Commands whose modules are imported when they are run, so that ``glit --help`` is quick."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from glit.recipes import plugins


class LazyCommand(TyperCommand):
    """A command, or a group of some, known by its name and its line of help.

    Args:
        name: of the command.
        place: ``module:name`` of its function, or of its :class:`typer.Typer`.
        help: the first line of its docstring.
    """

    def __init__(self, name: str, place: str, help: str) -> None:
        super().__init__(name, help=help)
        self._place = place
        del self.params  # those of the command itself; see __getattr__

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
        """Load the command for its parameters or, if it is a group, its commands."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.loaded, name)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return the loaded command's context, so that it is what runs."""
        return self.loaded.make_context(*args, **kwargs)


def lazy_group(commands: Mapping[str, tuple[str, str]]) -> type[TyperGroup]:
    """A group of lazy commands.

    Args:
        commands: place and line of help of each, by name; see :class:`LazyCommand`.
    """

    class LazyGroup(TyperGroup):
        """These commands, none of them imported."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for name, (place, line) in commands.items():
                self.add_command(LazyCommand(name, place, line), name)

    return LazyGroup
