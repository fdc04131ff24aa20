"""Keys and passwords that must not leave the process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from chat_server import Server, ok

from glit.data.records import Drop
from glit.errors import UserError, cut, first_line
from glit.masking import masked, remember, without_secrets
from glit.models.backends.captioners import CAPTIONERS
from glit.pipeline.planning.recipe import load_recipe
from glit.stages.caption import CaptionConfig

KEY = "sk-9f8e7d6c5b4a"
GREY = np.full((4, 4, 3), 200, np.uint8)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("http://ann:pw@h:1/v1", "http://***@h:1/v1"),
        ("https://tok3n@h/v1?x=1", "https://***@h/v1?x=1"),
        ("https://h/a?X-Amz-Signature=abc&y=2", "https://h/a?X-Amz-Signature=***&y=2"),
        ("az://c/a?sv=1&sig=a%2Bb", "az://c/a?sv=1&sig=***"),
        ("photos/a@b.png, mail a@b.org", "photos/a@b.png, mail a@b.org"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
    ],
)
def test_secrets_of_addresses_are_hidden(text, want):
    assert masked(text) == want


def test_what_came_from_the_environment_is_hidden_everywhere(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:pr0xy-pass@proxy:3128")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalr/XUtn+FEMI")
    remember(KEY)
    text = f"{KEY} pr0xy-pass wJalr/XUtn+FEMI wJalr%2FXUtn%2BFEMI"
    assert masked(text) == "*** *** *** ***"
    error = UserError(f"refused {text}")
    for said in (
        str(error), str(pickle.loads(pickle.dumps(error))), first_line(ValueError(text)),
        Drop(reason="captioner_error", message=text).message, cut("x" * 145 + text * 9, 150),
    ):  # fmt: skip
        assert KEY[:6] not in said and "pr0xy" not in said and "wJalr" not in said


def test_a_server_that_repeats_the_key_tells_it_to_nobody(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with Server() as server:
        config = CaptionConfig(
            backend="endpoint", model="m", retries=0, api_key_env="MY_KEY",
            endpoint=server.url.replace("://", "://ann:s3cret-word@"),
        )  # fmt: skip
        made = CAPTIONERS["endpoint"].make(config, None, "Describe it.")
        said = f"no such key {KEY} of ann:s3cret-word " + "x" * 250 + KEY
        server.answers = [(401, {}, {"error": said})]
        with pytest.raises(UserError, match="no such key") as error:
            made.caption([GREY], seeds=[0], temperature=0.0)
        server.answers = [(400, {}, {"error": said})]
        with pytest.raises(Exception, match="no such key") as drop:
            made.caption([GREY], seeds=[0], temperature=0.0)
        server.answers = [ok("It went through.")]
        assert made.caption([GREY], seeds=[0], temperature=0.0)[0].text == "It went through."
    for text in (str(error.value), str(drop.value)):
        assert KEY[:8] not in text and "s3cret-word" not in text


def test_a_password_in_the_address_is_in_no_manifest():
    recipe = load_recipe(
        "captions-only",
        overrides=["caption.backend=endpoint", "caption.endpoint=http://ann:s3cret@h:8000/v1"],
    )
    assert recipe.caption.endpoint == "http://ann:s3cret@h:8000/v1"
    assert recipe.as_dict()["caption"]["endpoint"] == "http://h:8000/v1"
    assert without_secrets("http://h/v1?api_key=abcd") == "http://h/v1?api_key=***"


def test_the_traceback_of_an_unexpected_error_hides_keys():
    program = (
        "import os, warnings\nimport glit.cli.main as main\n"
        "def broken():\n"
        "    warnings.warn('sent ' + os.environ['HF_TOKEN'])\n"
        "    raise ValueError('bad header Bearer ' + os.environ['HF_TOKEN'])\n"
        "main.app = broken\nmain.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env={**os.environ, "HF_TOKEN": KEY},
    )  # fmt: skip
    assert done.returncode == 1
    assert "ValueError: bad header Bearer ***" in done.stderr and "sent ***" in done.stderr
    assert "in broken" in done.stderr and KEY not in done.stdout + done.stderr


def test_an_unexpected_error_of_a_worker_on_ray_hides_keys():
    pytest.importorskip("ray")
    from glit.pipeline.executors.ray_actor import _guarded

    remember(KEY)

    def broken() -> None:
        raise KeyError(f"bad header Bearer {KEY}")

    with pytest.raises(RuntimeError, match=r"bad header Bearer \*\*\*") as error:
        _guarded(broken)
    assert KEY not in str(error.value) and error.value.__cause__ is None
    with pytest.raises(KeyError, match="plain"):
        _guarded(lambda: {}["plain"])
