"""Load recipe files: TOML tables with their bases merged and single keys overridden.

``base = "flism"`` starts from another recipe; ``--set score.model=...`` changes single keys.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import glit.recipes.trust as trust
from glit.errors import RecipeError, closest, cut, first_line
from glit.recipes import plugins
from glit.recipes.config import RecipeTable, build_dataclass
from glit.recipes.resources import builtin_recipes

T = TypeVar("T", bound=RecipeTable)


@contextlib.contextmanager
def naming_file(name_or_path: str | None) -> Iterator[None]:
    """Add the recipe's file name to errors inside the block.

    Raises:
        RecipeError: with the file's path before what it said, unless it names that or ``--set``.
    """
    try:
        yield
    except RecipeError as error:
        said = str(error)
        is_file = name_or_path is not None and name_or_path not in builtin_recipes()
        if not is_file or str(name_or_path) in said or said.startswith("--set"):
            raise
        raise RecipeError(f"{name_or_path}: {said.removeprefix('recipe: ')}") from error


def load_table(
    kind: type[T],
    name_or_path: str,
    *,
    known_tables: Callable[[], Sequence[str]],
    overrides: Sequence[str] = (),
) -> T:
    """One table of a recipe as its dataclass.

    Args:
        kind: the dataclass, which says the table's name.
        name_or_path, known_tables, overrides: see :func:`read_tables`.

    Raises:
        RecipeError: unknown recipe, table or key; a value of the wrong type; an override of
            another table.
    """
    name = kind.table
    with naming_file(name_or_path):
        tables = read_tables(name_or_path, known_tables=known_tables, overrides=overrides)
        command = f"glit {name}".replace("evaluate", "eval")
        refuse_other_tables(overrides, [name], reader=command, known=known_tables())
        return build_dataclass(kind, tables.get(name, {}), where=f"[{name}]")


def read_tables(
    name_or_path: str, *, known_tables: Callable[[], Sequence[str]], overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """A recipe's raw tables with its bases merged in and overrides applied; loads its plugins.

    Args:
        name_or_path: a built-in recipe's name or a TOML file's path.
        known_tables: returns the names of the tables that a recipe may hold, with plugins loaded.
        overrides: ``table.key=value`` strings; values are read as TOML, else as text.

    Raises:
        RecipeError: unknown recipe or table, or a file that is not TOML.
    """
    tables, _ = trusted_tables(name_or_path, overrides=overrides)
    plugins.load_installed()
    named = tables.pop("plugins", [])
    if not isinstance(named, list):
        raise RecipeError(f"recipe: plugins = {named!r}, want a list of modules or files (.py)")
    plugins.load(named, folder=_find(name_or_path).parent)
    known = known_tables()
    for key in tables:
        if key not in ("name", "about", *known):
            raise RecipeError(f"recipe: unknown table [{key}]; {closest(key, known)}")
        if key in known and not isinstance(tables[key], dict):
            raise RecipeError(f"recipe: {key} = {tables[key]!r}, want a table: [{key}]")
    return overridden_tables(overrides, known=known, of=tables)


def trusted_tables(
    name_or_path: str, *, overrides: Sequence[str] = (), confirmed: bool = False
) -> tuple[dict[str, Any], tuple[list[str], list[bytes]]]:
    """A recipe's tables with its bases; what of them needs trust, and the files' content.

    Args:
        name_or_path: see :func:`read_tables`.
        overrides: what these set is not asked of the file.
        confirmed: take what the file asks for.

    Raises:
        RecipeError: it asks for what nobody confirmed, or see :func:`read_tables`.
    """
    files: list[tuple[Path, bytes, dict[str, Any]]] = []
    tables = _read_with_bases(name_or_path, seen=(), files=files)
    keys = [each.partition("=")[0].strip().partition(".") for each in overrides]
    given = {(table, key) for table, _, key in keys}
    foreign = [file for file in files if not trust.is_builtin(file[0])]
    contents = [content for _, content, _ in foreign]
    contents += [
        code
        for path, _, own in foreign
        for code in plugins.files_of(own.get("plugins"), path.parent)
    ]
    wanted = [
        demand
        for _, _, own in foreign
        for demand in trust.demands(own, foreign[0][0].absolute().parent, given=given)
    ]
    if not confirmed:
        trust.refuse_untrusted(name_or_path, list(dict.fromkeys(wanted)), contents)
    return tables, (wanted, contents)


def overridden_tables(
    overrides: Sequence[str], *, known: Sequence[str], of: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Parse ``table.key=value`` strings into raw tables.

    Args:
        overrides: the strings; ``table.key.inner=value`` changes a value inside a key.
        known: names of tables.
        of: tables that are changed; they stay as they are.
    """
    tables = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in (of or {}).items()
    }
    for override in overrides:
        _apply_override(tables, override, known)
    return tables


