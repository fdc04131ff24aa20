"""Backends that look up what the user gives, in place of a model: captions, and regions with their
sentences and phrases. ``provided`` reads the user's table, ``sidecar`` and ``file`` the file beside
an image: ``NAME.txt``, else ``NAME.caption``, and ``NAME.json``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Any

from glit.data.frames import upright_orientation
from glit.data.records import Drop, Region
from glit.inputs.lookup import BroughtCaptions
from glit.inputs.region_file import read_region_file
from glit.models.backends.base import PLAIN_BYTES, Backend
from glit.models.backends.protocols import MatcherConfig, ProposerConfig, ReadText
from glit.models.weights import Resolved
from glit.recipes.config import require_value
from glit.storage.members import ALIKE, stem

_TEXT, _JSON = ".txt", ".json"


class SidecarCaptions:
    """Captions in text files beside the images."""

    name = "sidecar"
    strips = True

    def find(self, paths: Sequence[str], read_text: ReadText) -> list[str | Drop]:
        return [self._read(stem(path), read_text) for path in paths]

    def _read(self, name: str, read_text: ReadText) -> str | Drop:
        for suffix in (_TEXT, *ALIKE[_TEXT]):
            try:
                text = read_text(name + suffix)
            except (OSError, UnicodeError) as error:
                return Drop(reason="no_caption", message=f"{name}{suffix} cannot be read: {error}")
            if text is not None:
                return text
        return Drop(reason="no_caption", message=f"there is no {posixpath.basename(name)}{_TEXT}")


class RegionFileReader:
    """See :class:`glit.models.backends.protocols.RegionReader`."""

    def __init__(self, config: ProposerConfig, model: Resolved | None = None) -> None:
        self._config = config

    def read(
        self,
        text: str,
        *,
        width: int,
        height: int,
        orientation: Callable[[], int] = upright_orientation,
    ) -> list[Region]:
        read = read_region_file(text, width=width, height=height, orientation=orientation)
        found = [each.region for each in read]
        return [region for region in found if region.score >= self._config.score_threshold]


def _check_matcher(config: MatcherConfig, model: Resolved | None) -> None:
    """Refuse options of [score] that want a model."""
    wanted = {"phrases": False, "crop": "tight"}
    for key, plain in wanted.items():
        require_value(
            getattr(config, key, plain) == plain,
            f"[score] {key}: score.backend = {getattr(config, 'backend', 'file')!r} compares "
            "nothing; leave it out",
        )


def _captions(brought: BroughtCaptions) -> BroughtCaptions:
    return brought


_LOOKED_UP: dict[str, Any] = {"needs_model": False, "process_bytes": PLAIN_BYTES}
_FILE: dict[str, Any] = {"reads": "file", "beside": _JSON, **_LOOKED_UP}
_GIVEN = {**_FILE, "beside": "", "brings": "regions"}
PROVIDED_CAPTIONS = Backend(make=_captions, reads="nothing", brings="captions", **_LOOKED_UP)
SIDECAR = Backend(make=lambda _: SidecarCaptions(), reads="file", beside=_TEXT, **_LOOKED_UP)
PROPOSER = Backend(make=RegionFileReader, keeps_masks=True, **_FILE)
MATCHER = Backend(make=lambda *_: None, check=_check_matcher, **_FILE)
GROUNDER = Backend(make=lambda *_: None, **_FILE)
PROVIDED_PROPOSER = Backend(make=RegionFileReader, keeps_masks=True, **_GIVEN)
PROVIDED_MATCHER = Backend(make=lambda *_: None, check=_check_matcher, **_GIVEN)
PROVIDED_GROUNDER = Backend(make=lambda *_: None, **_GIVEN)
