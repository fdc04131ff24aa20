"""Commands whose options are the parameters of a function of the library."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping
from copy import copy
from inspect import Parameter
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from typer.models import OptionInfo

from glit import api
from glit.cli.options import existing_dataset

Command = TypeVar("Command", bound=Callable[..., None])
TERMINAL: dict[str, Any] = {
    "dataset": typer.Argument(callback=existing_dataset),
    "kind": typer.Option("--format"),
    "licence": typer.Option("--license"),
    "limit": typer.Option(min=1),
    "output": typer.Option("-o"),
    "recipe": typer.Option("-r"),
    "settings": typer.Option("--set"),
}
"""What a parameter of this name looks like in every command that does not say otherwise."""
_OBJECTS = {"progress", "report"}
"""Parameters that take objects of Python; commands fill them in."""
_COMMANDS = {"evaluate": "eval", "judge": "pairs judge"}
"""Commands that have another name than their function."""
_TYPES = {"Literal": Literal, "PathLike": str, "Sequence": list}
"""Types of options, by their names in signatures."""


def command_of(
    function: Callable[..., Any], *, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command the parameters of a function: names, types, defaults, texts, and their order.

    The command lists the parameters that its body uses or that differ. Each that has no default
    takes the function's; ``Annotated`` adds what differs: a short name, a range, a callback,
    another help. The others arrive in the command's ``**given``. Optional ones of the command
    alone come last.

    Args:
        function: of :mod:`glit.api`.
        without: its parameters that are no options of the command.
    """
    library = dict(inspect.signature(function).parameters)
    for name in {*without, *_OBJECTS & library.keys()}:
        del library[name]

    def derive(command: Command) -> Command:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        if rest := [name for name, each in own.items() if each.kind is Parameter.VAR_KEYWORD]:
            del own[rest[0]]
        assert rest or library.keys() <= own.keys(), f"{command.__name__}: some options are lost"
        alone = {name: _alone(each) for name, each in own.items() if name not in library}
        derived = {name: _derived(each, own.get(name)) for name, each in library.items()}
        _add_help(derived, argument_texts(function))
        found = derived | alone
        command.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
            [found[name] for name in _ordered(library, own)]
        )
        return command

    return derive


def _ordered(library: Mapping[str, Parameter], own: Mapping[str, Parameter]) -> list[str]:
    """Names in the library's order; a required one of the command alone follows the one that it
    follows there, and the optional ones come last."""
    names = list(library)
    for before, name in itertools.pairwise(own):
        if name not in library and own[name].default is Parameter.empty:
            names.insert(names.index(before) + 1 if before in names else 0, name)
    return [*dict.fromkeys([*names, *own])]


def _alone(own: Parameter) -> Parameter:
    """A parameter of the command alone, which is complete but for its name."""
    if own.annotation is typer.Context:
        return own.replace(kind=Parameter.KEYWORD_ONLY)
    assert get_origin(own.annotation) is Annotated, f"{own.name}: the library has no such parameter"
    return _parameter(own.name, own.default, *get_args(own.annotation))


def _derived(library: Parameter, own: Parameter | None) -> Parameter:
    """A parameter of the library as Typer sees it, changed by what the command says of it."""
    name, default, info = library.name, library.default, TERMINAL.get(library.name)
    if own is None:
        kind = eval(library.annotation, dict(_TYPES))
    elif get_origin(own.annotation) is Annotated:
        kind, info = get_args(own.annotation)
    else:
        kind = own.annotation
    if own is not None and own.default is not Parameter.empty:
        default = own.default
    if info is None:
        is_word = library.kind is not Parameter.KEYWORD_ONLY and default is Parameter.empty
        info = typer.Argument() if is_word else typer.Option()
    return _parameter(name, [] if default == () else default, kind, info)


def _parameter(name: str, default: Any, kind: Any, info: Any) -> Parameter:
    """A parameter for Typer: an option has a long name, and infinity is not shown as a default."""
    info = copy(info)
    if isinstance(info, OptionInfo):
        names: list[Any] = [info.default, *(info.param_decls or ())]
        names = [each for each in names if each is not ...]
        if not any(each.startswith("--") for each in names):
            names.append(f"--{name.replace('_', '-')}")
        info.default, info.param_decls = ..., names
        info.show_default = info.show_default and default != math.inf
    kind = Annotated[kind, info]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _add_help(parameters: Mapping[str, Parameter], texts: Mapping[str, str]) -> None:
    """Give each parameter that has no help its text, in which other options have their names."""
    kinds = {name: get_args(each.annotation) for name, each in parameters.items()}
    options = {name: info for name, (_, info) in kinds.items() if isinstance(info, OptionInfo)}
    shown = {name: info.param_decls[-1] for name, info in options.items() if info.param_decls}
    for name, (kind, info) in kinds.items():
        if not info.help:
            text = terminal_text(texts.get(name, ""), shown)
            if name in options and "list[" in str(kind):
                more = ". Repeatable." if ". " in text else "; repeatable."
                text = text.removesuffix(".") + more
            info.help = text


def argument_texts(function: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of each argument, also by the function that it refers to."""
    section = (inspect.getdoc(function) or "").partition("Args:\n")[2].partition("\n\n")[0]
    found = dict(re.findall(r"^    (\w+): ((?:.|\n      )*)", section, re.MULTILINE))
    for name, text in found.items():
        if other := re.fullmatch(r"as (?:in|for) :func:`(\w+)`\.", text):
            found[name] = argument_texts(getattr(api, other[1]))[name]
    return found


def terminal_text(text: str, shown: Mapping[str, str]) -> str:
    """A docstring's text as help: commands for functions, options for parameters.

    >>> terminal_text("with ``kind``, a file that :func:`judge` takes", {"kind": "--format"})
    'With --format, a file that glit pairs judge takes'
    """
    text = " ".join(text.split())
    text = text if text.startswith((":", "`")) else text[:1].upper() + text[1:]
    text = re.sub(r":func:`(.+?)`", lambda it: f"glit {_COMMANDS.get(it[1], it[1])}", text)
    text = re.sub(r"``(.+?)``", lambda it: shown.get(it[1], it[1]), text)
    return text.replace("[", r"\[")
