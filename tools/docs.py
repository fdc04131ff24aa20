"""Generated pages: docs/cli.md, docs/schema.md, docs/recipes.md, docs/api.md.

python -m tools.docs            write them
python -m tools.docs --check    fail if one is out of date
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer

import glit
from glit.cli.main import app
from glit.data.schema import DATASET_SCHEMA, DROPS_SCHEMA, DUPLICATES_SCHEMA
from glit.plain import LIMITS
from glit.planning.recipe import LEARN_TABLES, load_recipe
from glit.recipes.resources import builtin_recipes
from glit.stages import all_reasons, all_steps

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Made by `make docs`; edit the code instead. -->\n\n"


def pages() -> dict[str, str]:
    """Every generated page by file name."""
    return {
        "cli.md": NOTE + "# The command line\n\n" + "\n".join(_commands()),
        "schema.md": NOTE + _schema_page(),
        "recipes.md": NOTE + _recipes_page(),
        "api.md": NOTE + _api_page(),
    }


def _commands() -> Iterator[str]:
    root: Any = typer.main.get_command(app)
    yield f"{root.help}\n"
    yield from _below(root, "glit")


def _below(group: Any, prefix: str) -> Iterator[str]:
    for name, command in group.commands.items():
        command = getattr(command, "loaded", command)
        if hasattr(command, "commands"):
            yield from _below(command, f"{prefix} {name}")
        else:
            yield from _command(command, f"{prefix} {name}")


def _command(command: Any, name: str) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *(str(p.name).upper() for p in arguments)])
    yield f"## `{usage}`\n\n{(command.help or '').strip()}\n"
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    rows = [(f"`{str(p.name).upper()}`", p.help or "", "") for p in arguments]
    rows += [(f"`{', '.join(p.opts)}`", p.help or "", _default(p)) for p in options]
    if rows:
        yield "| | meaning | default |\n|---|---|---|"
        yield "\n".join(f"| {a} | {b} | {c} |" for a, b, c in rows) + "\n"


def _default(option: Any) -> str:
    value = option.default
    if option.required:
        return "required"
    return "" if value in (None, (), [], False, "") or callable(value) else f"`{value}`"


def _schema_page() -> str:
    parts = ["# Columns", "", "One row per image in `data/train-*.parquet`:", ""]
    parts += _columns(DATASET_SCHEMA)
    parts += ["", "`drops.parquet`:", "", *_columns(DROPS_SCHEMA)]
    parts += ["", "`duplicates.parquet`:", "", *_columns(DUPLICATES_SCHEMA)]
    parts += ["", "## Reasons for a drop", "", "| reason | meaning |", "|---|---|"]
    parts += [f"| `{reason}` | {meaning} |" for reason, meaning in all_reasons().items()]
    return "\n".join(parts) + "\n"


def _columns(schema: pa.Schema) -> list[str]:
    kinds = [str(field.type).replace("list<item: ", "list<") for field in schema]
    rows = [f"| `{name}` | `{kind}` |" for name, kind in zip(schema.names, kinds, strict=True)]
    return ["| column | Arrow type |", "|---|---|", *rows]


def _recipes_page() -> str:
    parts = ["# Recipes", "", "| recipe | what it is |", "|---|---|"]
    parts += [f"| `{name}` | {load_recipe(name).about} |" for name in builtin_recipes()]
    for step in all_steps():
        parts += ["", *_table(step.name, step.config)]
    for name, where in LEARN_TABLES.items():
        module, _, class_name = where.partition(":")
        kind = getattr(__import__(module, fromlist=[class_name]), class_name)
        parts += ["", *_table(name, kind)]
    return "\n".join(parts) + "\n"


def _table(name: str, kind: type) -> Iterator[str]:
    """A table of recipes, and what its choices add to it."""
    yield from (f"## `[{name}]`", "", (kind.__doc__ or "").strip().splitlines()[0], "")
    yield from _fields(kind)
    choice = getattr(kind, "choice", None)
    if choice is None:
        return
    for value, options in choice.options().items():
        if options is not None and any(f.init for f in dataclasses.fields(options)):
            yield from ("", f'With `{choice.key} = "{value}"` also:', "", *_fields(options))


def _fields(kind: Any) -> list[str]:
    choice = getattr(kind, "choice", None)
    documented = _field_docs(kind)
    rows = ["| key | default | meaning |", "|---|---|---|"]
    fields = [f for f in dataclasses.fields(kind) if f.init and f.name != "options"]
    for field in sorted(fields, key=lambda f: f.name != getattr(choice, "key", "")):
        value = field.default
        shown = "required" if value is dataclasses.MISSING else f"`{value!r}`"
        if limits := field.metadata.get(LIMITS):
            shown += f" ({limits})"
        rows.append(f"| `{field.name}` | {shown} | {documented.get(field.name, '')} |")
    return rows


def _field_docs(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass and of those it builds on."""
    found: dict[str, str] = {}
    for base in reversed([each for each in kind.__mro__ if dataclasses.is_dataclass(each)]):
        found |= _own_field_docs(base)
    return found


def _own_field_docs(kind: type) -> dict[str, str]:
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split()).replace("|", "\\|")
    return found


def _api_page() -> str:
    parts = [
        "# Python names",
        "",
        "What `import glit` offers; [glit from Python](library.md) shows it in use.",
    ]
    for name in glit.__all__:
        parts += ["", *_name(name, getattr(glit, name))]
    return "\n".join(parts) + "\n"


def _name(name: str, thing: Any) -> Iterator[str]:
    """A function's signature and docstring; of a class, its fields, properties and methods too."""
    if not callable(thing):
        yield f"## `{name}`"
        return
    yield from (f"## `{name}`", "", *_documented(thing))
    if inspect.isclass(thing):
        documented = _field_docs(thing)
        if documented:
            yield from ("", "| field | meaning |", "|---|---|")
            yield from (f"| `{key}` | {text} |" for key, text in documented.items())
        for key, each in vars(thing).items():
            function = each.fget if isinstance(each, property) else each
            if not key.startswith("_") and inspect.isfunction(function) and function.__doc__:
                call = "" if isinstance(each, property) else "(…)"
                yield from ("", f"### `{name}.{key}{call}`", "", *_documented(function))


def _documented(thing: Any) -> Iterator[str]:
    if inspect.isfunction(thing):
        yield from ("```python", f"{thing.__name__}{_signature(thing)}", "```", "")
    if not (inspect.isclass(thing) and (thing.__doc__ or "").startswith(f"{thing.__name__}(")):
        yield "```text\n" + (inspect.getdoc(thing) or "") + "\n```"


def _signature(function: Any) -> str:
    """One parameter a line, where there are several."""
    signature = inspect.signature(function)
    parts = [_parameter(each) for each in signature.parameters.values() if each.name != "self"]
    named = [each.kind is each.KEYWORD_ONLY for each in signature.parameters.values()]
    if any(named) and not any(part.startswith("*") for part in parts):
        parts.insert(named.index(True) - ("self" in signature.parameters), "*")
    back = f" -> {signature.return_annotation}"
    if len(parts) < 3:
        return f"({', '.join(parts)}){back}"
    lines = "".join(f"    {part},\n" for part in parts)
    return f"(\n{lines}){back}"


def _parameter(each: inspect.Parameter) -> str:
    default = "" if each.default is each.empty else f" = {each.default!r}"
    star = "*" if each.kind is each.VAR_POSITIONAL else ""
    return f"{star}{each.name}: {each.annotation}{default}"


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
