"""The state of a build, ``work/state.json``: what it was asked for, and what it has come to.

The driver alone writes it, and only while it holds the lock. It carries a hash of itself, so that a
flipped bit is not believed. It is kept twice, because what it says of the finished dataset stands
nowhere else: ``glit build`` goes on from the copy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from glit.errors import UserError
from glit.stages.plan import Plan
from glit.storage.store import Store, to_json

STATE = "state.json"
_COPY = "state.copy.json"
_VERSION = 2
_SEAL = "sha256"
_WANTED = {"images", "captions", "recipe", "source", "folders", "num_chunks"}
"""What every state has told of since glit kept one."""
_FOLDER = re.compile(r"[a-z]+-[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What a retry was asked for."""

    stage: str | None = None
    """Only drops of this stage; None takes all."""
    reason: str | None = None
    """Only drops for this reason; None takes all."""
    settings: tuple[str, ...] = ()
    """``table.key=value``, for what is tried again alone."""

    def wants(self, stage: str, row: Mapping[str, Any]) -> bool:
        """Whether a row of a stage's table is done again."""
        drop = row.get("drop")
        return drop is not None and self.wants_reason(stage, drop["reason"])

    def wants_reason(self, stage: str, reason: str) -> bool:
        """Whether drops of a stage for a reason are tried again."""
        return self.stage in (None, stage) and self.reason in (None, reason)


KEEP_ALL = Retry(reason="")
"""Tries nothing again: tables that a retry moved aside come back as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Of a series of the finished dataset."""

    images: str
    """Hash over what its images were."""
    content: str
    """Hash over what was shipped of them; see :class:`glit.pipeline.ledger.Ledger`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildState:
    """What a build notes of itself."""

    images: str
    """The folder or address of the images."""
    captions: str | None
    recipe: dict[str, Any]
    lock: Mapping[str, Any] | None = None
    """The models it was locked to, by role."""
    source: dict[str, str]
    """The glob or the list file that names the images."""
    folders: dict[str, str]
    """By stage: the folder of its tables."""
    num_chunks: int
    additions: int = 0
    versions: tuple[tuple[str, str], ...] = ()
    """Packages and versions that wrote tables."""
    published: tuple[Published, ...] | None = None
    """What the dataset was made of, by series; None where that is not known. There may be more
    than the dataset has: an addition notes itself just before it writes its manifest."""
    retry: Retry | None = None
    """The retry that has begun and is not published yet."""
    command: tuple[str, ...] = ()
    """The words of the command line that resumes it; none where they are not known."""
    retries: tuple[dict[str, Any], ...] = ()
    """Settings that held for retries alone: ``told``, for the manifest, and the ``folders`` whose
    tables they went into."""


class UnreadNotesError(UserError):
    """A work folder tells what its dataset was made of in files that this glit does not read."""


def read_state(work: Store) -> BuildState:
    """What a build noted of itself in its work folder.

    Raises:
        UserError: it is damaged, or of a glit that noted other things.
    """
    return _read(work, STATE)


def known_state(work: Store) -> BuildState | None:
    """The same for a build, which writes it anew; None where there is none, or it is damaged.

    Raises:
        UnreadNotesError: see there.
    """
    for name in (STATE, _COPY):
        try:
            return _read(work, name)
        except UnreadNotesError:
            raise
        except (UserError, FileNotFoundError):
            continue
    return None


def write_state(work: Store, state: BuildState) -> None:
    """Write it and its copy."""
    data = to_json(sealed({"version": _VERSION, **dataclasses.asdict(state)}))
    for name in (_COPY, STATE):
        work.write(name, data)


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a file holds: its content, and the SHA-256 of that."""
    return {**content, _SEAL: hashlib.sha256(to_json(content)).hexdigest()}


def update_state(work: Store, **changes: Any) -> None:
    """Change some of it.

    Raises:
        UserError: as :func:`read_state`.
    """
    state = dataclasses.replace(read_state(work), **changes)
    write_state(work, state)


def told_retries(plan: Plan, state: BuildState) -> list[dict[str, Any]]:
    """What the manifest says of retries by other settings, of those whose tables are still used."""
    return [
        each["told"]
        for each in state.retries
        if all(plan.folder(name) == folder for name, folder in each["folders"].items())
    ]


def other_version(work: Store) -> UserError:
    """What is said of a work folder that this glit did not write."""
    return UserError(
        f"{work.root}: was made by another version of glit; run glit build again, which reuses "
        "what is still valid"
    )


def _read(work: Store, name: str) -> BuildState:
    try:
        found: Any = json.loads(work.read(name))
    except ValueError as error:
        raise UserError(
            f"{work.root}/{name}: not valid JSON ({error}); run glit build again, which writes it "
            "anew and reuses the tables"
        ) from error
    if isinstance(found, dict) and (_SEAL in found or found.get("version") == _VERSION):
        content = {key: value for key, value in found.items() if key != _SEAL}
        if found != sealed(content):
            raise UserError(
                f"{work.root}/{name}: damaged, or changed by hand; run glit build again, which "
                "writes it anew and reuses the tables"
            )
    if not isinstance(found, dict) or not found.keys() >= _WANTED:
        raise other_version(work)
    if isinstance(found["recipe"], dict) and "name" not in found["recipe"]:
        raise other_version(work)
    if found.get("version") != _VERSION:
        raise UnreadNotesError(
            f"{work.root}: was made by another version of glit, whose notes this one does not "
            "read; use that version, or run glit build with another folder"
        )
    known = {key: found[key] for key in found.keys() & _AS.keys()}
    for key, value in known.items():
        try:
            known[key] = _AS[key](value)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise UserError(
                f"{work.root}/{name}: {key} = {json.dumps(value)[:60]} is nothing that glit writes "
                "there; run glit build again, which writes it anew and reuses the tables"
            ) from error
    return BuildState(**known)


def _of(*kinds: type) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(value)
        return value

    return checked


def _count(value: int) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _recipe(value: dict[str, Any]) -> dict[str, Any]:
    _of(str)(value["name"])
    return value


def _source(value: dict[str, str]) -> dict[str, str]:
    if value.keys() != {"pattern", "list_file"}:
        raise ValueError(value)
    return {name: _of(str)(each) for name, each in value.items()}


def _folders(value: dict[str, str]) -> dict[str, str]:
    if not all(_FOLDER.fullmatch(folder) for folder in value.values()):
        raise ValueError(value)
    return value


def _published(value: list[dict[str, str]] | None) -> tuple[Published, ...] | None:
    return None if value is None else tuple(Published(**each) for each in value)


def _retry(value: dict[str, Any] | None) -> Retry | None:
    return None if value is None else Retry(**{**value, "settings": tuple(value["settings"])})


def _retries(value: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    for each in value:
        _ = each["told"], dict(each["folders"])
    return tuple(value)


def _versions(value: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((package, version) for package, version in value)


_AS: dict[str, Callable[[Any], Any]] = {
    "images": _of(str),
    "captions": _of(str, type(None)),
    "recipe": _recipe,
    "lock": _of(dict, type(None)),
    "source": _source,
    "folders": _folders,
    "num_chunks": _count,
    "additions": _count,
    "versions": _versions,
    "published": _published,
    "retry": _retry,
    "command": lambda words: tuple(map(_of(str), words)),
    "retries": _retries,
}
"""What becomes of a value of the file; raises where glit does not write such a one."""
