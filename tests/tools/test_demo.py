"""make demo: which recipe, and that everything it prints exists."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image
from rich.console import Console

from glit.cli import options
from glit.cli.main import app
from tools import demo


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Images that are no scenes, on a machine without models."""
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "no-models"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "no-models"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        noise = np.random.default_rng(number).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")
    return folder


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["demo", *map(str, words)])
    demo.main()


def test_scenes_get_the_embedded_models_and_photographs_do_not(scenes, photographs, monkeypatch):
    assert demo.recipe_for(scenes / "images") == "glit-mini"
    assert demo.recipe_for(photographs) is None
    monkeypatch.setattr(demo, "_missing", lambda name: [] if name == "flism" else ["a model"])
    assert demo.recipe_for(photographs) == "flism"


def test_without_models_it_says_what_to_fetch_and_what_works_today(
    photographs, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(options, "_is_missing", lambda value: False)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--output", tmp_path / "demo", "--images", photographs)
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert not (tmp_path / "demo").exists()
    assert [line.split()[2] for line in said.splitlines() if "hf download" in line] == [
        "openai/clip-vit-base-patch32",
        "HuggingFaceTB/SmolVLM-256M-Instruct",
        "hustvl/yolos-tiny",
    ]
    group: Any = typer.main.get_command(app)
    lines = re.findall(r"\.venv/bin/glit (.*)", said.replace("\\\n", " "))
    assert [line.split()[0] for line in lines] == ["build", "view", "export"]
    for line in lines:
        words = shlex.split(line)
        group.commands[words[0]].make_context("glit", words[1:])
    page = re.search(r"docs/[\w-]+\.md", said)
    assert page and (demo.ROOT / page[0]).is_file()


def test_a_step_that_fails_ends_it_with_its_code(capfd):
    with pytest.raises(SystemExit) as ended:
        demo._glit(Console(), "no-such-command", 1)
    assert ended.value.code == 2
    said, errors = capfd.readouterr()
    assert "$ glit no-such-command 1" in said and "no-such-command" in errors


@pytest.mark.slow
def test_what_it_prints_exists(tmp_path, monkeypatch, capfd, warm_glit):
    monkeypatch.setattr(demo, "NUM_SCENES", 16)
    monkeypatch.setattr(demo, "NUM_HELD_OUT", 8)
    monkeypatch.setattr(demo, "_glit", in_forked_processes(warm_glit, tmp_path))
    run(monkeypatch, "--output", tmp_path / "demo")
    said = capfd.readouterr().out
    pages = re.findall(r"(?m)^[A-Z].*: file://(\S+)$", said)
    assert [Path(page).name for page in pages] == ["report.html", "argmax.html"]
    assert all(Path(page).is_file() for page in pages)
    done = "".join(line for line in said.splitlines(True) if not line.startswith("next: "))
    paths = re.findall(rf"{re.escape(str(tmp_path))}/demo/[\w./*-]+", done)
    assert {Path(p).name for p in paths} > {"manifest.json", "drops.parquet", "run", "scores"}
    assert all(list(Path("/").glob(p.lstrip("/"))) for p in paths)


def in_forked_processes(warm_glit, folder):
    """Command lines that import nothing anew, and builds without Ray, which each would start."""

    def run_line(console, *words):
        console.print(f"$ glit {shlex.join(map(str, words))}", soft_wrap=True)
        local = ("--executor", "local") if words[0] == "build" and "--executor" not in words else ()
        print(warm_glit.said([*map(str, words), *local], folder))

    return run_line
