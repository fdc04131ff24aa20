"""Find a model's files by name: mini model, path, cache, hub.

Names and pins live in ``manifests/weights.toml``. Code in a model repository is never run.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
import zipfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from glit.errors import MissingExtraError, MissingModelError, MissingPackage, WeightsError
from glit.models.files import (
    PICKLE,
    check_complete,
    inner_model,
    weight_files,
    weights_hash,
)
from glit.recipes.resources import PACKAGE, is_mini_folder, mini_model, weights_manifest
from glit.storage.hub import is_offline

_ANSWER_S = 2.0
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
_FILE_SUFFIXES = {".pt", ".pth", ".safetensors", ".bin", ".onnx"}
_CHECKPOINTS = ("best", "last")
"""Names of the checkpoints of a run of glit train; no model on the hub is taken for one."""
LOCAL = "local"
"""Revision of what the user gives by its path."""


_MOST_OF_PICKLE = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A model's local files and its identity."""

    name: str
    """The name the recipe used."""
    path: Path
    """Folder (or single file) to load from."""
    revision: str
    sha256: str
    """Hash over the weight files; what the fingerprints of the stages build on."""
    licence: str = ""

    @property
    def is_mini(self) -> bool:
        """True for one of glit's own models, which know the procedural scenes alone."""
        return is_mini_folder(self.path)

    def identity(self) -> dict[str, str]:
        """The identity for fingerprints, manifests and locks; of a path only its last part."""
        kept = asdict(self)
        kept.pop("path")
        if self.revision == LOCAL:
            kept["name"] = self.path.name
        return kept

    def described(self) -> dict[str, str]:
        """The identity, with the licence that the files state where the manifest knows none."""
        return {**self.identity(), "licence": self.licence or stated_licence(self.path)}


def stated_licence(path: Path) -> str:
    """The licence that a checkpoint or the model card in a folder states; empty where none does.

    Nothing is unpickled: ultralytics writes its licence as a text into the archive.
    """
    try:
        if path.is_dir():
            card = (path / "README.md").read_text(encoding="utf-8", errors="replace")[:10_000]
            found = re.search(r"^license:\s*([\w.+-]+)\s*$", card, re.MULTILINE)
        else:
            with zipfile.ZipFile(path) as archive:
                (name,) = [each for each in archive.namelist() if each.endswith("data.pkl")]
                with archive.open(name) as file:
                    text = file.read(_MOST_OF_PICKLE).decode("latin-1")
            found = re.search(r"\b(AGPL-3\.0|GPL-3\.0|Apache-2\.0|MIT)(?= License)", text)
    except (OSError, ValueError, zipfile.BadZipFile):
        return ""
    return found.group(1) if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsEntry:
    """A table of ``manifests/weights.toml``: of mini, inside and id it has one."""

    licence: str
    mini: str = ""
    """Name of a mini model's folder."""
    inside: str = ""
    """Path, within the package, of a file that is part of it."""
    id: str = ""
    """Hub id."""
    num_bytes: int = 0
    """Roughly the size of its weights."""
    sha256: str = ""
    """SHA-256 of the pickle that its publisher gives in place of safetensors."""
    revision: str = "main"
    """Hub commit, or version of a mini model."""


def manifest() -> dict[str, WeightsEntry]:
    """The models of ``manifests/weights.toml`` by name."""
    return _entries(weights_manifest().read_text(encoding="utf-8"))


@cache  # a build asks for it dozens of times
def _entries(text: str) -> dict[str, WeightsEntry]:
    return {name: WeightsEntry(**table) for name, table in tomllib.loads(text).items()}


