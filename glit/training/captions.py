"""Choose which of an image's captions are trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glit.data.captions import SHORT, text_of_kind
from glit.data.schema import has_captions
from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError
from glit.training.config import CaptionChoice, TrainConfig
from glit.training.input_spec import InputSpec
from glit.training.mixture import Mixture
from glit.training.objective import Objective


def reads_captions(objective: Objective, caption: CaptionChoice = "long") -> bool:
    """Return whether samples are planned from the column ``captions``, where the dataset has it."""
    return caption != "long" or bool(objective.takes_short and objective.needs.num_texts)


def chosen_caption(
    caption: str,
    captions: Sequence[Mapping[str, Any]],
    how: CaptionChoice,
    draw: np.random.Generator | None,
) -> str:
    """The text that an image is compared with; see ``train.caption``.

    Args:
        caption: the sample's long one.
        captions: all that it has; it may have none.
        how: the choice.
        draw: randomness of this sample, for ``sample``.
    """
    if how == "short":
        return text_of_kind(captions, SHORT) or caption
    if how == "sample" and captions:
        assert draw is not None
        return captions[int(draw.integers(len(captions)))]["text"]
    return caption


def check_captions(config: TrainConfig, dataset: Mixture, objective: Objective) -> None:
    """Refuse a choice of captions that a dataset or an objective does not have.

    Raises:
        InputError: a dataset has one caption an image.
        RecipeError: the objective learns from the words of the long caption.
    """
    if config.caption == "long":
        return
    if without := [part.path for part in dataset.parts if not has_captions(part.schema)]:
        raise InputError(
            f"{without[0]}: has one caption an image, and train.caption = {config.caption!r} "
            "chooses among several; build it with --captions of several kinds (docs/captions.md)"
        )
    if config.caption == "short" and not any(map(_has_short, dataset.parts)):
        raise InputError(
            f"{dataset.path}: no image has a caption of the kind 'short', which train.caption = "
            "'short' takes"
        )
    if _follows_long(objective.needs):
        raise RecipeError(
            f"train.caption = {config.caption!r}: train.objective = {config.objective!r} takes its "
            "sentences from the long caption as it is encoded; leave train.caption out"
        )


def short_text_note(config: TrainConfig, dataset: str) -> str:
    """Return the note on short texts that a run shows before it begins; empty where it has none."""
    objective = config.make_objective()
    if not (objective.takes_short and objective.needs.num_texts):
        return ""
    parts = [Dataset(path) for path in (dataset, *config.also)]
    having = [_has_short(part) for part in parts]
    if objective.needs_short:
        some = "short texts: captions of the kind 'short'; none for images without one"
        return some if any(having) else ""
    if all(having):
        return "short texts: captions of the kind 'short'; the first sentence where there is none"
    where = "" if not any(having) else f" in {parts[having.index(False)].path}"
    return f"short texts: first sentences, as there are no captions of the kind 'short'{where}"


def _has_short(dataset: Dataset) -> bool:
    """Return whether any image has a short caption; stops at the first row group that has one."""
    return has_captions(dataset.schema) and any(
        text_of_kind(captions, SHORT)
        for number in range(len(dataset.places))
        for captions in dataset.table(["captions"], row_group=number)["captions"].to_pylist()
    )


def _follows_long(needs: InputSpec) -> bool:
    return needs.pooled_tokens or not needs.captions
