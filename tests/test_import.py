"""What is imported when: glit and its command line are quick to start."""

import subprocess
import sys

import pytest
import typer

from glit.cli.commands import PANELS
from glit.cli.main import app
from glit.models.device import accelerators
from glit.scenes import write_scenes

HEAVY = ("torch", "ray", "vllm", "transformers", "ultralytics", "segment_anything")


def test_importing_glit_and_its_command_line_loads_no_model_library():
    code = (
        "import sys, glit, glit.cli.main\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_stage_that_opens_a_clip_loads_nothing_of_training_or_evaluation():
    code = (
        "import sys, glit.stages.exclude\n"
        "rooms = ('glit.training', 'glit.evaluation')\n"
        "print([name for name in sys.modules if name.startswith(rooms) or name == 'torch'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_plan_and_a_build_without_a_model_load_no_model_library(tmp_path):
    write_scenes(tmp_path, num=2, seed=0)
    code = (
        "import sys, glit\n"
        "from glit.pipeline.planning.inputs import Inputs, Source\n"
        "from glit.pipeline.planning.plan import make_plan\n"
        "from glit.pipeline.planning.recipe import load_recipe\n"
        "make_plan(load_recipe('mini'), Inputs(source=Source(root='images')), device='cpu')\n"
        "glit.build('images', 'out', recipe='captions-only', captions='captions.jsonl',\n"
        "           executor='local', quiet=True)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "glit.models.device._OTHERS = ('/',)\n"
        "print(glit.models.device.accelerators(), 'torch' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    with_torch = "['torch']" if accelerators() else "[]"
    assert found.stdout.splitlines() == [with_torch, f"{accelerators()} True"]


def test_the_help_of_all_commands_imports_none_of_them():
    code = (
        "import sys\n"
        "from glit.cli.main import main\n"
        "sys.argv = ['glit', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('numpy', 'pyarrow', 'fsspec', 'duckdb', 'PIL', 'glit.cli.build')\n"
        "       if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *page, last = found.stdout.splitlines()
    assert last == "[]" and any("interpolate" in line for line in page)


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "nowhere"],
        ["build", "nowhere", "-o", "out"],
        ["build", ".", "-o", "out", "--captions", "nowhere"],
        ["train", "nowhere", "-o", "out"],
        ["eval", "retrieval", "mini-clip", "nowhere"],
    ],
)
def test_a_path_that_is_not_there_is_refused_before_anything_heavy(words, tmp_path):
    code = (
        "import sys\n"
        "from glit.cli.main import main\n"
        f"sys.argv = ['glit', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code)\n"
        f"print([name for name in {(*HEAVY, 'glit.stages.score')!r} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert found.stdout.split("\n")[:2] == ["2", "[]"] and "nowhere: no " in found.stderr


LINES = {name: line for commands in PANELS.values() for name, (_, line) in commands.items()}


@pytest.mark.parametrize("name", LINES)
def test_the_text_of_a_command_begins_with_its_line_of_help(name):
    group = typer.main.get_command(app)
    assert " ".join(group.commands[name].help.split()).startswith(LINES[name].removesuffix("."))
