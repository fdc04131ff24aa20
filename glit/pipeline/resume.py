"""The command line that resumes a build."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from glit.recipes.resources import builtin_recipes
from glit.storage.store import absolute

_SECRET = re.compile(r"://[^/]*@|://.*\?|(password|secret|token|key)=", re.IGNORECASE)
"""A user or a query in an address, or a setting that is named like a key."""


def build_words(
    images: str,
    output: str,
    recipe: str,
    *,
    settings: Sequence[str] = (),
    captions: str | None = None,
    regions: str | None = None,
    executor: str = "ray",
    ray_address: str | None = None,
    limit: int | None = None,
    replace: bool = False,
    locked: bool = False,
) -> tuple[str, ...]:
    """The words of ``glit build``, with absolute paths; none where one may be a secret."""
    named = recipe if recipe in builtin_recipes() else absolute(recipe)
    words = ["glit", "build", absolute(images), "-o", absolute(output), "-r", named]
    for setting in settings:
        words += ["--set", setting]
    words += ["--captions", absolute(captions)] if captions is not None else []
    words += ["--regions", absolute(regions)] if regions is not None else []
    words += ["--executor", executor] if executor != "ray" else []
    words += ["--ray-address", ray_address] if ray_address is not None else []
    words += ["--limit", str(limit)] if limit is not None else []
    words += ["--replace"] if replace else []
    words += ["--locked"] if locked else []
    return () if any(map(_SECRET.search, words)) else tuple(words)


def shell_line(words: Sequence[str]) -> str:
    """The words as a shell takes them; paths below this folder are relative to it.

    >>> shell_line(["glit", "build", os.path.abspath("my photos"), "-o", "/data/out"])
    "glit build 'my photos' -o /data/out"
    """
    here = os.path.join(os.getcwd(), "")
    return shlex.join(word.removeprefix(here) for word in words)
