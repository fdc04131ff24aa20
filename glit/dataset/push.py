"""Upload a finished dataset to a dataset repository of the Hugging Face Hub.

All bytes are uploaded before the first commit. The manifest is committed last, as in a folder: a
repository with a manifest holds a complete dataset. Up to ``_FILES_A_COMMIT`` files are one commit;
readers see all of it or what was there before. Data files of an earlier state go with the last.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glit.data.data_files import series_of_file
from glit.dataset.card import LICENCE_WARNING, shown_pictures
from glit.dataset.croissant import CROISSANT, licensed
from glit.dataset.manifest import MANIFEST, read_manifest
from glit.dataset.verify import check_files
from glit.errors import (
    DatasetError,
    InputError,
    MissingExtraError,
    MissingPackage,
    StorageError,
    UserError,
    first_line,
)
from glit.runtime.progress import StageProgress
from glit.storage.hub import endpoint, hub_fault, is_offline, quiet_client
from glit.storage.store import TEMPORARY_MARK, Store

_CARD, _PICTURES = "README.md", "](pictures/"
_FILES_A_COMMIT = 200
_FILES_AT_ONCE = 5
_SIGNED = re.compile(r"\?\S+")
"""The query of an address, which can hold a signature."""
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_LICENCE_LINES = re.compile(r"^licen[sc]e:[^\n]*\n(?:[ \t]*-[^\n]*\n)*", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """Result of :func:`push`: the dataset on the Hub."""

    address: str
    """Under which glit reads it: ``hf://datasets/OWNER/NAME``."""
    url: str
    num_files: int
    num_uploaded: int
    """Number of these that were not there yet."""
    private: bool


def push(
    dataset: str,
    repository: str,
    told: StageProgress,
    *,
    private: bool = False,
    licence: str = "",
    pictures: Callable[[], Mapping[str, bytes]] = dict,
) -> Pushed:
    """The work of :func:`glit.api.push`.

    Args:
        dataset: the folder; ``repository``, ``told``, ``private`` and ``licence`` are as there.
        pictures: gives the pictures that the card shows, by their path in the repository; asked
            once the dataset has been checked, unless the card shows some already.
    """
    api = _open_hub(repository)
    if "://" in dataset:
        raise UserError(f"{dataset}: an address; want the folder of a finished dataset")
    folder = Store(dataset)
    manifest = read_manifest(folder)
    files = _files_of(Path(folder.full("")), manifest.files)
    card, named = _card(Path(folder.full(_CARD)), licence)
    told.begin("files", total=len(manifest.files), done=0, drops=False)
    for breach in check_files(folder, manifest, told):
        raise DatasetError(f"{dataset}: not uploaded, as it is damaged: {breach}")
    own = (_CARD, MANIFEST)  # first, which says whose the rest is, and last
    rest = {name: file for name, file in files.items() if name not in own}
    if _PICTURES not in card:
        drawn = pictures()
        paired = manifest.recipe.has_regions
        card, rest = _with_pictures(card, drawn, paired=paired), {**rest, **drawn}
    if CROISSANT in rest:
        rest[CROISSANT] = licensed(folder.read(CROISSANT), named)
    files = {_CARD: card.encode(), **rest, MANIFEST: folder.read(MANIFEST)}
    where = f"hf://datasets/{repository}"
    with _hub_errors(where), _no_progress_bars():
        is_private = _make_repository(api, repository, private=private)
        there = _files_there(api, repository)
        stale = _stale(where, there, files)
        known = {name: each.sha256 for name, each in manifest.files.items()}
        missing = [n for n in files if not _is_there(files[n], there.get(n), known.get(n, ""))]
        first = []
        if len(missing) > _FILES_A_COMMIT and MANIFEST in there:
            # no complete dataset is there until the last commit
            first = [MANIFEST]
            missing = [*(name for name in missing if name != MANIFEST), MANIFEST]
        _upload(api, repository, {name: files[name] for name in missing}, first, stale, told)
    return Pushed(
        address=where,
        url=f"{api.endpoint}/datasets/{repository}",
        num_files=len(files),
        num_uploaded=len(missing),
        private=is_private,
    )


