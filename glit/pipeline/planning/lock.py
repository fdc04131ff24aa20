"""A lock: which models a recipe was built with, to the commit and the hash; no path in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glit.errors import UserError, WeightsError
from glit.models.weights import Resolved

_FORMAT = "glit-lock"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The identity of every model by its role, as a manifest has it."""

    where: str
    """Name of the lock in messages: the file it was read from."""
    models: Mapping[str, Mapping[str, str]]

    def revision(self, role: str, name: str) -> str | None:
        """The hub commit to take for a model, None where the lock has none for it."""
        locked = self.models.get(role, {})
        commit = locked.get("revision", "")
        return commit if locked.get("name") == name and len(commit) == 40 else None

    def check(self, models: Mapping[str, Resolved]) -> None:
        """Refuse models whose files are not the locked ones, by their SHA-256; where they lie does
        not matter. Roles that only the lock has are passed over.

        Raises:
            WeightsError: every role that differs.
        """
        faults = [
            f"{role}: found {_described(found)}, locked is {_described(self.models.get(role))}"
            for role, found in ((role, model.identity()) for role, model in models.items())
            if found["sha256"] != self.models.get(role, {}).get("sha256")
        ]
        if faults:
            raise WeightsError(
                f"{self.where}: {'; '.join(faults)}. Get the locked models, or make a new lock "
                "with glit lock"
            )


def _described(model: Mapping[str, str] | None) -> str:
    if model is None:
        return "none"
    name, revision, sha256 = (model.get(k, "unknown") for k in ("name", "revision", "sha256"))
    return f"{name!r} at {revision[:12]} with sha256 {sha256[:12]}"


def lock_text(recipe_name: str, models: Mapping[str, Resolved]) -> str:
    """The file's content: the same models give the same bytes."""
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "recipe": recipe_name,
        "models": {role: model.identity() for role, model in models.items()},
    }
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def lock_path(recipe: str) -> Path:
    """Return where a recipe's lock lies: beside its file, or in this folder if it is built in."""
    path = Path(recipe)
    folder = path.parent if path.is_file() else Path()
    return folder / f"{path.stem}.lock.json"


def read_lock(path: Path) -> Lock:
    """The lock in a file.

    Raises:
        UserError: there is none, or it is not what glit lock writes.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); make one with glit lock RECIPE"
        ) from error
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error})") from error
    known = isinstance(content, dict) and content.get("format") == _FORMAT
    if not known or content.get("version") != _VERSION or not _is_models(content.get("models")):
        raise UserError(
            f"{path}: not a lock that this glit reads (version {_VERSION}); make one with "
            "glit lock RECIPE"
        )
    return Lock(where=str(path), models=content["models"])


def _is_models(found: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(model, dict) and all(isinstance(value, str) for value in model.values())
        for model in found.values()
    )
