"""What is refused before the first image is read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from building import Counting, png, run_build, with_captions_beside
from rich.console import Console

from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError, UserError
from glit.models import int8
from glit.models.backends.captioners.endpoint import reach
from glit.models.backends.protocols import CaptionerConfig
from glit.runtime.progress import StageProgress
from glit.storage.store import Store
from glit.view.report import overview


@pytest.fixture
def images(scenes, tmp_path):
    """Two scenes with captions beside them."""
    return with_captions_beside(scenes, tmp_path / "images", 2)


class Nothing(Counting):
    """Fails where any work is handed out."""

    def run(self, jobs):
        raise AssertionError(f"{jobs[0].task.name} was begun")


class Begun(Exception):
    """The checks were passed."""


class Stops(Counting):
    def run(self, jobs):
        raise Begun


def refused(images, tmp_path, kind, message, *overrides):
    with pytest.raises(kind, match=message) as said:
        run_build(images, tmp_path / "out", overrides=list(overrides), executor=Nothing())
    assert "\n" not in str(said.value)
    assert not (tmp_path / "out").exists(), "of a build that did not begin nothing stays"


class Keyed(BaseHTTPRequestHandler):
    """Knows one key, and no list of models."""

    def do_GET(self):
        known = self.headers["authorization"] == "Bearer a-good-key"
        self.send_response(404 if known else 401)
        self.end_headers()

    def log_message(self, format, *args):
        pass


@pytest.fixture
def address() -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Keyed)
    Thread(target=http.serve_forever, args=[0.01], daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}/v1"
    http.shutdown()
    http.server_close()


def test_an_endpoint_that_is_down(images, tmp_path):
    with socket.socket() as held:  # bound, but not listening: nobody else gets the port
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        refused(
            images, tmp_path, UserError, f"caption endpoint http://127.0.0.1:{port}/v1: no answer",
            "caption.backend=endpoint", f"caption.endpoint=http://127.0.0.1:{port}/v1",
        )  # fmt: skip


@pytest.mark.parametrize("wrong", ["127.0.0.1:8000/v1", "http://[broken/v1"])
def test_an_address_that_is_none(wrong):
    with pytest.raises(UserError, match="no answer"):
        reach(CaptionerConfig(endpoint=wrong))


def test_a_key_that_is_refused_is_not_told(address, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with pytest.raises(UserError, match=r"HTTP 401, the key is refused; check \$OPENAI") as said:
        reach(CaptionerConfig(endpoint=address))
    assert "sk-very-secret" not in str(said.value)


def test_an_endpoint_without_a_list_of_models_is_up(address, monkeypatch, images, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "a-good-key")
    settings = ["caption.backend=endpoint", f"caption.endpoint={address}"]
    with pytest.raises(Begun):
        run_build(images, tmp_path / "out", overrides=settings, executor=Stops())


MASKS = ["caption.backend=sidecar", "propose.backend=sa1b"]


def test_masks_that_no_image_has(images, tmp_path):
    refused(images, tmp_path, InputError, "reads NAME.json .* none of the 2 images", *MASKS)


class Notes(StageProgress):
    def __init__(self) -> None:
        super().__init__(Console(quiet=True), quiet=True)
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def begun_with(images, tmp_path, *overrides) -> list[str]:
    notes = Notes()
    with pytest.raises(Begun):
        run_build(
            images, tmp_path / "out", overrides=list(overrides), executor=Stops(), progress=notes
        )
    return notes.said


def test_masks_that_some_images_lack_are_told(images, tmp_path):
    (images / "000000.json").write_text("{}")
    [said] = begun_with(images, tmp_path, *MASKS)
    assert said.startswith("1 of 2 images have no NAME.json")


@pytest.mark.parametrize("store", ["bytes", "path"])
def test_a_disk_that_is_far_too_small(images, tmp_path, monkeypatch, store):
    size = sum(file.stat().st_size for file in images.glob("*.png"))
    monkeypatch.setattr(Store, "free_bytes", lambda self: size // 2 - 1)
    settings = ["caption.backend=sidecar", f"pack.image_store={store}"]
    if store == "bytes":
        refused(
            images,
            tmp_path,
            UserError,
            "kB free, but the images to be stored have .* kB",
            *settings,
        )
    else:
        assert begun_with(images, tmp_path, *settings) == []


def test_a_disk_that_may_be_too_small_is_told(images, tmp_path, monkeypatch):
    size = sum(file.stat().st_size for file in images.glob("*.png"))
    monkeypatch.setattr(Store, "free_bytes", lambda self: size - 1)
    [said] = begun_with(images, tmp_path, "caption.backend=sidecar")
    assert "may become full" in said


@pytest.mark.parametrize("exact", [True, False])
def test_8_bits_on_a_machine_that_adds_them_wrongly_are_told(images, tmp_path, monkeypatch, exact):
    monkeypatch.setattr(int8, "is_exact", lambda: exact)
    settings = ["caption.backend=sidecar", "score.precision=int8"]
    told = begun_with(images, tmp_path, *settings)
    assert len(told) == (not exact) and all(
        "score.precision = 'int8': this machine" in each for each in told
    )


def test_an_empty_prompt(images, tmp_path):
    (prompt := tmp_path / "prompt.txt").write_text(" \n")
    refused(images, tmp_path, RecipeError, "is empty", f"caption.prompt={prompt}")


@pytest.mark.parametrize("photographs", [False, True])
def test_mini_models_are_not_let_loose_on_photographs_in_silence(
    scenes, tmp_path, capsys, photographs
):
    images = with_captions_beside(scenes, tmp_path / "images", 2)
    for path in images.glob("*.png") if photographs else ():
        path.write_bytes(png(seed=len(path.name)))
    with pytest.raises(Begun):
        run_build(
            images, tmp_path / "out", overrides=["caption.backend=sidecar"], executor=Stops(),
            progress=StageProgress(Console(width=400)), recipe="mini",
        )  # fmt: skip
    assert ("For photographs choose -r laptop" in capsys.readouterr().out) == photographs


def test_mini_models_that_a_later_build_brings_in_are_warned_of_too(scenes, tmp_path, capsys):
    """Nothing is ingested any more, and the boxes are the user's: the pairs are what is wrong."""
    images = with_captions_beside(scenes, tmp_path / "images", 2)
    for path in images.glob("*.png"):
        path.write_bytes(png(seed=len(path.name)))
    for words in ({}, {"replace": True}):
        overrides = ["caption.backend=sidecar", "propose.backend=grid"]
        overrides += [f"pair.rule={'lism' if words else 'argmax'}"]
        run_build(
            images, tmp_path / "out", overrides=overrides,
            progress=StageProgress(Console(width=400)), **words, recipe="mini",
        )  # fmt: skip
        said = capsys.readouterr().out
        assert "images look otherwise; the pairs will mean nothing" in said
        card = " ".join((tmp_path / "out" / "README.md").read_text().split())
        warned = (
            "The pairs mean nothing. What mini-matcher learned is glit's procedural scenes alone"
        )
        assert warned in card and overview(Dataset(tmp_path / "out"))["caution"].startswith(warned)


def test_cards_and_pages_of_scenes_have_no_such_warning(built):
    assert "mean nothing" not in (built / "README.md").read_text()
    assert overview(Dataset(built))["caution"] == ""
