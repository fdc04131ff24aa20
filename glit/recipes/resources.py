"""Files that ship with glit: recipes, manifests, prompts, the mini models.

A checkout keeps recipes and manifests at its top level; the wheel carries the same folders
inside the package. Both are found here and nowhere else.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def _folder(name: str) -> Path:
    inside = PACKAGE / "_resources" / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def builtin_recipes() -> dict[str, Path]:
    """Recipe name -> TOML file, sorted by name."""
    return {path.stem: path for path in sorted(_folder("pipelines").glob("*.toml"))}


def weights_manifest() -> Path:
    """``manifests/weights.toml``: the models glit knows, with revision and licence."""
    return _folder("manifests") / "weights.toml"


def tested_versions() -> dict[str, str]:
    """``manifests/constraints.txt``: package -> the version that glit was tested with."""
    lines = (_folder("manifests") / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = (line.partition("#")[0].strip().partition("==") for line in lines)
    return {name: version for name, equals, version in pinned if equals}


def default_prompt() -> Path:
    """The captioner's prompt for recipes that name no prompt file."""
    return _folder("pipelines") / "prompts" / "describe.txt"


def builtin_calibrations() -> dict[str, Path]:
    """Calibration name -> JSON file, sorted by name."""
    folder = _folder("pipelines") / "calibrations"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def mini_model(name: str) -> Path:
    """Folder of one of the mini models: matcher, clip, grounder, proposer, segmenter, captioner.

    A checkout has them; beside the wheel, the extra ``mini`` brings them.
    The folder need not exist.
    """
    folders = [folder / name for folder in _mini_folders()]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def is_mini_folder(path: Path) -> bool:
    """Return whether a folder is that of a mini model."""
    return path.parent in _mini_folders()


@cache
def _mini_folders() -> list[Path]:
    extra = importlib.util.find_spec("glit_mini")
    installed = extra.submodule_search_locations if extra is not None else None
    return [PACKAGE / "mini", *(Path(folder) for folder in installed or ())]