def _open_hub(repository: str) -> Any:
    """The Hub's client, if a repository can have this name and there is an access token.

    Raises:
        UserError: see above, or HF_HUB_OFFLINE is set.
    """
    try:
        from huggingface_hub import HfApi, get_token
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id
    except ImportError as error:
        raise MissingExtraError(
            MissingPackage(package="huggingface-hub", extra="models", needed_for="glit push")
        ) from error
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UserError(f"{repository!r}: no name on the Hub; want OWNER/NAME") from error
    if repository.count("/") != 1:
        raise UserError(f"{repository!r}: no name on the Hub; want OWNER/NAME")
    if is_offline():
        raise UserError("glit push: HF_HUB_OFFLINE is set; unset it to upload")
    with _hub_errors(f"hf://datasets/{repository}"):
        if not get_token():
            raise UserError(
                "glit push: no access token; log in with: hf auth login, or set HF_TOKEN"
            )
    quiet_client()
    return HfApi(endpoint=endpoint())


def _files_of(root: Path, checked: Iterable[str]) -> dict[str, Path | bytes]:
    """Return the files to upload by their path in the dataset, those of the manifest first.

    Left out are the work folder, hidden files, and links that lead out of the folder, except for
    links that the manifest names, whose bytes are checked.

    Args:
        root: the dataset's folder.
        checked: files that the manifest names. A folder of theirs can be a link.

    Raises:
        InputError: the card is a link out of the folder.
    """
    found: dict[str, Path | bytes] = {name: root / name for name in checked}
    for folder, folders, names in os.walk(root):
        below = Path(folder).relative_to(root)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and (below / name).as_posix() not in ("work", "data")
        )
        for name in sorted(names):
            path = Path(folder, name)
            place = (below / name).as_posix()
            hidden = name.startswith(".") or TEMPORARY_MARK in name
            if place in found or hidden or not path.is_file():
                continue
            if path.resolve().is_relative_to(root.resolve()):
                found[place] = path
            elif place == _CARD:
                raise InputError(f"{path}: a link out of the dataset; put a copy in its place")
    return found


def _card(path: Path, licence: str) -> tuple[str, str]:
    """The card with its licence, and the name or address of that.

    Raises:
        InputError: there is no card, or no licence.
    """
    from huggingface_hub import metadata_load

    try:
        data, text = metadata_load(path) or {}, path.read_bytes().decode()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)}); want the card") from error
    except Exception as error:  # of YAML, or not UTF-8
        raise InputError(f"{path}: no YAML header ({first_line(error)})") from error
    if licence == "other":
        raise UserError(
            f"--license other: write license: other, license_name and license_link into {path}"
        )
    if licence:
        if not _LICENCE.fullmatch(licence) or licence == "unknown":
            raise UserError(f"--license {licence}: no licence of the Hub; want one as cc-by-4.0")
        if data.get("license") == licence:
            return text, licence
        opening, dashes, rest = text.partition("---\n")
        header, end, body = rest.partition("\n---\n")
        if opening.strip("\ufeff") or not dashes or not end:
            raise InputError(f"{path}: no YAML header that could hold --license {licence}")
        header = _LICENCE_LINES.sub("", header + "\n")
        body = body.replace(LICENCE_WARNING + "\n\n", "")
        return f"---\nlicense: {licence}\n{header.rstrip()}{end}{body}", licence
    if data.get("license") == "other" and not (
        data.get("license_name") or data.get("license_link")
    ):
        raise InputError(
            f"{path}: license: other says nothing; add license_name and license_link to it"
        )
    if data.get("license") in (None, "", [], "unknown", ["unknown"]):
        raise InputError(
            f"{path}: names no licence; write it there (license: cc-by-4.0), or add --license"
        )
    named = data["license"]
    if named == "other":
        named = data.get("license_link") or data["license_name"]
    return text, ", ".join(named) if isinstance(named, list) else str(named)


def _with_pictures(card: str, pictures: Iterable[str], *, paired: bool) -> str:
    """A card with pictures before its first heading of the second level; else at its end."""
    above, heading, below = card.partition("\n## ")
    lines = shown_pictures(pictures, paired=paired)
    return f"{above}\n{lines}\n{heading}{below}" if lines else card


