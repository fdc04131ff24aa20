"""Build the sdist, the wheel from it, install that without extras, and use it there.

The index must accept both, and the mini models' wheel, which is installed last. What needs no
extra must work, also in an environment that uv makes for one command.

Every command runs with every option: it must either work or name in one line the extra that it
needs. A stack trace, or any other end, is a fault.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tools.command_lines import DATASET, command_lines, filled

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "manifests" / "constraints.txt"
MINI = ROOT / "glit" / "mini"
LARGEST_WHEEL = 15_000_000
LOCK = "mini.lock.json"
SEED = 2_000_000
TWINE = "twine==7.0.0"
_UV_RUN: list[object] = [sys.executable, "-m", "uv", "tool", "run", "--quiet"]
_INSTALLS_EXTRA = re.compile(r"pip install (.*\bglit-datasets\[[a-z0-9,-]+\]|\./glit/mini)")


def main() -> None:
    """Exit 1 with the failing command's output if anything is missing from the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _run(sys.executable, "-m", "build", "--outdir", here, ROOT)
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", here / "mini", MINI)
        (wheel,), (sdist,), (mini,) = (
            here.glob(files) for files in ("*.whl", "*.tar.gz", "mini/*.whl")
        )
        if wheel.stat().st_size > LARGEST_WHEEL:
            sys.exit(f"{wheel.name} has {wheel.stat().st_size} bytes; want {LARGEST_WHEEL}")
        _run(*_UV_RUN, TWINE, "check", "--strict", wheel, sdist, mini)
        venv.create(here / "clean", with_pip=False)
        python = here / "clean" / "bin" / "python"
        _run(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python,
             "--constraint", CONSTRAINTS, wheel)  # fmt: skip
        glit = here / "clean" / "bin" / "glit"
        _use_without_extras([glit], here / "core")
        _use_without_extras([*_UV_RUN, "--constraints", CONSTRAINTS, "--from", wheel, "glit"],
                            here / "for-one-command")  # fmt: skip
        _run(glit, "--help", cwd=here)
        _run(sys.executable, "-m", "glit", "lock", "mini", cwd=here)
        _run(glit, "scenes", "-o", here / "scenes", "-n", "3", "--seed", SEED, cwd=here)
        _run(sys.executable, "-m", "glit", "build", here / "scenes" / "images",
             "-o", here / "dataset", "-r", "mini", "--executor", "local",
             "--captions", here / "scenes" / "captions.jsonl", cwd=ROOT)  # fmt: skip
        _run(glit, "export", here / "dataset", "--to", "goal", "-o", here / "goal", cwd=here)
        _run(glit, "scenes", "-o", here / "others", "-n", "2", "--seed", "7", cwd=here)
        _run(glit, "overlap", here / "others" / "images", "-o", here / "references.parquet",
             cwd=here)  # fmt: skip
        _run(glit, "select", here / "dataset", "-o", here / "selected", "--sample", "2", cwd=here)
        rows = [{"path": f"{n:06d}.png", "box_xyxyn": [0, 0, 1, 0.5]} for n in range(3)]
        (here / "regions.jsonl").write_text("\n".join(map(json.dumps, rows)))
        for n in range(3):  # beside the images, as the recipe annotated reads them
            text = json.dumps({"regions": [{"box": [0, 0, 64, 64]}]})
            (here / "scenes" / "images" / f"{n:06d}.json").write_text(text)
        working, refused = _use(python, here)
        _run(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python,
             "--no-deps", mini)  # fmt: skip
        _run(glit, "lock", "mini", cwd=here / "mini")
        if (here / "mini" / LOCK).read_bytes() != (here / LOCK).read_bytes():
            sys.exit("the mini models of the wheel are not those of the checkout")
        print(
            f"{wheel.name}, {wheel.stat().st_size / 1e6:.0f} MB: builds and installs without "
            f"extras; {working} command lines work, "
            f"{refused} name the extra they need"
        )


def _use_without_extras(glit: list[object], here: Path) -> None:
    """Make a dataset, check it, and read it in all ways that need no extra."""
    here.mkdir()
    dataset = here / "photographs" / "dataset"
    _run(*glit, "sample", "-o", here / "photographs", "--quiet", cwd=here)
    _run(*glit, "verify", dataset, cwd=here)
    _run(*glit, "query", dataset, "SELECT count(*) FROM pairs", cwd=here)
    _run(*glit, "export", dataset, "--to", "coco", "-o", here / "coco", cwd=here)
    _run(*glit, "view", dataset, "-o", here / "report.html", cwd=here)


def _use(python: Path, here: Path) -> tuple[int, int]:
    """Run all command lines; how many work, and how many name an extra."""
    lines = []
    for number, line in enumerate(command_lines()):
        if DATASET in line:
            shutil.copytree(here / "dataset", here / "datasets" / str(number))
        lines.append(filled(line, here, number))
    done = subprocess.run(
        [python, ROOT / "tools" / "run_lines.py"], cwd=here, input=json.dumps(lines),
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"running the command lines ended with {done.returncode}:\n{done.stderr}")
    ends = json.loads(done.stdout)
    faults = [
        f"glit {' '.join(line)}\n{errors or f'exit code {code}'}"
        for line, (code, errors) in zip(lines, ends, strict=True)
        if not (code == 0 or names_an_extra(code, errors) or is_a_diagnosis(line, code, errors))
    ]
    if faults:
        sys.exit(
            "\n".join(faults)
            + f"\n{len(faults)} of {len(lines)} command lines neither work nor name an extra"
        )
    refused = sum(code != 0 for code, _ in ends)
    return len(lines) - refused, refused


def names_an_extra(code: int, errors: str) -> bool:
    """Whether a command ended as it should where an extra is missing."""
    lines = [line for line in errors.splitlines() if line.startswith("glit: ")]
    return code == 2 and len(lines) == 1 and _INSTALLS_EXTRA.search(lines[0]) is not None


def is_a_diagnosis(line: list[str], code: int, errors: str) -> bool:
    """Whether glit doctor says, on its output, that a build would fail for want of an extra."""
    return line[0] == "doctor" and code == 1 and "Traceback" not in errors


def _run(*command: object, cwd: Path | None = None) -> None:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")


if __name__ == "__main__":
    main()
