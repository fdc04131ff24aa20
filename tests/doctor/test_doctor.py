"""What ``glit doctor`` finds, says to do, and how it ends."""

from __future__ import annotations

import json
import re
import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from building import png
from typer.testing import CliRunner

from glit.cli.main import app
from glit.doctor import estimate as pace
from glit.doctor import inputs, machine, packages
from glit.doctor.estimate import Pace
from glit.doctor.examine import _only_scenes, build_recipes, examine
from glit.doctor.inputs import look_at_images
from glit.doctor.models import check_models, hub, models
from glit.pipeline.planning.recipe import load_recipe
from glit.storage.store import Store

MINI = load_recipe("mini")


@pytest.mark.slow
def test_a_build_that_would_work_is_timed_and_nothing_is_left_behind(scenes, tmp_path):
    out = tmp_path / "dataset"
    done = CliRunner().invoke(
        app, ["doctor", str(scenes / "images"), "-o", str(out), "-r", "mini", "--json"]
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["would_work"] and report["images"] == 24
    (found,) = report["paces"]
    assert found["seconds"] > 0 and found["hours"] > 0 and found["why_not"] == ""
    assert not out.exists()
    assert {each["about"] for each in report["findings"]} == {
        "glit", "processor", "devices", "packages", "extras", "hub", "models", "images", "disk",
    }  # fmt: skip


def test_without_models_and_offline_it_fails_and_says_what_to_fetch(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = CliRunner().invoke(app, ["doctor", "-r", "lism"])
    assert done.exit_code == 1
    assert "hf download llava-hf/llava-v1.6-mistral-7b-hf --revision 2424fdd" in done.output
    assert "hf download facebook/sam-vit-huge" in done.output
    assert "15.1 GB" in done.output and "2.6 GB" in done.output
    first, *rest = done.stdout.splitlines()
    assert first == "A build with -r lism would fail: 1 problem to fix."
    assert next(line for line in rest if line.strip()).startswith("fails")
    assert "yolos-tiny" not in done.stdout and "\nok " not in done.stdout
    verbose = CliRunner().invoke(app, ["doctor", "-r", "lism", "--verbose"]).stdout
    assert verbose.splitlines()[0] == first
    assert "yolos-tiny" in verbose and "\nok " in verbose


def test_what_the_hub_has_is_fetched_by_the_build():
    flism = load_recipe("flism", overrides=["score.model=nobody/nothing-of-the-kind"])
    found = models([flism])
    by_name = {model.name: model for model in found}
    assert not by_name["nobody/nothing-of-the-kind"].here
    assert by_name["nobody/nothing-of-the-kind"].num_bytes == 0
    assert check_models(found, "flism", hub_answers=True).state == "note"
    assert check_models(found, "flism", hub_answers=False).state == "fails"


def test_a_path_that_is_not_there_is_no_model_of_the_hub():
    recipe = load_recipe("mini", overrides=["score.model=./nowhere"])
    found = models([recipe])
    said = check_models(found, "mini", hub_answers=True)
    assert (said.state, said.todo) == ("fails", "check the names")


@pytest.mark.parametrize(
    ("answer", "state", "answers"),
    [(200, "ok", True), (503, "note", False), (httpx.ConnectError("no"), "note", False)],
)
def test_the_hub_is_asked_once(monkeypatch, answer, state, answers):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")

    def head(address, **_):
        assert address == "https://hub.example"
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer)

    monkeypatch.setattr(httpx, "head", head)
    said, found = hub()
    assert (said.state, found) == (state, answers)


def test_files_that_do_not_decode_are_named(tmp_path, scenes):
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 nothing")
    _, said = inputs.look_at_images(str(tmp_path), MINI)
    assert said[0].state == "fails" and "broken.jpg (" in said[0].found
    shutil.copy(scenes / "images" / "000000.png", tmp_path)
    seen, said = inputs.look_at_images(str(tmp_path), MINI)
    assert said[0].state == "note" and "1 of 2 looked at decode" in said[0].found
    assert [each.path for each in seen.decoded] == ["000000.png"]


def test_no_images_and_no_folder_fail(tmp_path):
    _, said = inputs.look_at_images(str(tmp_path), MINI)
    assert said[0].state == "fails"
    report = examine("mini", images=str(tmp_path / "nowhere"), all_recipes=False)
    assert report.fails and not report.paces


def test_the_sample_does_not_depend_on_the_order_of_files(tmp_path, scenes):
    names = [f"{number:03}.png" for number in range(inputs.SAMPLE * 2)]
    for name in names:
        shutil.copy(scenes / "images" / "000000.png", tmp_path / name)
    source = inputs.find_source(str(tmp_path))
    number, num_bytes, sample = inputs._listed(source)
    each = (scenes / "images" / "000000.png").stat().st_size
    assert (number, num_bytes, len(sample)) == (64, 64 * each, 32)
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join(reversed(names)))
    assert inputs._listed(inputs.find_source(str(listed)))[2] == sample


Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(("free", "state"), [(10_000_000, "ok"), (100_000, "fails")])
def test_a_disk_without_room_fails(monkeypatch, scenes, tmp_path, free, state):
    monkeypatch.setattr(inputs.shutil, "disk_usage", lambda _: Usage(0, 0, free))
    seen, _ = inputs.look_at_images(str(scenes / "images"), MINI)
    (said,) = inputs.disk(seen, MINI, str(tmp_path / "not" / "yet"))
    assert said.state == state
    assert f"{inputs.size(24 * inputs.TABLE_BYTES + seen.num_bytes)} are wanted" in said.found


