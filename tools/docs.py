"""The generated documentation: docs/cli.md, docs/recipes.md, and marked parts of other pages.

python -m tools.docs            write them
python -m tools.docs --check    fail if one is out of date

A part stands between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->`` in a page written by hand.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
import tomllib
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import typer

from glit.cli.main import app
from glit.data.schema import (
    ATTACHED,
    CORRECTED,
    DATASET_SCHEMA,
    DROPS_SCHEMA,
    ORIGIN,
    WITH_DISTANCE,
    Columns,
)
from glit.errors import GlitError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.tasks import TASKS
from glit.inputs.published import FORMATS, RegionFormat, measured
from glit.pipeline.planning.recipe import LEARN_TABLES
from glit.plain import LIMITS
from glit.recipes.resources import builtin_recipes
from glit.stages import all_reasons, all_steps
from glit.training.config import TrainConfig
from tools.docs_api import api, field_docs
from tools.format_rows import CAPTIONS, REGIONS

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Made by `make docs`; edit the code instead. -->\n\n"
COMMON, LONG = 3, 120
"""An option that so many commands share is explained once, above them; a long one if two do."""
HIDDEN_RECIPES = {"sample"}
"""Recipes that a command uses and nobody chooses."""


def pages() -> dict[str, str]:
    """Every page with generated text, by file name."""
    whole = {
        "cli.md": NOTE + _linked("\n".join(_commands())),
        "recipes.md": NOTE + _linked("\n".join(_recipes())) + "\n",
    }
    return whole | {page: _filled(page, parts) for page, parts in PARTS.items()}


def _filled(page: str, parts: dict[str, Callable[[], Iterable[str]]]) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, lines in parts.items():
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"{page}: no part {name}"
        text = before + begin + "\n" + _linked("\n".join(lines()).strip()) + "\n\n" + end + after
    return text


def _linked(text: str) -> str:
    """The pages that docstrings name, as links.

    >>> _linked("described in docs/pairs.md")
    'described in [pairs](pairs.md)'
    """
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", text)


# the command line


class Found(NamedTuple):
    """A command with its words."""

    words: str
    command: Any
    panel: str


def _commands() -> Iterator[str]:
    root: Any = typer.main.get_command(app)
    found = list(_below(root, "glit", ""))
    counts = Counter(_option(each) for one in found for each in _options(one.command))
    common = {
        line for line, count in counts.items()
        if "(required" not in line and (count >= COMMON or (count > 1 and len(line) > LONG))
    }  # fmt: skip
    yield f"# The command line\n\n{root.help}\n\n`--help` after a command prints its options."
    yield "\n## Options of several commands\n"
    yield from sorted(common)
    panels = list(dict.fromkeys(each.panel for each in found))
    for panel in panels:
        yield f"\n## {panel or 'Commands'}"
        for each in found:
            if each.panel == panel:
                yield from _command(each, common)


def _below(group: Any, prefix: str, panel: str) -> Iterator[Found]:
    for name, command in group.commands.items():
        if getattr(command, "hidden", False):
            continue
        own = getattr(command, "rich_help_panel", None)
        own = own if isinstance(own, str) else panel
        if hasattr(command, "commands"):
            yield Found(f"{prefix} {name}", command, own)
            yield from _below(command, f"{prefix} {name}", own)
        else:
            yield Found(f"{prefix} {name}", command, own)


def _options(command: Any) -> list[Any]:
    return [
        each for each in command.params
        if each.param_type_name == "option" and each.name != "help" and not each.hidden
    ]  # fmt: skip


def _command(found: Found, common: set[str]) -> Iterator[str]:
    arguments = [p for p in found.command.params if p.param_type_name == "argument"]
    names = (p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments)
    usage = " ".join([found.words, *names])
    yield f"\n### `{usage}`\n\n{_listed(_plain(found.command.help).strip())}\n"
    yield from (
        f"- `{str(p.name).upper()}`: {_plain(p.help)}"
        for p in arguments if p.help and "The dataset's folder" not in p.help
    )  # fmt: skip
    shared = []
    for option in _options(found.command):
        line = _option(option)
        if line in common:
            shared.append(f"`{option.opts[-1]}`")
        else:
            yield line
    if shared:
        yield f"- Also {', '.join(shared)}."


def _option(option: Any) -> str:
    names = ", ".join(option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(option.secondary_opts)
    names += f" {option.metavar}" if option.metavar else ""
    return f"- `{names}`{_default(option)}: {_plain(option.help or '')}"


def _default(option: Any) -> str:
    """The default of an option, and its choices; nothing for a flag or an option without one."""
    told = []
    annotation = option.type_descriptor.annotation
    if typing.get_origin(annotation) is typing.Literal:
        told.append(" or ".join(f"`{each}`" for each in typing.get_args(annotation)))
    value = getattr(option.default, "value", option.default)
    if option.required:
        told.append("required")
    elif not (option.is_flag or value is None or value in ([], (), "") or callable(value)):
        told.append(f"default `{value}`")
    return f" ({'; '.join(told)})" if told else ""


def _listed(text: str) -> str:
    """A help text whose lines after a ``\\b`` stay as they are."""
    return re.sub(r"\x08\n(.*?)(?=\n\n|$)", r"```text\n\1\n```", text, flags=re.DOTALL)


def _plain(text: str | None) -> str:
    r"""A help text in Markdown: Rich's escaped brackets are brackets.

    >>> _plain(r"the table \[propose]")
    'the table [propose]'
    """
    return (text or "").replace(r"\[", "[")


# recipes


class Key(NamedTuple):
    """A key of a table."""

    name: str
    default: str
    meaning: str

    def __str__(self) -> str:
        return f"- `{self.name}` ({self.default}): {self.meaning}".rstrip(": ")


def _recipes() -> Iterator[str]:
    yield "# Recipes and their keys"
    yield (
        "\nA recipe is a TOML file with a table for every stage. `-r NAME` takes a built-in one,"
        " `-r FILE` your own; `--set TABLE.KEY=VALUE` changes a key. A recipe of your own names"
        ' another with `base = "flism"` and has the keys that differ.'
    )
    build, learn = [], []
    for name, path in builtin_recipes().items():
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        only_learns = tables.keys() & {*LEARN_TABLES} and not tables.keys() & {"base", "caption"}
        if name not in HIDDEN_RECIPES:
            (learn if only_learns else build).append(f"`{name}`")
    yield f"\n- For a build: {', '.join(build)} ([which one](choose-a-recipe.md))."
    yield f"- For training: {', '.join(learn)} ([which one](objectives.md#all-objectives))."
    tables = list(_tables())
    counts = Counter(key for _, _, keys in tables for key in set(keys))
    shared = {key for key, count in counts.items() if count > 1}
    yield "\n## Keys of several tables\n"
    yield from map(
        str, dict.fromkeys(key for _, _, keys in tables for key in keys if key in shared)
    )
    seen: dict[str, str] = {}
    for name, kind, keys in tables:
        yield f"\n## `[{name}]`\n\n{(kind.__doc__ or '').strip().splitlines()[0]}\n"
        yield from (str(key) for key in keys if key not in shared)
        if common := [f"`{key.name}`" for key in keys if key in shared]:
            yield f"- [Also](#keys-of-several-tables) {', '.join(common)}."
        for wanted, told in _choices(kind):
            earlier = seen.setdefault(wanted + told, name)
            yield f"\n{wanted}:\n\n{told}" if earlier == name else f"\n{wanted}: as `[{earlier}]`."


def _tables() -> Iterator[tuple[str, Any, list[Key]]]:
    for step in all_steps():
        yield step.name, step.config, _keys(step.config)
    for kind in (TrainConfig, EvaluateConfig):
        yield kind.table, kind, _keys(kind)


def _choices(kind: Any) -> Iterator[tuple[str, str]]:
    """Values of a table's choice and the keys that they add, each key once."""
    choice = getattr(kind, "choice", None)
    if choice is None:
        return
    values: dict[Key, list[str]] = {}
    for value, options in choice.options().items():
        for key in _keys(options) if options is not None else ():
            values.setdefault(key, []).append(value)
    groups: dict[tuple[str, ...], list[Key]] = {}
    for key, names in values.items():
        groups.setdefault(tuple(names), []).append(key)
    for names, keys in groups.items():
        wanted = " or ".join(f'`"{name}"`' for name in names)
        yield f"With `{choice.key}` = {wanted}", "\n".join(map(str, keys))


