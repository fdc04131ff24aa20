"""The documentation is true: how-tos run, README commands parse, generated pages are in step."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image
from small_hub import TOKEN, small_hub
from warm import Warm, needs_a_shell

from glit.cli import options
from glit.cli.main import app
from glit.evaluation.config import EvaluateConfig
from glit.pipeline.planning.recipe import load_recipe, load_table
from glit.recipes.config import Choice
from glit.recipes.resources import builtin_recipes
from glit.stages import all_reasons, all_steps
from glit.training.config import TrainConfig
from tools.docs import DOCS, pages
from tools.docs_api import EXAMPLES
from tools.site_hooks import on_page_markdown

ROOT = DOCS.parent
FENCED = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^```sh\n([^`]*)^```\n+```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""Commands, and below them what they print; ``…`` stands for anything in a line, or for lines."""
PROGRESS = re.compile(r"\w+ +\d+/\d+  .*/s.*")


SHOWN = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""Blocks of commands; all are parsed. In the pages that a test runs, those marked ``bash`` want
models or files that are not here, and are only parsed."""


def shell_lines(page: Path) -> list[str]:
    blocks = SHOWN.findall(page.read_text(encoding="utf-8"))
    return [line for block in blocks for line in lines_of(block)]


def lines_of(block: str) -> list[str]:
    return [line.partition("  #")[0].strip() for line in block.splitlines() if line.strip()]


def test_generated_pages_are_in_step():
    for name, text in pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"{name}: run make docs"


def test_generated_pages_are_whole():
    """Defaults of zero, every drop reason, columns of stages, fields without a docstring."""
    page = {name: (DOCS / name).read_text(encoding="utf-8") for name in pages()}
    assert "`--seed` (default `0`)" in page["cli.md"]
    assert "whose [caption] table names the model" in page["cli.md"]
    assert all(f"| `{reason}` |" in page["troubleshooting.md"] for reason in all_reasons())
    columns = {name for step in all_steps() for name, _ in getattr(step, "dataset_columns", ())}
    assert {"quality", "negatives", "phrases"} <= columns
    assert all(f"- `{name}`, of `[" in page["data-format.md"] for name in columns)
    assert "- `char_start` (`int`)" in page["library.md"]
    assert "- `schema` (`pa.Schema`)" in page["library.md"]  # a property is no call


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_a_function_is_a_call_of_it(name):
    calls = [each for each in ast.walk(ast.parse(EXAMPLES[name])) if isinstance(each, ast.Call)]
    (call,) = [each for each in calls if ast.unparse(each.func) == f"glit.{name}"]
    words = {keyword.arg: None for keyword in call.keywords}
    inspect.signature(getattr(importlib.import_module("glit"), name)).bind(*call.args, **words)


def test_every_page_is_in_the_navigation_or_left_out_on_purpose():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = re.findall(r"^ +- .+: (\S+\.md)$", site.partition("\nnav:")[2], re.MULTILINE)
    assert len(nav) == len(set(nav)) <= 31
    left_out = {"experiments.md", "gpu.md", "scenes.md"}
    found = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert {each for each in found if not each.startswith("decisions/")} == {*nav, *left_out}
    index = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    decisions = {page.name for page in (DOCS / "decisions").glob("*.md")} - {"index.md"}
    assert decisions == set(re.findall(r"\]\(([\w-]+\.md)\)", index))


def test_the_site_has_the_changelog_with_links_of_its_own():
    page = (DOCS / "stability.md").read_text(encoding="utf-8")
    shown = on_page_markdown(page)
    assert "CHANGELOG.md" not in shown and "#### Building" in shown and "](docs/" not in shown


def texts_of_the_code() -> list[str]:
    """Every string constant of glit, with the constant parts of f-strings."""
    trees = (ast.parse(path.read_text()) for path in sorted((ROOT / "glit").rglob("*.py")))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def test_the_messages_that_the_page_of_errors_explains_are_printed():
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").partition("## Messages")[2]
    messages = re.findall(r"^\| `(.+?)` \|", page.partition("\n## ")[0], re.MULTILINE)
    assert len(messages) >= 20
    texts = texts_of_the_code()
    for part in (part.strip() for message in messages for part in message.split("…")):
        assert any(part in text for text in texts), f"{part!r} is printed nowhere"


def glit_commands() -> list[str]:
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return sorted(
        {line for page in pages for line in shell_lines(page) if line.startswith("glit ")}
    )


command = functools.cache(lambda: typer.main.get_command(app))


@pytest.mark.parametrize("line", glit_commands())
def test_every_command_in_the_docs_parses(line, monkeypatch):
    monkeypatch.setattr(options, "_is_missing", lambda value: False)
    group = command()
    words = shlex.split(line)[1:]
    while hasattr(group, "commands"):
        name = words.pop(0)
        assert name in group.commands, f"no command {name}"
        group = group.commands[name]
    given = group.make_context("glit", words).params
    settings = given.get("settings") or ()
    recipe = given.get("recipe") if given.get("recipe") in builtin_recipes() else "flism"
    if line.startswith(("glit train ", "glit eval ")):
        kind = TrainConfig if "train" in line.split()[1] else EvaluateConfig
        load_table(kind, recipe, overrides=settings)
    elif line.startswith("glit build "):
        files = {"caption": given.get("captions"), "propose": given.get("regions")}
        brought = [f"{name}.backend=provided" for name, file in files.items() if file]
        load_recipe(recipe, overrides=[*brought, *settings])


def test_the_readme_names_the_two_commands_and_the_makefile_has_them():
    lines = shell_lines(ROOT / "README.md")
    assert lines[:2] == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)


@pytest.fixture
def glit(warm_glit) -> Warm:
    return warm_glit


def pattern_of(shown: str) -> str:
    """The regular expression of a block of output."""
    lines = (r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
             for line in shown.splitlines())  # fmt: skip
    return "".join(lines)


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "look.md"], ids=lambda page: page.name)
def test_commands_print_what_a_page_shows(page, tmp_path, glit):
    """Those on the photographs of ``glit sample``."""
    blocks = PRINTED.findall(page.read_text(encoding="utf-8"))
    assert blocks
    if "glit sample" not in blocks[0][0]:
        glit.said(["sample", "-o", "photographs"], tmp_path)
    for commands, shown in blocks:
        lines = [shlex.split(line)[1:] for line in lines_of(commands)]
        said = "".join(glit.said(words, tmp_path) for words in lines).splitlines()
        plain = [line.rstrip() for line in said if line and not PROGRESS.fullmatch(line)]
        printed = "".join(f"{line}\n" for line in plain)
        assert re.fullmatch(pattern_of("\n".join(filter(None, shown.splitlines()))), printed), (
            printed
        )


def run_page(page: Path, folder: Path, glit: Warm, hub: Mapping[str, str] | None = None) -> None:
    """Its shell lines one by one, Python blocks that follow one another as one script; lines with
    a repository on the Hub in the environment of one. Fewer scenes are drawn than a reader has."""
    script: list[str] = []
    for kind, block in [*FENCED.findall(page.read_text(encoding="utf-8")), ("sh", "")]:
        if kind == "python":
            assert len(block.splitlines()) < 40, f"{page.name}: a long example\n{block}"
            script.append(block)
            continue
        if script:
            run([sys.executable, "-W", "error::UserWarning", "-c", "\n".join(script)], folder)
            script = []
        for line in lines_of(block):
            line = re.sub(r"^(glit scenes .*-n )(\d+)", at_most_sixteen, line)
            if re.match("glit (add|build|retry) ", line):
                line += " --executor local"
            if "OWNER/" in line:
                words = shlex.split(line.replace("OWNER/", "me/"))[1:]
                run([sys.executable, "-m", "glit", *words], folder, hub)
            elif line.startswith("python -m tools."):
                run([sys.executable, *shlex.split(line)[1:]], folder)
            elif line.startswith("glit ") and not needs_a_shell(line):
                run_glit_line(glit, line, folder)
            else:
                run(["sh", "-c", line.replace("glit ", f"{sys.executable} -m glit ", 1)], folder)


def at_most_sixteen(scenes: re.Match[str]) -> str:
    return f"{scenes[1]}{min(16, int(scenes[2]))}"


def run_glit_line(glit: Warm, line: str, folder: Path) -> None:
    glit.said(shlex.split(line)[1:], folder)


def run(command: list[str], folder: Path, further: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(further or {})},
    )  # fmt: skip
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


@pytest.mark.slow
def test_own_photographs_with_captions_and_a_yolo_file_take_one_block(tmp_path, glit):
    """Every line that it needs is in it."""
    from ultralytics import YOLO

    YOLO("yolov8n.yaml").save(str(tmp_path / "yolo11n.pt"))
    run_glit_line(glit, "glit sample -o sample", tmp_path)
    (tmp_path / "sample" / "images").rename(tmp_path / "photos")
    (tmp_path / "sample" / "captions.jsonl").rename(tmp_path / "my.jsonl")
    page = (DOCS / "your-images.md").read_text(encoding="utf-8")
    (block,) = [block for _, block in FENCED.findall(page) if "yolo11n.pt" in block]
    activate, *lines = lines_of(block)
    assert activate == "source .venv/bin/activate"
    for line in lines:
        line += " --executor local" if line.startswith("glit build ") else ""
        run_glit_line(glit, line, tmp_path)
    assert "mean nothing" in (tmp_path / "detected" / "README.md").read_text()
    assert (tmp_path / "detected.html").is_file()


@pytest.mark.slow
def test_the_how_to_for_a_laptop_runs_with_mini_models(tmp_path, glit):
    """Every line of it, with scenes for the photographs and a small model for each of its three."""
    small = {"caption": "mini-captioner", "propose": "mini-proposer", "score": "mini-matcher"}
    instead = " ".join(f"--set {table}.model={name}" for table, name in small.items())
    run_glit_line(glit, "glit scenes -o scenes -n 4", tmp_path)
    (tmp_path / "scenes" / "images").rename(tmp_path / "photos")
    page = (DOCS / "your-images.md").read_text(encoding="utf-8").partition("## On a laptop")[2]
    lines = lines_of(FENCED.findall(page)[0][1])
    assert [line.split()[1] for line in lines] == ["doctor", "build", "verify", "view"]
    for line in lines:
        line += f" {instead}" if "-r laptop" in line else ""
        line += " --executor local" if line.startswith("glit build ") else ""
        run_glit_line(glit, line, tmp_path)
    manifest = json.loads((tmp_path / "dataset" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["recipe"]["caption"]["max_image_side"] == 512  # the rest is of the laptop
    assert (tmp_path / "report.html").is_file()


@pytest.mark.slow
def test_the_how_tos_run(tmp_path, glit):
    with small_hub() as hub:
        account = {"HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1",
                   "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hf-home")}  # fmt: skip
        for name in ("captions", "regions", "curate", "look", "share", "storage", "scale"):
            run_page(DOCS / f"{name}.md", tmp_path, glit, account)
        assert hub.repositories["me/best"].private
    assert (tmp_path / "with-captions" / "manifest.json").is_file()
    lines = [json.loads(line) for line in (tmp_path / "build.jsonl").read_text().splitlines()]
    assert lines[-1]["event"] == "end" and lines[-1]["error"] is None


@pytest.mark.slow
def test_the_tutorial_and_its_notebook_run(tmp_path, glit):
    run_page(DOCS / "tutorial.md", tmp_path, glit)
    assert (tmp_path / "differences.html").is_file() and (tmp_path / "run" / "best").is_dir()
    assert (tmp_path / "for-the-hub" / "README.md").is_file()
    cells = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    script = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    run([sys.executable, "-c", f"import matplotlib; matplotlib.use('agg')\n{script}"], tmp_path)
    with Image.open(tmp_path / "five-pairs.png") as drawn:
        assert drawn.width > 1000


@pytest.mark.slow
def test_the_librarys_page_and_the_readmes_python_run(tmp_path, glit):
    run_page(DOCS / "library.md", tmp_path, glit)
    assert (tmp_path / "dataset" / "manifest.json").is_file()
    for kind, block in FENCED.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        if kind == "python":
            run([sys.executable, "-c", block], tmp_path)


IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
PROSE_PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", PROSE_PAGES, ids=lambda page: page.name)
def test_every_path_in_backticks_exists(page):
    folders = "docs|glit|manifests|pipelines|tests|tools"
    named = [text for text in IN_BACKTICKS.findall(prose(page)) if re.match(f"({folders})/", text)]
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize("page", PROSE_PAGES, ids=lambda page: page.name)
def test_every_command_and_option_in_prose_exists(page):
    text = prose(page).replace("\\\n", " ")
    lines = [line for line in IN_BACKTICKS.findall(text) if line.startswith("glit ")]
    lines += re.findall(r"^ +(glit [a-z].*)", text, re.M)
    for line in lines:
        command = typer.main.get_command(app)
        for word in line.partition("  #")[0].split()[1:]:
            if hasattr(command, "commands") and not word.startswith("-"):
                assert word in command.commands, f"{line}: no command {word}"
                command = command.commands[word]
            elif word.startswith("-"):
                known = {option for parameter in command.params for option in parameter.opts}
                known |= {"-h", "--help"}
                assert word in known, f"{line}: no option {word}"


def keys_of(table: type) -> set[str]:
    """The keys of a recipe's table, those of all its choices included."""
    choice: Choice | None = getattr(table, "choice", None)
    kinds = [table, *filter(None, choice.options().values() if choice else ())]
    return {field.name for kind in kinds for field in dataclasses.fields(kind)}


OF_TODAY = [page for page in PROSE_PAGES if page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", OF_TODAY, ids=lambda page: page.name)
def test_every_key_of_a_recipe_in_backticks_exists(page):
    known = {step.name: keys_of(step.config) for step in all_steps()}
    known |= {kind.table: keys_of(kind) for kind in (TrainConfig, EvaluateConfig)}
    for text in IN_BACKTICKS.findall(prose(page)):
        found = re.match(rf"(?:--set '?)?({'|'.join(known)})\.([a-z_]+)(?![a-z_.(])", text)
        if found and found[2] not in ("py", "md", "toml", "key"):
            assert found[2] in known[found[1]], f"{text}: no such key"


def test_what_holds_a_line_of_security_is_there():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)` in `(tests/[\w/]+\.py)`", text)
    assert len(named) > 10
    for name, file in named:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}: {name}"


def test_the_readme_names_every_command():
    group: Any = typer.main.get_command(app)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = [name for name, command in group.commands.items() if not command.hidden]
    assert [name for name in listed if not re.search(rf"`(glit )?{name}\b", text)] == []


def test_links_between_pages_lead_somewhere():
    for page in PROSE_PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
