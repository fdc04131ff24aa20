"""Rights: what every picture says of the rights in it, and drops by that, before it is paid for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from glit.data.records import Drop, Sample
from glit.inputs.rights import RIGHTS, Reservations, Rights, read_reservations, read_rights
from glit.inputs.rights.signature import check_signature
from glit.recipes.config import RecipeTable, file_name, require_value
from glit.stages.base import Outcome, Stage
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan, Recipe

_REASONS = {
    "mining_prohibited": "the picture or a file of rights.reservations forbids data mining",
    "ai_generated": "the picture says that a trained model made it, in part at least",
    "no_licence": "the picture names no licence, web statement of rights or usage terms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsConfig(RecipeTable):
    """Statements on rights in pictures; nothing is dropped unless it is chosen."""

    table: ClassVar = "rights"
    enabled: bool = False
    """True reads EXIF, IPTC, XMP and C2PA; the dataset gets a column ``rights``."""
    drop: tuple[str, ...] = ()
    """Drop pictures for these reasons: ``mining_prohibited``, ``ai_generated``, ``no_licence``."""
    reservations: tuple[str, ...] = file_name(())
    """Files that reserve rights by the pictures' paths: ``tdmrep.json``, ``ai.txt``,
    ``robots.txt``; paths or addresses."""
    agents: tuple[str, ...] = ("*",)
    """User agents whose groups count in ``ai.txt`` and ``robots.txt``."""
    check_signatures: bool = False
    """True checks the signatures of C2PA manifests, by the extra ``c2pa``."""

    def check(self) -> None:
        for reason in self.drop:
            require_value(
                reason in _REASONS,
                f"[rights] drop: found {reason!r}, want some of {', '.join(_REASONS)}",
            )


class RightsStage(Stage):
    """Reads what every picture says of its rights."""

    name = "rights"
    version = 2
    reads = ("image",)
    makes = ("rights",)
    filters, retryable = True, True
    reasons: ClassVar = _REASONS
    title, shows = "Rights", "drop"
    config = RightsConfig
    columns = dataset_columns = (("rights", RIGHTS),)
    about: ClassVar = {
        "rights": "What the picture says of the rights in it, by EXIF, IPTC, XMP and C2PA"
    }

    def __init__(self, config: RightsConfig, reservations: Sequence[Reservations]) -> None:
        self._config, self._reservations = config, reservations

    @classmethod
    def extras(cls, recipe: Recipe) -> Mapping[str, str]:
        config = recipe.of(RightsConfig)
        return {"c2pa": "rights.check_signatures"} if config.check_signatures else {}

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        return {"reservations": [each.sha256 for each in _opened(plan.config(RightsConfig))]}

    @classmethod
    def open(cls, plan: Plan) -> RightsStage:
        config = plan.config(RightsConfig)
        return cls(config, _opened(config))

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        read = partial(_read, check_signatures=self._config.check_signatures)
        for sample, found in zip(samples, images.each_mapped(samples, read), strict=True):
            yield found if isinstance(found, Drop) else self._judged(sample, found)

    def _judged(self, sample: Sample, rights: Rights) -> Outcome:
        for file in self._reservations:
            rights.say("mining", file.mining(sample.source_path), file.name)
        source = rights.sources.get
        wrong = {
            "mining_prohibited": rights.mining == "prohibited" and f"by {source('mining')}",
            "ai_generated": rights.ai_generated and f"by {source('ai_generated')}",
            "no_licence": rights.licence is None and "no licence is named",
        }
        for reason in self._config.drop:
            if message := wrong[reason]:
                return Drop(reason=reason, message=message)
        return dataclasses.replace(sample, extra={**sample.extra, "rights": rights.as_row()})


def _read(data: bytes, *, check_signatures: bool) -> Rights:
    found = read_rights(data)
    if check_signatures and found.c2pa == "present":
        found.c2pa, found.signer = check_signature(data)
    return found


def _opened(config: RightsConfig) -> list[Reservations]:
    return [read_reservations(file, config.agents) for file in config.reservations]
