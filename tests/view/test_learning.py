"""Runs and results as data for their page, and the page in a browser."""

from __future__ import annotations

import json
import shutil

import pytest
from browser import Page, violations
from playwright.sync_api import expect

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.view.learning import is_results, is_run, learning_data
from glit.view.page_file import report_html

LETTERS = """[...document.querySelectorAll('.chart text')].map(text => parseFloat(
    getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
"""Sizes of the letters of charts, in pixels of the page."""
PIXEL = "data:image/webp;base64,UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA"
HOSTILE = '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


@pytest.fixture
def run(tmp_path):
    """700 steps, of which one is not finite, two checkpoints, the second best and last."""
    folder = tmp_path / "run"
    lines = [
        {"step": step, "total_steps": 700, "epoch": 1, "lr": 1e-3, "loss": 2 - step / 700,
         "loss_tsl_patch": 0.5, "note": "words", "steps_per_s": 2.0}
        for step in range(1, 701)
    ]  # fmt: skip
    lines[9]["loss"] = float("nan")
    for step in (350, 700):
        trainer = folder / "checkpoints" / f"step-{step:08d}" / "trainer"
        trainer.mkdir(parents=True)
        (trainer / "state.json").write_text(json.dumps({"step": step}))
        (trainer.parent / "model.safetensors").write_bytes(b"x" * 1000)
    (folder / "checkpoints" / "step-00000699").mkdir()  # one that was not finished
    for name in ("best", "last"):
        (folder / name).symlink_to(folder / "checkpoints" / "step-00000700")
    about = {"glit": "0.1.0", "packages": {"torch": "2"}, "dataset": "/far/away/data",
             "train": {"model": "mini-matcher", "objective": "clip", "batch_size": 8}}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "scores"
    folder.mkdir()
    for name, recall in (("a", 0.5), ("b", 0.75)):
        metrics = {"image_retrieval_recall@10": 1.0, "image_retrieval_recall@1": recall,
                   "text_retrieval_recall@1": 0.25, "lost": float("nan")}  # fmt: skip
        values = {"task": "zeroshot_retrieval", "model": f"runs/{name}/best", "dataset": "d",
                  "num_images": 4, "num_captions": 4, "metrics": metrics}  # fmt: skip
        (folder / f"retrieval_{name}.json").write_text(json.dumps(values))
    picture = {"name": HOSTILE, "image": PIXEL}
    wrong = {"query": {"text": HOSTILE}, "rank": 2, "right": picture,
             "nearest": [{**picture, "score": 0.5, "right": False},
                         {**picture, "score": 0.4, "right": True}]}  # fmt: skip
    ways = {"image_retrieval": {"right": [], "wrong": [wrong]}}
    beside = {"model": "runs/a/best", "dataset": "d", "ways": ways}
    (folder / "neighbours_a.json").write_text(json.dumps(beside))
    return folder


def test_a_run_gives_its_curves_and_checkpoints(run):
    assert is_run(str(run)) and not is_results(str(run))
    found = learning_data([str(run)])["runs"][0]
    assert (found["steps"], found["total_steps"], found["dataset"]) == (700, 700, "data")
    curves = {curve["name"]: curve for curve in found["curves"]}
    assert list(curves) == ["loss", "loss_tsl_patch", "lr"]
    assert curves["loss_tsl_patch"]["title"] == "Loss: TSL patch"
    # 699 finite values in runs of three; the first are those of steps 1 to 3
    assert len(curves["loss"]["points"]) == 233 and curves["loss"]["not_finite"] == 1
    assert curves["loss"]["points"][0] == pytest.approx([3, 2 - 2 / 700], abs=1e-5)
    assert curves["loss"]["points"][-1][0] == 700
    assert [(c["step"], c["called"], c["bytes"], c["resumes"]) for c in found["checkpoints"]] == [
        (350, [], 1000, True),
        (700, ["best", "last"], 1000, True),
    ]
    assert found["checkpoints"][0]["loss"] == pytest.approx(1.5)


def test_a_run_at_work_may_have_half_a_line_and_no_step(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 701, "lo')
    assert learning_data([str(run)])["runs"][0]["steps"] == 700
    (run / "metrics.jsonl").write_text('{"step": 1, "lo\n{"step": 2}\n')
    with pytest.raises(InputError, match="line 1 is damaged"):
        learning_data([str(run)])
    (run / "metrics.jsonl").unlink()
    assert learning_data([str(run)])["runs"][0]["curves"] == []


def test_results_give_curves_in_the_order_of_k(results):
    assert is_results(str(results)) and not is_run(str(results))
    data = learning_data([str(results)])
    assert data["runs"] == []
    assert [each["ways"]["image"] for each in data["recalls"]] == [
        [[1, 0.5], [10, 1.0]],
        [[1, 0.75], [10, 1.0]],
    ]
    assert "lost" not in data["results"][0]["metrics"]
    assert data["neighbours"][0]["ways"]["image_retrieval"]["wrong"][0]["rank"] == 2


def test_other_folders_and_too_many_runs_are_refused(run, results, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="neither a run"):
        learning_data([str(run), str(tmp_path / "empty")])
    with pytest.raises(InputError, match="5 runs; a page compares at most 4"):
        learning_data([str(run)] * 5)
    (results / "neighbours_a.json").write_text("{}")
    with pytest.raises(InputError, match="no neighbours"):
        learning_data([str(results)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_runs_nothing_and_axe_finds_nothing(run, results, tmp_path, browser, scheme):
    path = tmp_path / "page.html"
    path.write_text(report_html(learning_data([str(run), str(results)])), encoding="utf-8")
    page = Page(browser, path.as_uri(), viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.wait_for_selector(".query")
    assert page.locator(".chart svg").count() == 5
    assert page.locator(".query .asked").inner_text() == HOSTILE
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert min(page.evaluate(LETTERS)) >= 11
    assert violations(page) == []
    assert page.evaluate("window.hacked") is None and page.from_network == []
    assert [fault for fault in page.faults if "decode" not in fault] == []
    page.close()


@pytest.fixture
def second(run, tmp_path):
    """Half as long as the first, with the same name; its loss is constant but for the first point, 2.5."""
    folder = tmp_path / "other" / "run"
    shutil.copytree(run, folder, symlinks=True)
    lines = [{"step": s, "total_steps": 350, "loss": 4.0 if s == 1 else 1.0, "lr": 1e-4}
             for s in range(1, 351)]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def opened(browser, tmp_path, folders, **options):
    path = tmp_path / "page.html"
    path.write_text(report_html(learning_data([str(each) for each in folders])), encoding="utf-8")
    page = Page(browser, path.as_uri(), **options)
    page.wait_for_selector(".plane svg")
    return page


def test_a_curve_tells_its_values_to_mouse_and_keyboard(run, tmp_path, browser):
    page = opened(browser, tmp_path, [run])
    points = learning_data([str(run)])["runs"][0]["curves"][0]["points"]
    plane, tip = page.locator(".plane svg").first, page.locator(".tip").first
    assert tip.is_hidden()
    place = plane.bounding_box()
    page.mouse.move(place["x"] + 1, place["y"] + place["height"] / 2)
    expect(tip).to_be_visible()
    assert tip.inner_text().split() == ["step", "3", f"{points[0][1]:.4g}"]
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    plane.focus()
    page.keyboard.press("End")
    assert tip.inner_text().split() == ["step", "700", f"{points[-1][1]:.4g}"]
    page.keyboard.press("ArrowLeft")
    assert tip.inner_text().split() == ["step", str(points[-2][0]), f"{points[-2][1]:.4g}"]
    assert plane.get_attribute("aria-valuetext") == f"step {points[-2][0]}: {points[-2][1]:.4g}"
    page.keyboard.press("Home")
    assert plane.get_attribute("aria-valuenow") == "3"
    page.keyboard.press("Tab")
    assert tip.is_hidden() and page.faults == []
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_several_runs_lie_over_each_other(run, second, tmp_path, browser, width):
    page = opened(browser, tmp_path, [run, second], viewport={"width": width, "height": 900}, bypass_csp=True)  # fmt: skip
    names = [f"{tmp_path.name}/run", "other/run"]
    assert page.locator("h1").inner_text() == " · ".join(names)
    loss = page.locator(".exhibit .chart")
    assert loss.locator(".legend li").all_inner_texts() == names
    assert loss.locator("path.line").count() == 2
    plane, tip = loss.locator("svg"), loss.locator(".tip")
    plane.focus()
    for key, last in (("End", "–"), ("Home", "2.5")):  # the second run is over before the end
        page.keyboard.press(key)
        assert tip.locator("span").nth(1).inner_text() == f"other/run {last}"
    settings = page.locator(".origin tbody tr")
    assert settings.first.locator("td").count() == 2
    rows = page.locator("#checkpoints tbody tr td:first-child").all_inner_texts()
    assert rows[:3] == [names[0], names[0], names[1]] and set(rows[2:]) == {names[1]}
    assert violations(page) == [] and page.faults == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


def test_smoothing_is_the_moving_average_that_tensorboard_draws(second, tmp_path, browser):
    page = opened(browser, tmp_path, [second])
    page.locator(".smoother input").fill("0.5")
    assert page.locator(".smoother output").inner_text() == "0.50"
    assert page.locator(".exhibit path.line").count() == 2  # the raw curve stays, faint
    points = [value for _, value in learning_data([str(second)])["runs"][0]["curves"][0]["points"]]
    page.locator(".plane svg").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    mean = (0.25 * points[0] + 0.5 * points[1]) / 0.75
    assert page.locator(".tip").first.inner_text().split()[-1] == f"{mean:.4g})"
    page.close()


def test_the_command_takes_several_runs_but_two_datasets(run, second, built, tmp_path, run_glit):
    page = tmp_path / "page.html"
    assert run_glit("view", run, second, "-o", page).code == 0
    three = run_glit("view", built, built, built, "-o", page)
    assert three.code == 2
    assert three.errors == "glit: 3 datasets; a page compares two: glit view A B -o OUT\n"


def test_the_command_takes_what_train_and_eval_wrote(built, tmp_path, run_glit):
    done = run_glit("eval", "retrieval", "mini-matcher", built, "-o", tmp_path / "scores")
    assert done.code == 0, done.errors
    found = json.loads((tmp_path / "scores" / "neighbours_mini-matcher.json").read_text())
    metrics = json.loads((tmp_path / "scores" / "retrieval_mini-matcher.json").read_text())[
        "metrics"
    ]
    for way in ("image_retrieval", "text_retrieval"):
        right, wrong = found["ways"][way]["right"], found["ways"][way]["wrong"]
        assert all(each["rank"] == 0 and each["nearest"][0]["right"] for each in right)
        assert all(each["rank"] > 0 and not each["nearest"][0]["right"] for each in wrong)
        assert bool(right) == (metrics[f"{way}_recall@1"] > 0)
        assert bool(wrong) == (metrics[f"{way}_recall@1"] < 1)
        for each in [*right, *wrong]:
            scores = [item["score"] for item in each["nearest"]]
            assert scores == sorted(scores, reverse=True) and len(scores) == 3
    page = tmp_path / "page.html"
    shown = run_glit("view", tmp_path / "scores", "-o", page)
    assert shown.code == 0 and page.stat().st_size > 50_000
    assert run_glit("view", tmp_path / "scores", "--serve").code == 2


@pytest.mark.slow
def test_maps_of_a_run_and_of_one_image(run, built, tiny_clip, tmp_path, run_glit, browser):
    """The model that is named and the run, by each sentence of a few samples of its dataset."""
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "dataset": str(built)}))
    shutil.copytree(tiny_clip, run / "best", dirs_exist_ok=True)
    page = tmp_path / "page.html"
    assert run_glit("view", run, "-o", page, "--maps", tiny_clip, "--quiet").code == 0
    path = next(iter(Dataset(built).rows(images=False))).source_path
    words = ["explain", built, path, "--maps", tiny_clip, "--maps", run]
    assert "add -o page.html" in run_glit(*words).errors
    assert run_glit(*words, "-o", tmp_path / "one.html", "--quiet").code == 0
    for file, names in ((page, [tiny_clip.name, run.name]), (tmp_path / "one.html", None)):
        shown = Page(browser, file.as_uri())
        shown.wait_for_selector(".map figcaption")
        said = shown.locator(".card").first.locator(".map figcaption").all_text_contents()
        assert len(said) == 2 and all("cosine" in each for each in said)
        assert names is None or [each.split(" ")[0] for each in said] == names
        assert violations(shown) == []
        shown.close()
