"""The options of commands against the library's functions that they call: names, defaults, units."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import typer

from glit import api
from glit.cli.main import app

CALLS = {
    "add": "add", "attach": "attach", "audit": "audit", "build": "build", "clean": "clean",
    "estimate": "estimate", "eval": "evaluate", "export": "export", "lock": "lock",
    "merge": "merge", "overlap": "overlap", "overlap -o": "references", "pair": "pair",
    "pairs apply": "apply_corrections", "pairs calibrate": "calibrate", "pairs certify": "certify",
    "pairs judge": "judge", "push": "push", "retry": "retry", "select": "select",
    "select --split": "split", "stats": "statistics", "train": "train", "verify": "verify",
}  # fmt: skip
"""The function that each command calls; with an option, another one."""
OF_COMMANDS = {"as_json", "quiet", "offline", "log_json", "metrics"}
"""Options of the terminal alone."""
OF_PROGRAMS = {"progress", "report", "processes", "neighbours"}
"""Parameters that a command fills in itself."""
UNLIKE = {
    "audit": {"form": "format", "output": "page"},
    "estimate": {"rate": "rates"},
    "eval": {"model": "models", "compare": "models", "caption": "settings", "output": ""},
    "export": {"no_grid": "grid", "no_thumbnails": "thumbnails", "without_images": "images"},
    "overlap": {"output": ""},
    "overlap -o": {"images": "folder", "dataset": "images", "references": "", "cosine": "",
                   "page": ""},
    "pairs calibrate": {"output": ""},
    "push": {"without_images": "images"},
    "select": {"split": "", "together": "", "near": ""},
    "select --split": {"split": "shares"},
    "stats": {"summary": ""},
    "train": {"output": "run", "ray_workers": ""},
}  # fmt: skip
"""Options of another name or form than the parameter that they fill; empty if the command itself
does what they ask."""
DEFAULTS = {
    ("build", "recipe"): "chosen by the machine",
    ("eval", "recipe"): "mini, as in the library",
    ("overlap", "references"): "wanted without -o",
    ("overlap -o", "output"): "chooses the function",
}
"""Defaults that differ, and how."""
UNITS = r"\b(?:hours?|tokens|bits|cosines?|pixels|seconds|0\.\d+|[2-9]\d\d+)\b"


def options_of(words: str) -> dict[str, Any]:
    command: Any = typer.main.get_command(app)
    for word in words.split(" -")[0].split():
        command = getattr(command.commands[word], "loaded", command.commands[word])
    return {each.name: each for each in command.params}


def described(function: Any) -> dict[str, str]:
    """What a docstring says of each parameter, also by the function that it refers to."""
    args = (inspect.getdoc(function) or "").partition("Args:\n")[2].partition("\n\n")[0]
    found = dict(re.findall(r"^    (\w+): ((?:.|\n      )*)", args, re.MULTILINE))
    for name, text in found.items():
        if other := re.fullmatch(r"as (?:in|for) :func:`(\w+)`\.", text):
            found[name] = described(getattr(api, other[1]))[name]
    return found


@pytest.mark.parametrize("words", CALLS)
def test_a_command_has_the_parameters_of_its_function(words) -> None:
    function = getattr(api, CALLS[words])
    parameters, unlike = inspect.signature(function).parameters, UNLIKE.get(words, {})
    options = {k: v for k, v in options_of(words).items() if k not in OF_COMMANDS}
    filled = {unlike.get(name, name) for name in options} - {""}
    assert {*unlike} <= {*options}
    assert filled == {*parameters} - OF_PROGRAMS - OF_COMMANDS
    for name, option in options.items():
        if unlike.get(name, name) != name or (words, name) in DEFAULTS:
            continue
        given = parameters[name].default
        assert option.required == (given is inspect.Parameter.empty), name
        assert option.required or (option.default or None) == (given or None), name


@pytest.mark.parametrize("words", CALLS)
def test_the_help_has_the_units_of_the_docstring(words) -> None:
    texts = described(getattr(api, CALLS[words]))
    for name, option in options_of(words).items():
        if name in texts:
            told = (set(re.findall(UNITS, text)) for text in (option.help, texts[name]))
            assert next(told) == next(told), name
