"""A stage of glit that does the work of :mod:`tools.measure.peers.crashes` on every image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from glit import extend
from glit.data.records import Drop, Sample
from glit.stages.base import Stage
from tools.measure.peers.crashes import noted


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedConfig:
    """Keys of [noted]."""

    enabled: bool = False
    """Whether images are worked on."""


class Noted(Stage):
    """Decodes and hashes each image once more, and leaves a line in the log."""

    name, version, config = "noted", 1, NotedConfig
    reads, filters = ("image",), True
    reasons: ClassVar = {}
    title = "Noted"

    @classmethod
    def open(cls, plan: Any) -> Noted:
        return cls()

    def process(self, samples: Sequence[Sample], images: Any) -> Iterator[Sample | Drop]:
        """Every sample as it is."""
        for sample in samples:
            data = images.read(sample)
            if not isinstance(data, Drop):
                noted(data)
            yield data if isinstance(data, Drop) else sample


extend.add_stage(Noted, before="caption")
