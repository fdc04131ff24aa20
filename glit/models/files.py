"""Find a model's weight files, check that they are complete, and hash them.

Weights are safetensors. A pickle in a folder counts only where ``manifests/weights.toml`` names it
with its hash; transformers then reads it as plain tensors, without running code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from glit.errors import WeightsError

PICKLE = "pytorch_model.bin"
"""The pickle that hub folders carry."""
CONFIG = "config.json"
_ADAPTER = "adapter_config.json"
_MODULES = "modules.json"
OPEN_CLIP_CONFIG = "open_clip_config.json"
"""In place of it, in a folder that OpenCLIP wrote."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TEMPLATES = "additional_chat_templates/*.jinja"
"""Templates of models that have several."""
_SHAPING_SUFFIXES = {".json", ".txt", ".jinja", ".model"}
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model")


def weight_files(path: Path) -> list[Path]:
    """The safetensors of a model folder, else its pickle; or the file itself."""
    if path.is_file():
        return [path]
    return sorted(path.glob("*.safetensors")) or sorted(path.glob(PICKLE))


def check_complete(
    path: Path, *, name: str, pickle_sha256: str = "", random_weights: bool = False
) -> None:
    """Refuse a missing or half-downloaded model.

    Args:
        path: folder or file.
        name: what messages call the model.
        pickle_sha256: the folder may hold this pickle in place of safetensors.
        random_weights: accept a folder with a configuration only.

    Raises:
        WeightsError: no weights, a shard of the index missing, a safetensors file whose length is
            not what its header says, or another pickle than the named one.
    """
    if path.is_file():
        if path.suffix == ".safetensors":
            _check_safetensors(path, name)
        return
    if not path.is_dir():
        raise WeightsError(f"model {name!r}: {path} does not exist; give another folder or name")
    has_config = (path / CONFIG).is_file()
    theirs = has_config and any(path.glob("model*.safetensors"))
    if (path / OPEN_CLIP_CONFIG).is_file() and not theirs:
        raise WeightsError(
            f"model {name!r}: {path} is in OpenCLIP's format; give the folder that this makes: "
            f"glit import-model {path} -o NEW"
        )
    if not has_config:
        if (path / _ADAPTER).is_file():
            base = _read_config(path, _ADAPTER).get("base_model_name_or_path", "its base model")
            raise WeightsError(
                f"model {name!r}: {path} is a PEFT adapter of {base}, no whole model; merge it "
                "with PEFT's merge_and_unload() and give the folder that save_pretrained() writes"
            )
        raise WeightsError(f"model {name!r}: {path} has no {CONFIG}; is the download complete?")
    for index in path.glob("*.safetensors.index.json"):
        shards = _shards(index, name)
        missing = sorted(shard for shard in shards if not (path / shard).is_file())
        if missing:
            raise WeightsError(
                f"model {name!r}: {len(missing)} of {len(shards)} weight files are missing in "
                f"{path} (first: {missing[0]}); download it again"
            )
    weights = weight_files(path)
    pickles = [file for file in weights if file.suffix != ".safetensors"]
    if (not weights and not random_weights) or (pickles and not pickle_sha256):
        raise WeightsError(
            f"model {name!r}: {path} has a {CONFIG} but no *.safetensors (pickles are not "
            "loaded from folders); download it again, or convert it"
        )
    for file in pickles:
        _check_hash(file, pickle_sha256, name=name)
    for file in weights:
        if file.suffix == ".safetensors":
            _check_safetensors(file, name)


def _check_hash(file: Path, sha256: str, *, name: str) -> None:
    """Refuse a file that is not the published one.

    Raises:
        WeightsError: its SHA-256 is another.
    """
    found = file_hash(file)
    if found != sha256:
        raise WeightsError(
            f"model {name!r}: {file} is not the published file (sha256 {found[:12]}..., want "
            f"{sha256[:12]}...); download it again, or give weights of your own another name"
        )


def model_type(path: Path) -> str:
    """The model type in a folder's config.json; empty if there is none."""
    return str(_read_config(path).get("model_type", ""))


def inner_model(path: Path) -> Path:
    """The folder of the model that a sentence-transformers folder holds; else the folder itself."""
    if (path / CONFIG).is_file() or not (path / _MODULES).is_file():
        return path
    inner = [file.parent for file in sorted(path.glob(f"*/{CONFIG}")) if model_type(file.parent)]
    return inner[0] if len(inner) == 1 else path


def _read_config(path: Path, name: str = CONFIG) -> dict[str, Any]:
    try:
        found = json.loads((path / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def folder_of_file(path: Path) -> str:
    """Advice for an error about a file of weights where the folder of a model is wanted."""
    return f"make one of a CLIP's or SAM's weights with: glit import-model {path} -o FOLDER"


def has_tokenizer(path: Path) -> bool:
    """Return whether a folder holds the files of a tokenizer."""
    return any((path / name).is_file() for name in _TOKENIZERS)


def _shards(index: Path, name: str) -> set[str]:
    try:
        return set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise WeightsError(
            f"model {name!r}: {index} is damaged or half downloaded; download it again"
        ) from error


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


def weights_hash(path: Path) -> str:
    """SHA-256 (hex) over the weights and the small files that affect outputs.

    Tokenizer, preprocessor and chat template count as much as the weights do. Of a single file it
    is the file's own, whatever it is called.

    A hash of a file is remembered beside the user's cache by path, size and modification time,
    so that large models are read once.
    """
    if path.is_file():
        return file_hash(path)
    files = weight_files(path)
    files += sorted(
        file
        for file in path.iterdir()
        if file.suffix in _SHAPING_SUFFIXES and not file.name.endswith(".index.json")
    )
    digest = hashlib.sha256()
    for file in [*files, *sorted(path.glob(_TEMPLATES))]:
        name = file.relative_to(path).as_posix()
        digest.update(f"{name} {file_hash(file)}\n".encode())
    return digest.hexdigest()


def file_hash(file: Path) -> str:
    """SHA-256 of a file (hex)."""
    found = file.stat()
    key = hashlib.sha256(
        f"{file.resolve()} {found.st_size} {found.st_mtime_ns}".encode()
    ).hexdigest()
    cache = cache_folder() / "sha256"
    remembered = cache / key
    with contextlib.suppress(OSError, ValueError):
        if _SHA256.fullmatch(value := remembered.read_text(encoding="ascii")):
            return value
    with file.open("rb") as stream:
        value = hashlib.file_digest(stream, "sha256").hexdigest()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        beside = cache / f"{key}.{os.getpid()}"
        beside.write_text(value, encoding="ascii")
        beside.replace(remembered)
    except OSError:
        pass  # a cache that cannot be written costs time, nothing else
    return value


def cache_folder() -> Path:
    """glit's cache folder, for files that it can recreate."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glit"