def test_an_address_is_written_to_before_a_build_is(s3):
    address = s3.url("doctor")
    (said,) = inputs.disk(None, MINI, address)
    assert (said.state, said.found) == ("ok", f"{address}: objects can be written")
    assert Store(address).names() == set()
    with s3.failing(lambda method, path: "denied"):
        (said,) = inputs.disk(None, MINI, address)
    assert said.state == "fails" and "Access Denied; renew or change the keys" in said.found


@pytest.mark.skipif(
    not Path("/proc/self").is_dir(), reason="needs /proc, which refuses new files even to root"
)
def test_a_folder_that_refuses_files_fails_with_one_line(run_glit):
    """Asked by making one: rights alone would allow it."""
    (said,) = inputs.disk(None, MINI, "/proc/not/yet")
    assert (said.state, said.about) == ("fails", "disk")
    assert said.found.startswith("/proc: cannot write there (")
    assert said.todo == "choose another folder with -o"
    done = run_glit("doctor", "-r", "mini", "-o", "/proc/not/yet", "--quiet")
    (line,) = [line for line in done.output.splitlines() if "cannot write" in line]
    assert done.code == 1 and "/proc" in line


def test_another_version_is_noted_and_a_missing_extra_fails(monkeypatch, hide):
    installed = packages._installed
    monkeypatch.setattr(
        packages, "_installed", lambda name: "0.1" if name == "duckdb" else installed(name)
    )
    hide("torch")
    said = list(packages.packages(MINI))
    assert said[0].state == "note" and "duckdb 0.1 (2.0.0 is tested)" in said[0].found
    assert re.search("not installed: models, .*train", said[1].found)
    fails = [each for each in said if each.state == "fails"]
    assert fails and fails[0].todo.startswith("install it with: ")
    assert "[models]'" in fails[0].todo


def test_without_torch_the_driver_is_asked(monkeypatch, hide):
    hide("torch")
    monkeypatch.setattr(machine, "_gpus_of_the_driver", lambda: ["NVIDIA H200"])
    said = {each.about: each for each in machine.machine()}
    assert said["devices"].found == "the driver has NVIDIA H200; torch is not installed"


def test_a_driver_that_torch_cannot_use_is_noted(monkeypatch):
    monkeypatch.setattr(machine, "_gpus_of_the_driver", lambda: ["NVIDIA H200"])
    monkeypatch.setattr(machine, "_gpus_of_torch", list)
    said = {each.about: each for each in machine.machine()}
    assert said["devices"].state == "note" and "uses none" in said["devices"].found


def test_a_recipe_that_takes_too_long_is_cut_off(monkeypatch, scenes):
    monkeypatch.setattr(pace, "PILOT_S", 0.05)
    seen, _ = inputs.look_at_images(str(scenes / "images"), MINI)
    found = pace.pace(seen, MINI, "mini", [], device="cuda")
    assert found.workers == 1 and found.hours(1000) is None
    assert found.line(1000) == (
        "not measured: its images were not done after 0.05 s, loading of its models included"
    )


def test_a_trial_that_fails_says_why(monkeypatch, scenes, tmp_path):
    seen, _ = inputs.look_at_images(str(scenes / "images"), MINI)
    found = pace.pace(seen, MINI, "no-such-recipe", [], device="cpu")
    assert found.seconds is None and "no recipe named 'no-such-recipe'" in found.why_not
    assert found.hours(10) is None


def test_hours_share_the_work_out_but_not_the_loading():
    found = Pace(recipe="x", seconds=2.0, loading_s=600, workers=4)
    assert found.hours(7200) == pytest.approx(600 / 3600 + 1)
    assert found.line(7200) == "2 s an image; 70 min for 7200 with 4 workers"


def test_masks_beside_the_images_are_not_made_up(scenes):
    recipe = load_recipe("lism-sa1b")
    seen, _ = inputs.look_at_images(str(scenes / "images"), recipe)
    found = pace.pace(seen, recipe, "lism-sa1b", [], device="cpu")
    assert found.why_not == "it wants NAME.json beside every image"


def test_recipes_for_training_are_not_timed():
    assert {"mini", "flism", "lism", "glit", "laptop", "captions"} <= set(build_recipes())
    assert not {"goal", "clip", "siglip"} & set(build_recipes())


def test_a_trial_that_ships_nothing_is_told_in_words(scenes, tmp_path):
    seen, _ = look_at_images(str(scenes / "images"), MINI)
    found = pace.pace(seen, MINI, "mini", ["propose.max_area=0.0001", "propose.backend=yolos"],
                      device="cpu")  # fmt: skip
    assert found.seconds is None and found.why_not
    assert not re.search(r"Error|/tmp|glit-doctor", found.why_not), found.why_not


@pytest.mark.parametrize("photographs", [False, True])
def test_a_build_of_photographs_with_mini_models_is_not_approved(
    scenes, tmp_path, monkeypatch, photographs
):
    monkeypatch.setattr("glit.doctor.examine._time", lambda *_: None)
    images = tmp_path if photographs else scenes / "images"
    for seed in range(3):
        (tmp_path / f"{seed}.png").write_bytes(png(seed=seed, size=(64, 64)))
    report = examine("mini", images=str(images), output=str(tmp_path))
    [said] = [each for each in report.findings if "procedural scenes alone" in each.found]
    assert ("0 of 3 images look like these" in said.found) == photographs == report.fails


def test_a_model_is_not_mini_because_its_name_holds_the_word():
    recipe = load_recipe("laptop", overrides=["caption.model=minicpm-v-4.6"])
    seen = SimpleNamespace(decoded=[1, 2], scenes=0)
    found = [SimpleNamespace(name=name) for name in ("minicpm-v-4.6", "yolos-small")]
    assert _only_scenes(seen, found, recipe) == []
