"""Build the wheel, install it without extras into a clean environment, and use it there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Exit 1 with the failing command's output if anything is missing from the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", here, ROOT)
        (wheel,) = here.glob("*.whl")
        venv.create(here / "clean", with_pip=False)
        python = here / "clean" / "bin" / "python"
        _run(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python,
             "--constraint", ROOT / "manifests" / "constraints.txt", wheel)  # fmt: skip
        glit = here / "clean" / "bin" / "glit"
        _run(glit, "--help", cwd=here)
        _run(glit, "scenes", "-o", here / "scenes", "-n", "3", cwd=here)
        missing = subprocess.run(
            [glit, "build", here / "scenes" / "images", "-o", here / "out", "-r", "mini"],
            cwd=here, capture_output=True, text=True,
        )  # fmt: skip
        if missing.returncode != 2 or "pip install 'glit[" not in missing.stderr:
            sys.exit(f"a missing extra is not named:\n{missing.stderr}")
        print(f"{wheel.name}: builds, installs without extras, runs, names missing extras")


def _run(*command: object, cwd: Path | None = None) -> None:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")


if __name__ == "__main__":
    main()
