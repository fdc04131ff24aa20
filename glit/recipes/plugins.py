"""Load parts of other packages: modules that add to glit's registries when they are imported.

Which ones: those of ``GLIT_PLUGINS``, those that installed packages name as entry points of
``glit.plugins``, and those that a recipe lists under ``plugins``. What was made with a part names
its plugin, with the package, its version and a hash of its source.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from glit.errors import MissingPluginError, RecipeError, first_line

VARIABLE = "GLIT_PLUGINS"
GROUP = "glit.plugins"
_PREFIX = "glit_plugin_"
"""Prefix of the names of modules that are single files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A module of somebody else's that has been loaded."""

    name: str
    """Name in ``plugins``: ``my_package.module``, or of a single file ``my_filter.py``."""
    module: str
    """The name it was imported under."""
    package: str
    """The distribution it belongs to; empty of a single file."""
    version: str
    """Version of the distribution."""
    sha256: str
    """SHA-256 of all Python files of its package, or of its single file; hex."""
    source: bytes = b""
    """The content of a single file, which other machines may not have."""

    def identity(self) -> dict[str, str]:
        """Return its identity, as fingerprints and manifests record it."""
        found = {"name": self.name, "package": self.package, "version": self.version}
        return {**{key: value for key, value in found.items() if value}, "sha256": self.sha256}

    def __reduce__(self) -> tuple[Any, ...]:
        """Load it in the process that a plan was sent to, before anything that it made."""
        return _arrive, (self.name, self.module, self.sha256, self.source)


_loaded: dict[str, Plugin] = {}
"""By name."""


def loaded() -> tuple[Plugin, ...]:
    """All plugins of this process."""
    return tuple(_loaded.values())


def load(names: Iterable[str], *, folder: Path | None = None) -> None:
    """Import plugins; one that is loaded already stays.

    Args:
        names: ``my_package.module``, or ``filter.py``: a file.
        folder: that files are relative to; the current one by default.

    Raises:
        RecipeError: there is no such module or file, or importing it fails.
    """
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise RecipeError(f"plugins: found {name!r}, want names of modules or files (.py)")
        if name.endswith(".py"):
            path = ((folder or Path()) / name).absolute()
            try:
                source = path.read_bytes()
            except OSError as error:
                raise RecipeError(f"plugins: {path}: {error.strerror or error}") from error
            _load_file(path.name, _PREFIX + path.stem, source, str(path))
        elif name not in _loaded:
            _loaded[name] = _described(name, _imported(name))


def files_of(names: Any, folder: Path) -> list[bytes]:
    """The contents of the single files that a recipe lists, of those that can be read."""
    found = []
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and name.endswith(".py"):
            with contextlib.suppress(OSError):
                found.append((folder / name).read_bytes())
    return found


def load_installed() -> None:
    """Load what ``GLIT_PLUGINS`` and the entry points of installed packages name.

    Raises: as :func:`load`.
    """
    load(each.strip() for each in os.environ.get(VARIABLE, "").split(",") if each.strip())
    load(_entry_points(tuple(sys.path)))


@functools.cache
def _entry_points(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules that packages on a module path name; reading hundreds takes a while."""
    return tuple(each.value for each in importlib.metadata.entry_points(group=GROUP))


def plugin_of(part: Any) -> Plugin | None:
    """The plugin that a class or a function comes from; None of glit's own."""
    name = getattr(part, "__module__", None) or type(part).__module__
    for plugin in _loaded.values():
        if name == plugin.module or name.partition(".")[0] == plugin.module.partition(".")[0]:
            return plugin
    return None


def require_loaded(recorded: Sequence[Any], *, wanted_by: str) -> None:
    """Refuse to go on without the plugins that something was made with.

    Args:
        recorded: what :meth:`Plugin.identity` said.
        wanted_by: for the message.

    Raises:
        MissingPluginError: names them and how to get them.
    """
    for each in missing(recorded):
        raise MissingPluginError(f"{wanted_by} was made with {described(each)}")


def missing(recorded: Sequence[Any]) -> list[dict[str, str]]:
    """The plugins that are not loaded, of those that :meth:`Plugin.identity` described."""
    return [each for each in recorded if isinstance(each, dict) and each.get("name") not in _loaded]


def described(recorded: Any) -> str:
    """A plugin that a manifest names, with how to load it, for messages."""
    if not isinstance(recorded, dict):
        return "a plugin that its manifest does not name"
    name, package = recorded.get("name"), recorded.get("package")
    of = f" of {package} {recorded.get('version', '')}".rstrip() if package else ""
    first = f"install {package} and " if package else ""
    return f"the plugin {name}{of}, which is not loaded here; {first}set {VARIABLE}={name}"


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except RecipeError:
        raise
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise RecipeError(
                f"plugins: no module {error.name!r} can be imported here; install its package, or "
                "name a file (.py) beside the recipe"
            ) from error
        raise RecipeError(f"plugin {name}: cannot be imported ({first_line(error)})") from error
    except Exception as error:
        raise RecipeError(f"plugin {name}: cannot be imported ({first_line(error)})") from error


def _load_file(name: str, module: str, source: bytes, path: str) -> None:
    """Run a single file as a module, unless it is loaded.

    Raises:
        RecipeError: another file of that name is loaded, or running it fails.
    """
    sha256 = hashlib.sha256(source).hexdigest()
    if name in _loaded:
        if _loaded[name].sha256 != sha256:
            raise RecipeError(f"plugins: another file {name} is loaded already; rename one of them")
        return
    spec = importlib.util.spec_from_loader(module, loader=None, origin=path)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    made.__file__ = path
    sys.modules[module] = made
    _loaded[name] = Plugin(
        name=name, module=module, package="", version="", sha256=sha256, source=source
    )
    try:
        exec(compile(source, path, "exec"), made.__dict__)
    except Exception as error:
        del sys.modules[module], _loaded[name]
        if isinstance(error, RecipeError):
            raise
        raise RecipeError(f"plugin {name}: cannot be run ({first_line(error)})") from error


def _described(name: str, module: ModuleType) -> Plugin:
    top = name.partition(".")[0]
    packages = importlib.metadata.packages_distributions().get(top, [])
    package = packages[0] if packages else ""
    version = importlib.metadata.version(package) if package else ""
    return Plugin(
        name=name, module=name, package=package, version=version, sha256=_hash_of(top, module)
    )


def _hash_of(top: str, module: ModuleType) -> str:
    """SHA-256 of the Python files of the top package, by their names below it."""
    package = sys.modules.get(top, module)
    folders = [Path(each) for each in getattr(package, "__path__", ())]
    files = sorted(
        (path.relative_to(folder).as_posix(), path)
        for folder in folders
        for path in folder.rglob("*.py")
    )
    if not files and package.__file__:
        files = [(Path(package.__file__).name, Path(package.__file__))]
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _arrive(name: str, module: str, sha256: str, source: bytes) -> Plugin:
    """The plugin in another process.

    Raises:
        RecipeError: it is not there, or another version of it is.
    """
    if source:
        _load_file(name, module, source, name)
    else:
        load([name])
    found = _loaded[name]
    if found.sha256 != sha256:
        raise RecipeError(
            f"plugin {name}: other files on this machine than where the build began; install the "
            "same version on all of them"
        )
    return found