def resolve(name: str, revision: str = "main", *, random_weights: bool = False) -> Resolved:
    """Find a model's files and hash its weights.

    Order: the mini models, a path that exists, the local Hugging Face cache, the hub.

    Args:
        name: name in the manifest, hub id, folder or file.
        revision: hub revision; the manifest's pin wins over ``main``.
        random_weights: accept a folder with a configuration only.

    Raises:
        MissingExtraError: a mini model that the wheel leaves out.
        MissingModelError: nothing found.
        WeightsError: the folder is incomplete, or its pickle is not the published one.
    """
    entry, path, revision = _locate(name, revision)
    if entry.id and (path is None or not _is_whole(path, entry, name)):
        path = _download(entry, revision) or path  # the hub may have what is missing here
    if path is None:
        raise _missing(name, entry, revision)
    _check(path, entry, name, random_weights=random_weights)
    if entry.id and len(path.name) == 40:
        revision = path.name
    return Resolved(
        name=name, path=path, revision=revision, sha256=weights_hash(path), licence=entry.licence
    )


def _locate(name: str, revision: str) -> tuple[WeightsEntry, Path | None, str]:
    """Return a model's entry, its path on this machine, and its revision; nothing is downloaded or
    read."""
    if not name.strip():
        raise WeightsError("a model's name is empty; is a variable of the shell unset?")
    entry = _entry(name)
    if entry.mini:
        if not (folder := mini_model(entry.mini)).is_dir():
            raise MissingExtraError(MissingPackage(
                package="glit_mini", extra="mini", needed_for=f"the model {name}"
            ))  # fmt: skip
        return entry, folder, entry.revision
    if entry.inside:
        return entry, PACKAGE / entry.inside, entry.revision
    given = os.path.expanduser(name)
    if os.path.exists(given):
        return WeightsEntry(licence=""), inner_model(Path(given).resolve()), LOCAL
    if _is_path(name):
        return WeightsEntry(licence=""), None, LOCAL
    revision = revision if revision != "main" else entry.revision
    return entry, _cached(entry.id, revision), revision


def _check(path: Path, entry: WeightsEntry, name: str, *, random_weights: bool = False) -> None:
    check_complete(path, name=name, pickle_sha256=entry.sha256, random_weights=random_weights)


def _is_whole(path: Path, entry: WeightsEntry, name: str) -> bool:
    try:
        _check(path, entry, name)
    except WeightsError:
        return False
    return True


def is_mini(name: str) -> bool:
    """True for the name of a mini model, which knows the procedural scenes alone."""
    return bool(_entry(name).mini)


def is_here(name: str) -> bool:
    """Return whether a model of the manifest can be loaded without a network."""
    return look_up(name).path is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """The state of a model, found without downloading it."""

    path: Path | None
    """Path of its files; None where it is not here, or not whole."""
    num_bytes: int
    """Size of its weights in bytes: as they lie here, else as published; 0 where that is not known.
    """
    fetch: str
    """The command that gets it from the hub, as a build would by itself; empty if the hub is not
    where it comes from."""


def look_up(name: str, revision: str = "main") -> LookedUp:
    """Look for a model as :func:`resolve` does, without downloading or hashing safetensors."""
    try:
        entry, path, revision = _locate(name, revision)
    except MissingExtraError:
        entry, path = _entry(name), None
    if path is not None and not _is_whole(path, entry, name):
        path = None
    size = sum(file.stat().st_size for file in weight_files(path)) if path else entry.num_bytes
    fetch = _fetch_from_hub(entry, revision) if entry.id else ""
    return LookedUp(path=path, num_bytes=size, fetch=fetch)


def _fetch_from_hub(entry: WeightsEntry, revision: str) -> str:
    pin = "" if revision == "main" else f" --revision {revision}"
    return f"hf download {entry.id}{pin}"


def _entry(name: str) -> WeightsEntry:
    """Return the manifest's entry for a name or a hub id; else an entry for the hub."""
    known = manifest()
    if name in known:
        return known[name]
    for entry in known.values():
        if name and name == entry.id:
            return entry
    return WeightsEntry(id=name, licence="")


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"


