"""Options of commands, from the signature and docstring of a library function or their own."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping
from copy import copy
from inspect import Parameter
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from typer.models import OptionInfo

from glit import api
from glit.cli.options import count, existing_dataset, go_offline, shares

Command = TypeVar("Command", bound=Callable[..., None])
TERMINAL: dict[str, Any] = {
    "as_json": typer.Option("--json", help="Print the result as JSON."),
    "dataset": typer.Argument(callback=existing_dataset),
    "licence": typer.Option("--license"),
    "limit": typer.Option(min=1),
    "log_json": typer.Option(metavar="FILE", help="Append progress to a file as lines of JSON."),
    "max_drops": typer.Option(parser=shares, metavar="5%|no_caption=1%,…"),
    "max_tokens": typer.Option(parser=count, metavar="N|2M"),
    "metrics": typer.Option(
        metavar="HOST:PORT", help="Serve metrics for Prometheus; needs the extra."
    ),
    "num": typer.Option(min=1),
    "offline": typer.Option(
        callback=go_offline,
        help="Download no model, as with HF_HUB_OFFLINE=1; an error names the command that does.",
    ),
    "output": typer.Option("-o"),
    "port": typer.Option(min=0, max=65535),
    "quiet": typer.Option("-q", help="Print the result only, no progress."),
    "recipe": typer.Option("-r"),
    "settings": typer.Option("--set"),
}
"""What a parameter of this name looks like in every command that does not say otherwise."""
_OBJECTS = {"progress", "report"}
"""Parameters that take objects of Python; commands fill them in."""
_COMMANDS = {"evaluate": "eval", "judge": "pairs judge"}
"""Commands that are not called as their function is."""
_SHARED = {"dataset", "image_root", "settings"}
"""Parameters that mean the same in commands without a function."""
_TYPES = {"Drops": float, "Literal": Literal, "PathLike": str, "Sequence": list}
"""Types of options, by their names in signatures."""


def command(function: Command) -> Command:
    """Give a command its own parameters as options; see :func:`command_of`."""
    texts = argument_texts(api.build) | argument_texts(api.open_dataset)
    return _with_options(function, {}, {name: texts[name] for name in _SHARED & texts.keys()})


def command_of(
    function: Callable[..., Any], *, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command the parameters of a function: names, types, defaults, texts, and their order.

    The command lists the parameters that its body uses or that differ. One without a default takes
    the function's; one in the command's docstring has another text; ``Annotated`` adds a short
    name, a range, or a callback. The others arrive in the command's ``**given``. Optional ones of
    the command alone come last.

    Args:
        function: of :mod:`glit.api`.
        without: its parameters that are no options of the command.
    """
    library = dict(inspect.signature(function).parameters)
    for name in {*without, *_OBJECTS & library.keys()}:
        del library[name]
    return lambda command: _with_options(command, library, argument_texts(function))


def _with_options(
    command: Command, library: Mapping[str, Parameter], texts: Mapping[str, str]
) -> Command:
    own = dict(inspect.signature(command, eval_str=True).parameters)
    if rest := [name for name, each in own.items() if each.kind is Parameter.VAR_KEYWORD]:
        del own[rest[0]]
    assert rest or library.keys() <= own.keys(), f"{command.__name__}: some options are lost"
    found = [_parameter(library.get(name), own.get(name)) for name in _ordered(library, own)]
    options = [each for each in found if each.annotation is not typer.Context]
    _add_help(options, texts, argument_texts(command))
    command.__doc__ = (inspect.getdoc(command) or "").partition("\n\nArgs:\n")[0]
    signature = inspect.Signature(found)
    command.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return command


def _ordered(library: Mapping[str, Parameter], own: Mapping[str, Parameter]) -> list[str]:
    """Names in the library's order; a required one of the command alone stays behind the one that
    it follows in the command, and the optional ones come last."""
    names, place = list(library), 0
    for name, each in own.items():
        if name not in library and each.default is Parameter.empty:
            names.insert(place, name)
        if name in names:
            place = names.index(name) + 1
    return [*dict.fromkeys([*names, *own])]


def _parameter(library: Parameter | None, own: Parameter | None) -> Parameter:
    """A parameter as Typer sees it: the library's, changed by what the command says of it."""
    given = own or library
    assert given is not None
    if given.annotation is typer.Context:
        return given.replace(kind=Parameter.KEYWORD_ONLY)
    kind, info = given.annotation, TERMINAL.get(given.name)
    if get_origin(kind) is Annotated:
        kind, info = get_args(kind)
    elif own is None:
        kind = eval(kind, dict(_TYPES))
    default = given.default
    if default is Parameter.empty and library is not None:
        default = [] if library.default == () else library.default
    if info is None:
        is_word = library is not None and library.kind is not Parameter.KEYWORD_ONLY
        info = typer.Argument() if is_word and default is Parameter.empty else typer.Option()
    info = copy(info)
    if isinstance(info, OptionInfo):
        names: list[Any] = [info.default, *(info.param_decls or ())]
        names = [each for each in names if each is not ...]
        if not any(each.startswith("--") for each in names):
            names.append(f"--{given.name.replace('_', '-')}")
        info.default, info.param_decls = ..., names
        info.show_default = info.show_default and default != math.inf
    kind = Annotated[kind, info]
    return Parameter(given.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _add_help(
    parameters: Collection[Parameter], texts: Mapping[str, str], own: Mapping[str, str]
) -> None:
    """Give each parameter the command's own text, or what :data:`TERMINAL` says of it, or that of
    the library; other options have their names in it."""
    kinds = {each.name: get_args(each.annotation) for each in parameters}
    options = {name: info for name, (_, info) in kinds.items() if isinstance(info, OptionInfo)}
    shown = {name: info.param_decls[0] for name, info in options.items() if info.param_decls}
    for name, (kind, info) in kinds.items():
        if info.help and name not in own:
            continue
        assert name in own or name in texts, f"{name}: no docstring says what it is"
        info.help = terminal_text(own.get(name) or texts.get(name, ""), shown)
        if name in options and "list[" in str(kind):
            more = ". Repeatable." if ". " in info.help else "; repeatable."
            info.help = info.help.removesuffix(".") + more


def argument_texts(function: Callable[..., Any]) -> dict[str, str]:
    """Return a docstring's text of each argument, also from the function that it refers to."""
    section = (inspect.getdoc(function) or "").partition("Args:\n")[2].partition("\n\n")[0]
    found = dict(re.findall(r"^    (\w+): ((?:.|\n      )*)", section, re.MULTILINE))
    for name, text in found.items():
        if other := re.fullmatch(r"as (?:in|for) :func:`(\w+)`\.", text):
            found[name] = argument_texts(getattr(api, other[1]))[name]
    return found


def terminal_text(text: str, shown: Mapping[str, str]) -> str:
    """A docstring's text as help: commands for functions, options for parameters.

    >>> terminal_text("with ``json``, a file that :func:`judge` takes", {"json": "--as-json"})
    'With --as-json, a file that glit pairs judge takes'
    """
    text = " ".join(text.split())
    text = text if text.startswith((":", "`")) else text[:1].upper() + text[1:]
    text = re.sub(r":func:`(.+?)`", lambda it: f"glit {_COMMANDS.get(it[1], it[1])}", text)
    text = re.sub(r"``(.+?)``", lambda it: shown.get(it[1], it[1]), text)
    return text.replace("[", r"\[")