def _keys(kind: Any) -> list[Key]:
    choice = getattr(kind, "choice", None)
    documented = field_docs(kind)
    fields = [f for f in dataclasses.fields(kind) if f.init and f.name != "options"]
    keys = []
    for field in sorted(fields, key=lambda f: f.name != getattr(choice, "key", "")):
        value = field.default
        shown = "required" if value is dataclasses.MISSING else f"`{_toml(value)}`"
        if limits := field.metadata.get(LIMITS):
            shown += f"; {limits}"
        keys.append(Key(field.name, shown, documented.get(field.name, "").replace("``", "`")))
    return keys


def _toml(value: Any) -> str:
    """A default as a recipe writes it.

    >>> _toml(("a", 1)), _toml(False), _toml("")
    ('["a", 1]', 'false', '""')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


# parts of pages


def _columns() -> Iterator[str]:
    yield "Of every dataset, in `data/train-*.parquet`:\n"
    yield from _column_lines([(field.name, field.type) for field in DATASET_SCHEMA])
    yield "\nOf some datasets, after those:\n"
    further: dict[str, tuple[pa.DataType, list[str]]] = {}
    for step in all_steps():
        for each in [step, *step.__subclasses__()]:
            for name, kind in getattr(each, "dataset_columns", ()):
                makers = further.setdefault(name, (kind, []))[1]
                if step.name not in makers:
                    makers.append(step.name)
    for name, (kind, makers) in further.items():
        stages = " or ".join(f"`[{maker}]`" for maker in makers)
        yield f"- `{name}`, of {stages}: `{_type(kind)}`"
    added = {"pairs apply": CORRECTED, "merge": (ORIGIN,), "attach": (ATTACHED,)}
    for command, columns in added.items():
        for name, kind in columns:
            yield f"- `{name}`, of `glit {command}`: `{_type(kind)}`"
    yield "\n`drops.parquet`:\n"
    yield from _column_lines([(field.name, field.type) for field in DROPS_SCHEMA])
    yield "\n`duplicates.parquet` (`distance` only after `glit select --distinct`):\n"
    yield from _column_lines([(field.name, field.type) for field in WITH_DISTANCE])


def _column_lines(columns: Columns | list[Any]) -> Iterator[str]:
    yield from (f"- `{name}`: `{_type(kind)}`" for name, kind in columns)


def _type(kind: pa.DataType) -> str:
    return str(kind).replace("list<item: ", "list<")


TO_DO = {
    "unreadable": "Check the file and its permissions, then `glit retry`.",
    "unsupported_format": "HEIC needs the extra `heif`, JPEG XL `jxl`; convert RAW to JPEG or PNG.",
    "too_large": "`glit retry --reason too_large --set ingest.max_pixels=N`",
    "too_small": "`glit retry --reason too_small --set ingest.min_side=N`",
    "no_caption": "Add a row for it; paths are relative to the image folder.",
    "ambiguous_caption": "Leave one caption, or give them kinds.",
    "empty_caption": "`glit retry` asks the captioner again.",
    "refusal": "`glit retry`, or another captioner.",
    "garbled_caption": "`glit retry` asks the captioner again.",
    "looping": "`glit retry`, or `caption.repetition_penalty`.",
    "captioner_error": "Read the message; then `glit retry`.",
    "model_error": "Read the message; then `glit retry`.",
    "no_region": "`glit retry --reason no_region --set propose.min_area=N`, or add the grid.",
    "mining_prohibited": "`glit retry --reason mining_prohibited --set 'rights.drop=[]'`",
    "ai_generated": "`glit retry --reason ai_generated --set 'rights.drop=[]'`",
    "no_licence": "`glit retry --reason no_licence --set 'rights.drop=[]'`",
    "low_quality": "`glit retry --reason low_quality --set quality.KEY=N`",
}
"""What a user can do about a drop, where something can be done."""


def _reasons() -> Iterator[str]:
    makers = {reason: step.name for step in all_steps() for reason in step.reasons}
    yield "| reason | what happened | what you can do |\n|---|---|---|"
    for reason, meaning in all_reasons().items():
        stage = f" (stage `{makers[reason]}`)" if reason in makers else ""
        yield f"| `{reason}` | {meaning}{stage} | {TO_DO.get(reason, '')} |"


def _tasks() -> Iterator[str]:
    yield "| task | measures | as in |\n|---|---|---|"
    yield from (f"| `{name}` | {task.about} | {task.source} |" for name, task in TASKS.items())


def _caption_formats() -> Iterator[str]:
    yield "| `--format` | give | images (`--images`) | `--split` |\n|---|---|---|---|"
    assert [*CAPTIONS] == measured(), "the table of captions is not whole"
    for name, rows in CAPTIONS.items():
        for cells in rows:
            yield f"| `{name}` | {' | '.join(cells)} |"


def _region_formats() -> Iterator[str]:
    yield "| `--format` | give it | its boxes get |\n|---|---|---|"
    with_boxes = [name for name, form in FORMATS.items() if isinstance(form, RegionFormat)]
    assert [*REGIONS] == with_boxes, "the table of boxes is not whole"
    for name, (files, texts) in REGIONS.items():
        yield f"| `{name}` | {files} | {texts} |"


EXIT_CODES = {
    0: "The command did what it was asked.",
    1: "The run failed; or a check found something: `verify` a breach, `doctor` a build that would"
    " fail, `view A B` a difference, `overlap` an image of the list, `audit` an error.",
    2: "The command, the recipe or the input is wrong, and you can fix it; also a missing package"
    " or model.",
    130: "Ctrl-C, `--max-hours` or `--max-tokens` stopped the command. Run it again; `glit train`"
    " with `--resume`.",
    143: "SIGTERM (Slurm, Kubernetes, torchrun) or a closed terminal stopped it. The same command"
    " resumes.",
}
_SIGNALLED = {0, 143}
"""Codes that no class of errors has."""


def _exit_codes() -> Iterator[str]:
    classes: dict[int, list[str]] = {}
    for kind in _errors(GlitError):
        if kind.__module__.startswith("glit."):
            classes.setdefault(kind.exit_code, []).append(f"`{kind.__name__}`")
    assert EXIT_CODES.keys() == classes.keys() | _SIGNALLED, "the table of exit codes is not whole"
    yield "| code | meaning | errors in Python |\n|---:|---|---|"
    for code, meaning in EXIT_CODES.items():
        yield f"| {code} | {meaning} | {', '.join(sorted(classes.get(code, [])))} |"


def _errors(kind: type[GlitError]) -> Iterator[type[GlitError]]:
    if kind.__module__ == "glit.errors":
        yield kind
    for each in kind.__subclasses__():
        yield from _errors(each)


PARTS: dict[str, dict[str, Callable[[], Iterable[str]]]] = {
    "data-format.md": {"columns": _columns},
    "evaluation.md": {"tasks": _tasks, "formats": _caption_formats},
    "library.md": {"names": api},
    "regions.md": {"formats": _region_formats},
    "troubleshooting.md": {"exit codes": _exit_codes, "reasons": _reasons},
}
"""Generated parts by page."""


def main() -> None:
    """Write the pages, or compare them with what is there."""
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif before != text:
            stale.append(name)
            sys.stdout.writelines(
                difflib.unified_diff(
                    before.splitlines(keepends=True), text.splitlines(keepends=True), name, "code"
                )
            )
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}; run make docs")


if __name__ == "__main__":
    main()