def refuse_other_tables(
    overrides: Sequence[str], read: Sequence[str], *, reader: str, known: Sequence[str]
) -> None:
    """Refuse settings of tables that this command does not read: they would have no effect.

    Args:
        overrides: ``table.key=value`` strings.
        read: the tables that are read.
        reader: what reads them, for the message.
        known: the tables that a recipe may hold.

    Raises:
        RecipeError: names the setting.
    """
    for override in overrides:
        table = override.partition(".")[0].strip()
        if table in known and table not in read:
            raise RecipeError(
                f"--set {override!r}: {reader} does not read [{table}] (it reads {', '.join(read)})"
            )


def _read_with_bases(
    name_or_path: str, *, seen: tuple[str, ...], files: list[tuple[Path, bytes, dict[str, Any]]]
) -> dict[str, Any]:
    path = _find(name_or_path)
    if str(path) in seen:
        raise RecipeError(f"recipe {name_or_path}: its 'base' recipes form a cycle")
    try:
        content = path.read_bytes()
        raw = _beside_recipe(tomllib.loads(content.decode("utf-8")), path)
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"recipe {path}: not valid TOML ({first_line(error)})") from error
    base = raw.pop("base", None)
    files.append((path, content, raw))
    tables: dict[str, Any] = {}
    if base is not None:
        beside = path.parent / str(base)
        tables = _read_with_bases(
            str(beside) if beside.is_file() else str(base), seen=(*seen, str(path)), files=files
        )
    for key, value in raw.items():
        if key == "plugins" and isinstance(value, list):
            tables[key] = [*tables.get(key, []), *value]
        elif isinstance(value, dict):
            tables[key] = {**tables.get(key, {}), **value}
        else:
            tables[key] = value
    tables["name"] = path.stem
    return tables


def _beside_recipe(tables: dict[str, Any], recipe: Path) -> dict[str, Any]:
    """The tables with the files that they name found from the folder of their recipe."""
    folder = "" if recipe.parent == Path() else recipe.parent
    return with_files(tables, lambda path: os.path.join(folder, path))


def with_files(tables: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """The tables with the paths of the files that they name changed; addresses and names of glit's
    stay."""
    return {
        name: {key: _changed(key, value, change) for key, value in table.items()}
        if isinstance(table, Mapping)
        else table
        for name, table in tables.items()
    }


def _changed(key: str, value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, list | tuple):
        return [_changed(key, each, change) for each in value]
    if key not in trust.FILES or not isinstance(value, str) or not value or "://" in value:
        return value
    if key == "calibration" and "/" not in value and not value.endswith(".json"):
        return value  # a name of glit's
    return change(value)


def _find(name_or_path: str) -> Path:
    recipes = builtin_recipes()
    if name_or_path in recipes:
        return recipes[name_or_path]
    path = Path(name_or_path)
    if path.is_file():
        return path
    hint = closest(name_or_path, recipes)
    raise RecipeError(f"no recipe named {name_or_path!r} and no such file; {hint}")


def _apply_override(tables: dict[str, Any], override: str, known: Sequence[str]) -> None:
    dotted, equals, text = override.partition("=")
    table, dot, key = dotted.strip().partition(".")
    if not (equals and dot and key):
        raise RecipeError(f"--set {override!r}: want table.key=value, as in score.batch_size=64")
    if table not in known:
        raise RecipeError(f"--set: unknown table {table!r}; {closest(table, known)}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"--set {cut(dotted)}: no value ({first_line(error)})") from error
    values = tables.setdefault(table, {})
    key, dot, inner = key.partition(".")
    if dot and isinstance(before := values.get(key, {}), Mapping):
        values[key] = {**before, inner: value}
    else:
        values[key + dot + inner] = value