def _make_repository(api: Any, repository: str, *, private: bool) -> bool:
    """Create the repository if there is none; return whether it is private.

    Raises:
        UserError: it is public, and was to be private.
    """
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        found = api.repo_info(repository, repo_type="dataset")
    except RepositoryNotFoundError:
        api.create_repo(repository, repo_type="dataset", private=private or None)
        found = api.repo_info(repository, repo_type="dataset")
    if private and not found.private:
        raise UserError(
            f"--private: {repository} exists and is public; nothing was uploaded; make it private "
            "on the Hub first, or choose another name"
        )
    return bool(found.private)


def _files_there(api: Any, repository: str) -> dict[str, Any]:
    found = api.list_repo_tree(repository, repo_type="dataset", recursive=True)
    return {each.path: each for each in found if hasattr(each, "blob_id")}


def _is_there(file: Path | bytes, there: Any, sha256: str) -> bool:
    """Return whether the Hub has these bytes; it knows large files by SHA-256, others by git's
    SHA-1."""
    size = len(file) if isinstance(file, bytes) else file.stat().st_size
    if there is None or there.size != size:
        return False
    if sha256 and there.lfs is not None:
        return there.lfs.sha256 == sha256
    data = file if isinstance(file, bytes) else file.read_bytes()
    if there.lfs is not None:
        return there.lfs.sha256 == hashlib.sha256(data).hexdigest()
    return there.blob_id == hashlib.sha1(b"blob %d\0" % size + data).hexdigest()


def _stale(where: str, there: dict[str, Any], files: dict[str, Any]) -> list[str]:
    """Data files of an earlier state of the dataset, which are to go.

    Raises:
        UserError: there are data files, and they are not glit's.
    """
    data = sorted(name for name in there if name.startswith("data/"))
    others = [name for name in data if name not in files]
    ours = MANIFEST in there or _is_there(files[_CARD], there.get(_CARD), "")
    if (data and not ours) or any(series_of_file(name) is None for name in others):
        raise UserError(
            f"{where}: holds files of another dataset ({(others or data)[0]}); choose another "
            "name, or remove them there first"
        )
    return others


def _upload(
    api: Any,
    repository: str,
    missing: dict[str, Path | bytes],
    first: list[str],
    stale: list[str],
    told: StageProgress,
) -> None:
    """Upload, then commit; what was uploaded before a cut is not uploaded again.

    Args:
        api: the Hub's client; so is ``repository`` its name there.
        missing: files to add, by path.
        first: paths that the first commit removes; the last removes the ``stale``.
        stale: see above.
        told: what to tell.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    adds = [
        CommitOperationAdd(
            path_in_repo=name, path_or_fileobj=file if isinstance(file, bytes) else str(file)
        )
        for name, file in missing.items()
    ]
    told.begin("upload", total=len(adds), done=0, drops=False)
    for at in range(0, len(adds), _FILES_AT_ONCE):
        part = adds[at : at + _FILES_AT_ONCE]
        api.preupload_lfs_files(repository, part, repo_type="dataset", free_memory=False)
        told.advance(len(part))
    groups = [adds[at : at + _FILES_A_COMMIT] for at in range(0, len(adds), _FILES_A_COMMIT)]
    groups = groups or ([[]] if stale else [])
    for number, group in enumerate(groups, start=1):
        gone = (first if number == 1 else []) + (stale if number == len(groups) else [])
        api.create_commit(
            repository,
            [*(CommitOperationDelete(path_in_repo=name) for name in gone), *group],
            commit_message="Upload a dataset with glit",
            repo_type="dataset",
        )


@contextlib.contextmanager
def _hub_errors(where: str) -> Iterator[None]:
    """Translate errors of the Hub's client.

    Raises:
        StorageError: in one line, without the access token or a signed address.
    """
    try:
        yield
    except (UserError, StorageError):
        raise
    except (OSError, RuntimeError, ValueError) as error:
        reason, is_token = hub_fault(error) or (_SIGNED.sub("", first_line(error)), False)
        raise StorageError(where, reason, keys=is_token) from error
    except Exception as error:
        if (fault := hub_fault(error)) is None:
            raise
        raise StorageError(where, fault[0], keys=fault[1]) from error


@contextlib.contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Without the client's own bars; as it was afterwards."""
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    before = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            enable_progress_bars()