# -- the hub ---------------------------------------------------------------------------------------


def _cached(hub_id: str, revision: str) -> Path | None:
    """Folder of the local cache, however much of the model is in it."""
    hub = _hub()
    try:
        return Path(hub.snapshot_download(hub_id, revision=revision, local_files_only=True))
    except (hub.errors.HFValidationError, hub.errors.LocalEntryNotFoundError):
        return None


def _download(entry: WeightsEntry, revision: str) -> Path | None:
    """The folder as the hub has it, None where the hub does not answer or has no such model."""
    hub = _hub()
    if is_offline() or not _answers(hub.constants.ENDPOINT):
        return None
    files = [*_HUB_FILES, PICKLE] if entry.sha256 else _HUB_FILES
    try:
        num_bytes = entry.num_bytes or _bytes_on_hub(hub, entry.id, revision, files)
        size = f"about {_size(num_bytes)}" if num_bytes else "size unknown"
        print(
            f"glit: downloading {entry.id} ({size}) from the Hugging Face Hub; "
            "HF_HUB_OFFLINE=1 or --offline forbids it",
            file=sys.stderr,
            flush=True,
        )
        return Path(hub.snapshot_download(entry.id, revision=revision, allow_patterns=files))
    except (
        hub.errors.HfHubHTTPError,
        hub.errors.HFValidationError,
        hub.errors.LocalEntryNotFoundError,
        OSError,
    ):
        return None


def _bytes_on_hub(hub: Any, hub_id: str, revision: str, patterns: list[str]) -> int:
    """The size of a model's files there; 0 if the hub does not say.

    Raises:
        HfHubHTTPError: the hub has no such model, or none that this user may see.
    """
    import httpx

    try:
        found = hub.HfApi().model_info(hub_id, revision=revision, files_metadata=True)
    except httpx.TransportError:
        return 0
    names = {each.rfilename: each.size or 0 for each in found.siblings or ()}
    wanted = hub.utils.filter_repo_objects(list(names), allow_patterns=patterns)
    return sum(names[name] for name in wanted)


@cache
def _answers(address: str) -> bool:
    """Return whether anything answers there, whatever it says: the hub's client would ask for half
    a minute, and once more for every model."""
    import httpx

    try:
        httpx.head(address, timeout=_ANSWER_S)
    except (httpx.HTTPError, httpx.InvalidURL, OSError):
        return False
    return True


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        raise MissingExtraError(
            MissingPackage(
                package="huggingface-hub",
                extra="models",
                needed_for="a model from the Hugging Face cache",
            )
        ) from error
    return huggingface_hub


def _missing(name: str, entry: WeightsEntry, revision: str) -> MissingModelError:
    """The error for a model that is nowhere."""
    if not entry.id:
        return MissingModelError(name, reason="no such file or folder")
    if PurePath(name).name in _CHECKPOINTS:
        return MissingModelError(
            name,
            reason="no such folder; a finished run of glit train has best and last in it",
        )
    known = manifest()
    close = [] if entry in known.values() else difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    if entry not in known.values() and (
        "/" not in name or os.path.isdir(os.path.dirname(name) or name)
    ):
        reason = f"no such folder, and no model that glit or the hub (ORG/NAME) knows{hint}"
        return MissingModelError(name, reason=reason)
    hub = "HF_HUB_OFFLINE forbids a download" if is_offline() else "the hub did not answer"
    return MissingModelError(
        name,
        reason=f"not a folder, not in the Hugging Face cache, and {hub}{hint}",
        fetch=_fetch_from_hub(entry, revision),
    )


# -- paths -----------------------------------------------------------------------------------------


def _is_path(name: str) -> bool:
    """Return whether a name that is nowhere was meant as a path, not as a hub id."""
    starts = name.startswith(("/", "./", "../", "~"))
    return starts or name.count("/") > 1 or PurePath(name).suffix in _FILE_SUFFIXES
