"""The documentation is true: how-tos run, README commands parse, generated pages are in step."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from glit.cli.main import app
from tools.docs import DOCS, pages

ROOT = DOCS.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shell_lines(page: Path) -> list[str]:
    lines = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        lines += [line.partition("  #")[0].strip() for line in block.splitlines() if line.strip()]
    return lines


def test_generated_pages_are_in_step():
    for name, text in pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"{name}: run make docs"


def glit_commands() -> list[str]:
    pages = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
    return sorted(
        {line for page in pages for line in shell_lines(page) if line.startswith("glit ")}
    )


@pytest.mark.parametrize("line", glit_commands())
def test_every_command_in_the_docs_parses(line):
    group = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while hasattr(group, "commands"):
        name = words.pop(0)
        assert name in group.commands, f"no command {name}"
        group = group.commands[name]
    group.make_context("glit", words)


def test_the_readme_names_the_two_commands_and_the_makefile_has_them():
    lines = shell_lines(ROOT / "README.md")
    assert lines[:2] == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)


def test_the_how_tos_run(tmp_path):
    glit = f"{sys.executable} -m glit"
    for line in shell_lines(DOCS / "how-to.md"):
        command = line.replace("glit ", f"{glit} ", 1)
        if " build " in command or " retry " in command:
            command += " --executor local"
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, env=os.environ.copy()
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    assert (tmp_path / "with-captions" / "manifest.json").is_file()
    assert not (tmp_path / "with-captions" / "work").exists()


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
