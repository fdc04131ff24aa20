"""From a model's name to a folder of weights: the mini pack, a path, the cache, or the hub.

Names and pins live in ``manifests/weights.toml``. Safetensors only, unless the manifest or the
user says otherwise; code in a model repository is never run.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glit.errors import WeightsError
from glit.resources import mini_model, weights_manifest

_SHAPING_SUFFIXES = {".json", ".txt", ".jinja", ".model"}
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A model that is here, and what identifies it."""

    name: str
    """The name the recipe used."""
    path: Path
    """Folder (or single file) to load from."""
    revision: str
    sha256: str
    """Hash over the weight files; what the fingerprints of the stages build on."""
    licence: str = ""

    def identity(self) -> dict[str, str]:
        """What goes into fingerprints and manifests: no path."""
        kept = asdict(self)
        kept.pop("path")
        return kept


def resolve(name: str, revision: str = "main", *, random_weights: bool = False) -> Resolved:
    """Find a model's files and hash its weights.

    Order: a path that exists, the manifest (mini pack, or pinned hub id), the local Hugging
    Face cache, the hub.

    Args:
        name: name in the manifest, hub id, folder or file.
        revision: hub revision; the manifest's pin wins over ``main``.
        random_weights: accept a folder with a configuration only.

    Raises:
        WeightsError: nothing found, or the folder is incomplete.
    """
    entry = manifest().get(name, {})
    licence = str(entry.get("licence", ""))
    if "mini" in entry:
        path = mini_model(entry["mini"])
        revision = str(entry["revision"])
    elif os.path.exists(name):
        path = Path(name).resolve()
        revision = "local"
    else:
        if revision == "main":
            revision = str(entry.get("revision", "main"))
        path = _from_hub(str(entry.get("id", name)), revision)
        revision = _commit_of(path, revision)
    check_complete(path, name=name, random_weights=random_weights)
    return Resolved(
        name=name, path=path, revision=revision, sha256=weights_hash(path), licence=licence
    )


def manifest() -> dict[str, dict[str, Any]]:
    """The tables of ``manifests/weights.toml`` by model name."""
    return tomllib.loads(weights_manifest().read_text(encoding="utf-8"))


def check_complete(path: Path, *, name: str, random_weights: bool = False) -> None:
    """Refuse a missing or half-downloaded model.

    Raises:
        WeightsError: no weights, a shard of the index missing, or a safetensors file whose
            length is not what its header says.
    """
    if path.is_file():
        if path.suffix == ".safetensors":
            _check_safetensors(path, name)
        return
    if not path.is_dir():
        raise WeightsError(f"model {name!r}: {path} does not exist; give another folder or name")
    if not (path / "config.json").is_file():
        raise WeightsError(f"model {name!r}: {path} has no config.json; is the download complete?")
    for index in path.glob("*.safetensors.index.json"):
        shards = _shards(index, name)
        missing = sorted(shard for shard in shards if not (path / shard).is_file())
        if missing:
            raise WeightsError(
                f"model {name!r}: {len(missing)} of {len(shards)} weight files are missing in "
                f"{path} (first: {missing[0]}); download it again"
            )
    weights = weight_files(path)
    if not weights and not random_weights:
        raise WeightsError(
            f"model {name!r}: {path} has a config.json but no *.safetensors (pickles are not "
            "loaded from folders); download it again, or convert it"
        )
    for file in weights:
        if file.suffix == ".safetensors":
            _check_safetensors(file, name)


def _shards(index: Path, name: str) -> set[str]:
    try:
        return set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise WeightsError(
            f"model {name!r}: {index} is damaged or half downloaded; download it again"
        ) from error


def weight_files(path: Path) -> list[Path]:
    """The safetensors of a model folder, or the file itself."""
    return [path] if path.is_file() else sorted(path.glob("*.safetensors"))


def _check_safetensors(file: Path, name: str) -> None:
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(8)
        length = int.from_bytes(head, "little") if len(head) == 8 else -1
        header = stream.read(length) if 0 < length < 100_000_000 else b""
    try:
        tensors = json.loads(header)
        wanted = (
            8
            + length
            + max(
                (t["data_offsets"][1] for k, t in tensors.items() if k != "__metadata__"), default=0
            )
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        wanted = -1
    if wanted != size:
        raise WeightsError(
            f"model {name!r}: {file} is damaged or half downloaded "
            f"({size} bytes, its header says {max(wanted, 0) or 'nothing sensible'}); "
            "download it again"
        )


def _from_hub(hub_id: str, revision: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
        )
    except ImportError as error:
        raise WeightsError(
            f"model {hub_id!r}: not a folder; finding it in the Hugging Face cache needs: "
            "pip install 'glit[models]'"
        ) from error
    try:
        return Path(snapshot_download(hub_id, revision=revision, local_files_only=True))
    except HFValidationError as error:
        raise _nowhere(hub_id) from error
    except LocalEntryNotFoundError:
        pass
    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise _nowhere(hub_id) from error


def _nowhere(name: str) -> WeightsError:
    close = difflib.get_close_matches(name, manifest(), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return WeightsError(
        f"model {name!r}: not a folder, not in the Hugging Face cache, and the hub did not "
        f"answer{hint}; download it on a connected machine "
        f"(huggingface-cli download {name}), or give a folder"
    )


def _commit_of(path: Path, revision: str) -> str:
    return path.name if len(path.name) == 40 else revision


def weights_hash(path: Path) -> str:
    """SHA-256 over the weights and the small files that shape answers (hex).

    Tokenizer, preprocessor and chat template count as much as the weights do.

    A hash of a file is remembered beside the user's cache by path, size and modification time,
    so that large models are read once.
    """
    files = weight_files(path)
    if path.is_dir():
        files += sorted(
            file
            for file in path.iterdir()
            if file.suffix in _SHAPING_SUFFIXES and not file.name.endswith(".index.json")
        )
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name} {_file_hash(file)}\n".encode())
    return digest.hexdigest()


def _file_hash(file: Path) -> str:
    found = file.stat()
    key = hashlib.sha256(
        f"{file.resolve()} {found.st_size} {found.st_mtime_ns}".encode()
    ).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glit" / "sha256"
    remembered = cache / key
    if remembered.is_file():
        return remembered.read_text()
    with file.open("rb") as stream:
        value = hashlib.file_digest(stream, "sha256").hexdigest()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        remembered.write_text(value)
    except OSError:
        pass  # a cache that cannot be written costs time, nothing else
    return value


def is_here(name: str) -> bool:
    """Whether a model of the manifest can be loaded without a network."""
    entry = manifest().get(name, {})
    if "mini" in entry:
        return mini_model(entry["mini"]).is_dir()
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        return False
    try:
        path = snapshot_download(
            str(entry.get("id", name)),
            revision=str(entry.get("revision", "main")),
            local_files_only=True,
        )
        check_complete(Path(path), name=name)
    except (OSError, ValueError, WeightsError):
        return False
    return True
