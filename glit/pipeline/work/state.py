"""The state of a build, ``work/state.json``: what it was asked for, and what it has come to.

The driver alone writes it, and only while it holds the lock. It carries a hash of itself, so that a
flipped bit is not believed. It is kept twice, because what it says of the finished dataset stands
nowhere else: ``glit build`` goes on from the copy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glit.dataset.manifest import installed_packages
from glit.errors import UserError
from glit.inputs.source import Source
from glit.plain import MisfitError, from_plain, limited
from glit.recipes.extras import DISTRIBUTIONS
from glit.stages import flow
from glit.stages.plan import Plan, Recipe
from glit.stages.split import SplitConfig
from glit.storage.store import Store, to_json
from glit.version import __version__

STATE = "state.json"
_COPY = "state.copy.json"
_VERSION = 2
_SEAL = "sha256"
_FOLDER = re.compile(r"[a-z]+-[0-9a-f]+")
_ALWAYS = ("duckdb", "numpy", "pillow", "pyarrow", "simplejpeg", "tokenizers")
"""Packages that every build loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The request for a retry."""

    stage: str | None = None
    """Only drops of this stage; None takes all."""
    reason: str | None = None
    """Only drops for this reason; None takes all."""
    settings: tuple[str, ...] = ()
    """``table.key=value``, for what is tried again alone."""

    def wants(self, stage: str, reason: str) -> bool:
        """Return whether drops of a stage for a reason are tried again."""
        return self.stage in (None, stage) and self.reason in (None, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The record of a series of the finished dataset."""

    images: str
    """Hash over what its images were."""
    content: str
    """Hash over what was shipped of them; see :class:`glit.pipeline.work.ledger.Ledger`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNames:
    """The glob or the list file that names the images of a build; empty without one."""

    pattern: str
    list_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSettings:
    """Settings that held for a retry alone."""

    told: Mapping[str, Any]
    """For the manifest."""
    folders: Mapping[str, str]
    """By stage: where the tables are that they went into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildState:
    """The record that a build keeps of itself."""

    images: str
    """The folder or address of the images."""
    captions: str | None
    regions: str | None = None
    recipe: dict[str, Any]
    lock: Mapping[str, Any] | None = None
    """The models it was locked to, by role."""
    source: SourceNames
    folders: dict[str, str]
    """By stage: the folder of its tables."""
    num_chunks: int = limited(least=0)
    additions: int = limited(0, least=0)
    versions: tuple[tuple[str, str], ...] = ()
    """Packages and versions that wrote tables."""
    published: tuple[Published, ...] | None = None
    """The series that the dataset was made of; None where that is not known. There may be more than
    the dataset has: an addition notes itself just before it writes its manifest."""
    retry: Retry | None = None
    """The retry that has begun and is not published yet."""
    command: tuple[str, ...] = ()
    """The words of the command line that resumes it; none where they are not known."""
    retries: tuple[TriedSettings, ...] = ()
    mining: Mapping[str, int] | None = None
    """Number of pictures of the finished dataset that prohibit, constrain, allow or do not mention
    data mining; None if they were not counted."""

    def find_source(self) -> Source:
        """Return where the images are, as the build was given them."""
        names = self.source
        return Source(root=self.images, pattern=names.pattern, list_file=names.list_file)

    def __post_init__(self) -> None:
        if type(self.recipe.get("name")) is not str:
            raise MisfitError("has no name", ("recipe",))
        for stage, folder in self.folders.items():
            if not _FOLDER.fullmatch(folder):
                raise MisfitError(f"found {folder!r}, want STAGE-FINGERPRINT", ("folders", stage))


class OtherVersionError(UserError):
    """A work folder is another version's of glit."""


def read_state(work: Store) -> BuildState:
    """Return the record that a build keeps of itself in its work folder.

    Raises:
        OtherVersionError: see there.
        UserError: it is damaged.
    """
    return _read(work, STATE)


def known_state(work: Store) -> BuildState | None:
    """The same for a build, which writes it anew; None where there is none, or it is damaged.

    Raises:
        OtherVersionError: see there.
    """
    for name in (STATE, _COPY):
        try:
            return _read(work, name)
        except OtherVersionError:
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
    """Return the content of a file with its seal, the SHA-256 of the content."""
    return {**content, _SEAL: hashlib.sha256(to_json(content)).hexdigest()}


def update_state(work: Store, **changes: Any) -> None:
    """Change some of it.

    Raises:
        UserError: as :func:`read_state`.
    """
    state = dataclasses.replace(read_state(work), **changes)
    write_state(work, state)


def told_retries(plan: Plan, state: BuildState) -> list[Mapping[str, Any]]:
    """Return the manifest's entries of retries by other settings, of those whose tables are still
    used."""
    return [
        each.told
        for each in state.retries
        if all(plan.folder(name) == folder for name, folder in each.folders.items())
    ]


def _read(work: Store, name: str) -> BuildState:
    try:
        found: Any = json.loads(work.read(name))
    except ValueError as error:
        raise UserError(
            f"{work.root}/{name}: not valid JSON ({error}); run glit build again, which writes it "
            "anew and reuses the tables"
        ) from error
    content: dict[str, Any] = found if isinstance(found, dict) else {}
    is_sealed = _SEAL in content or content.get("version") == _VERSION
    content = {key: value for key, value in content.items() if key != _SEAL}
    if is_sealed and found != sealed(content):
        raise UserError(
            f"{work.root}/{name}: damaged, or changed by hand; run glit build again, which "
            "writes it anew and reuses the tables"
        )
    if not is_sealed or content.pop("version", None) != _VERSION:
        raise OtherVersionError(
            f"{work.root}: was made by another version of glit, whose notes this one does not "
            "read; use that version, or run glit build with another folder"
        )
    try:
        return from_plain(BuildState, content)
    except (MisfitError, RecursionError) as error:
        raise UserError(
            f"{work.root}/{name}: {error}; run glit build again, which writes it anew and reuses "
            "the tables"
        ) from error


def versions_of(recipe: Recipe) -> dict[str, str]:
    """Versions by package of all that shapes a dataset of this recipe, ``python`` among them.

    They follow from the recipe, not from what a process happens to hold, so a build on Ray and one
    in a single process write the same bytes.
    """
    names = {*_ALWAYS}
    if recipe.of(SplitConfig).splitter == "sentencex":
        names.add("sentencex")
    for extra in flow(recipe.tables).extras(recipe):
        names.update(DISTRIBUTIONS[extra])
    return {"python": platform.python_version(), **installed_packages(sorted(names))}


def note_versions(work: Store, recipe: Recipe) -> None:
    """Keep in the state that these versions write tables."""
    noted = read_state(work).versions
    merged = tuple(sorted({*noted, *_versions_now(recipe).items()}))
    if merged != noted:
        update_state(work, versions=merged)


def earlier_versions(work: Store, recipe: Recipe) -> dict[str, list[str]]:
    """Other versions, by package, that wrote into the work folder before those of now.

    Whether one of their tables is in the dataset is not told: a version is no part of a
    fingerprint. Of packages that the recipe of now does not use nothing is told.
    """
    now = _versions_now(recipe)
    other: dict[str, list[str]] = {}
    for name, version in read_state(work).versions:
        if name in now and version != now[name]:
            other.setdefault(name, []).append(version)
    return other


def _versions_now(recipe: Recipe) -> dict[str, str]:
    return {"glit": __version__, **versions_of(recipe)}
