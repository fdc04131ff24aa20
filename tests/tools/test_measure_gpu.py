"""The GPU benchmark: every part runs, a part that fails costs its own figures only, ratios are right."""

from __future__ import annotations

import contextlib
import io
import json
import os

import numpy as np
import pytest
import torch
from pretend_cuda import pretend_cuda
from rich.console import Console

from glit.bench.harness import Ended, note, record, recorded
from glit.pipeline.executors.process import borrowed_process
from glit.runtime.tables import markdown, show
from tools.measure.gpu import __main__ as command
from tools.measure.gpu.__main__ import PARTS, page, run_part
from tools.measure.gpu.bench import SCALES, Bench, row

TINY = SCALES["tiny"]


REFUSED = {
    "detectors.yolos": {"YOLOS, bfloat16, one CUDA graph"},
    "models.products": {"no data sheet of pretended is known here"},
}
"""The beginnings of notes about what no pretended GPU does."""

ON_CPU = ("training.measure", "builds.measure")
"""Parts with processes and compilers, which no pretended GPU has."""


@pytest.mark.slow
@pytest.mark.parametrize("part", [part for part in PARTS if part not in ON_CPU])
def test_every_part_on_a_pretended_gpu(part, tmp_path) -> None:
    """Nothing lies on the wrong device, and the precisions are a GPU's."""
    with pretend_cuda(), borrowed_process(for_model=True):
        run_part(part, "tiny", "cuda", str(tmp_path / "part.json"))
    found = recorded(tmp_path / "part.json")
    assert found["rows"] and all(np.isfinite(row["measured"]) for row in found["rows"])
    rates = [row["measured"] for row in found["rows"] if row["unit"].endswith("/s")]
    assert all(rate > 0 for rate in rates)
    said = [note for note in found["notes"] if "of the GPU's time" not in note]
    failed = {note.split(":")[0] for note in said if not note.startswith("one process, chunks")}
    assert failed == REFUSED.get(part, set()), found["notes"]


def test_a_limit_is_the_rate_over_the_operations(tmp_path) -> None:
    bench = Bench(scale=TINY, device="cpu", scratch=tmp_path, rates={"float32": 4e6})
    a = torch.ones(100, 100)
    found = bench.figure(
        "product", lambda: a @ a, number=3, unit="items/s", precision="float32", bottleneck=""
    )
    assert found["limit"] == 3 * 4e6 / (2 * 100**3)


def test_the_time_is_at_most_nine_minutes() -> None:
    assert sum(PARTS.values()) <= command.MOST_S <= 540


def test_what_is_begun_late_has_no_time(tmp_path) -> None:
    said: list[str] = []
    report = command.run(
        tmp_path,
        device="cpu",
        scale="tiny",
        progress=said.append,
        parts={"flism.measure": 60},
        most_s=-1,
    )
    assert said[0] == "flism.measure (at most 0 s)"
    assert report["parts"][0]["rows"] == [] and "its time" in report["parts"][0]["failure"]


@pytest.fixture(scope="module")
def with_failures(tmp_path_factory):
    """The command with a part that is no module, one that hangs, one that does its work."""
    folder = tmp_path_factory.mktemp("gpu")
    words = ["gpu", "-o", str(folder), "--device", "cpu", "--tiny"]
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        parts = {"no_such.part": 60, "models.sam": 0.2, **dict.fromkeys(ON_CPU, 240)}
        patch.setattr(command, "PARTS", parts)
        patch.setattr("sys.argv", words)
        with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
            command.main()
    return json.loads((folder / "gpu.json").read_text()), folder, said.getvalue()


@pytest.mark.slow
def test_a_part_that_fails_says_why_and_the_others_go_on(with_failures) -> None:
    report, _, said = with_failures
    unknown, slow, training, builds = report["parts"]
    assert "ModuleNotFoundError" in unknown["failure"] and "exit code 1" in unknown["failure"]
    assert slow["failure"].endswith(" s, its time")
    assert training["failure"] == builds["failure"] == ""
    assert [row["what"] for row in builds["rows"]] == ["build, local"]
    assert len(training["rows"]) == 4
    assert all(np.isfinite(row["measured"]) and row["measured"] > 0 for row in training["rows"])
    assert any(row["limit"] for row in training["rows"])
    assert any(line.startswith("no_such.part: exit code 1") for line in said.splitlines())


@pytest.mark.slow
def test_table_and_page_say_the_same(with_failures) -> None:
    report, folder, _ = with_failures
    text = markdown(page(report))
    out = io.StringIO()
    show(page(report), Console(file=out, width=200))
    shown = out.getvalue()
    for each in report["parts"][2]["rows"]:
        assert each["what"] in text and each["what"] in shown
    for each in (text, shown):
        assert "Tiny shapes" in each and "models.sam: ended after " in each
    assert json.loads((folder / "gpu.json").read_text())["scale"] == "tiny"


def test_figures_of_a_part_that_dies_are_kept(tmp_path) -> None:
    def dying():
        yield row("rate", 3.0, "GB/s", limit=4.0)
        yield note("a remark")
        raise OSError

    with pytest.raises(OSError):
        record(dying(), tmp_path / "matrix.json")
    found = recorded(tmp_path / "matrix.json")
    assert found["rows"] == [row("rate", 3.0, "GB/s", limit=4.0)] and found["notes"] == ["a remark"]
    assert command.cells(found["rows"][0]) == ("rate", "3.00 GB/s", "4.00", "0.75", "")
    assert recorded(tmp_path / "none.json")["rows"] == []
    ended = Ended(code=-4, seconds=1.0, last_words="Illegal instruction")
    assert ended.failure == "signal 4: Illegal instruction"


@pytest.mark.slow
def test_the_command_leaves_its_files(with_failures) -> None:
    _, folder, _ = with_failures
    logs = ["models.sam.log", "no_such.part.log"]
    logs += [f"{part}.log" for part in ON_CPU]
    files = ["gpu.json", "gpu.md", *(f"{part}.json" for part in ON_CPU), *logs]
    assert sorted(os.listdir(folder)) == sorted(files)


def test_the_command_wants_a_gpu(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr("sys.argv", ["gpu", "-o", str(tmp_path), "--device", "cpu"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2 and "no GPU; add --tiny" in capsys.readouterr().err
    assert not os.listdir(tmp_path)
