"""Interpolate between the weights of a start and its fine-tuned model (WiSE-FT).

weights = (1 - alpha) * start + alpha * end  (Wortsman et al.: Robust fine-tuning of zero-shot
models, CVPR 2022, section 3): what was forgotten comes back, most of what was learned stays.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from glit.errors import UserError, WeightsError
from glit.models.clip.folder import write_json, write_model
from glit.models.clip.image_processor import read_preprocessing
from glit.models.clip.kinds import open_model
from glit.models.clip.runs import find_model, refuse_own_encoders
from glit.models.clip.text_window import stretch_model
from glit.models.tokenizer import tokenizer_hash
from glit.runtime.process_state import without_bars
from glit.runtime.progress import StageProgress, null_progress
from glit.storage.outputs import new_folder
from glit.version import __version__

if TYPE_CHECKING:
    from transformers import CLIPModel

NOTE = "interpolated.json"
_COMPUTED_WITH = (
    "hidden_act",
    "layer_norm_eps",
    "num_attention_heads",
    "patch_size",
    "image_size",
    "eos_token_id",
)
"""Keys of each tower's configuration: where two models differ here, their weights mean other
things."""


def interpolate(
    start: str, end: str, output: Path, *, alpha: float, progress: StageProgress | None = None
) -> str:
    """Write a CLIPModel folder between two models; returns which checkpoint ``end`` was.

    Args:
        start: what ``end`` was fine-tuned from; shorter text windows are stretched as they were.
        end: a run (its best checkpoint), a folder, a hub id.
        output: a folder that does not exist yet.
        alpha: 0 is the start, 1 the end.
        progress: told which model is loaded.

    What an objective learned beside CLIP is left out: the start has nothing to mix it with.

    Raises:
        InputError: the folder exists, or cannot be written.
        UserError: ``alpha`` is not between 0 and 1, or the models do not fit together; says where.
    """
    if not 0 <= alpha <= 1:
        raise UserError(f"--alpha {alpha}: wanted 0 (the start) to 1 (the end)")
    progress, names = progress or null_progress(), f"{start} and {end}"
    with new_folder(output) as folder, without_bars():
        progress.begin("models", total=2, done=0, drops=False)
        first, last = find_model(start), find_model(end)
        for found, name in ((first, start), (last, end)):
            refuse_own_encoders(found.folder, name)
        if tokenizer_hash(first.folder) != tokenizer_hash(last.folder):
            raise WeightsError(f"{names}: they have other tokenizers, so nothing lies between")
        before = _loaded(first.folder, start, progress)
        after = _loaded(last.folder, end, progress)
        context = after.text_model.config.max_position_embeddings
        if before.text_model.config.max_position_embeddings < context:
            stretch_model(before, context)
        _check_alike(before, after, names)
        _mix(before, after, alpha, names)
        preprocessing = read_preprocessing(last.folder)
        write_model(folder, after, start=last.folder, preprocessing=preprocessing)
        note = {"glit": __version__, "start": start, "end": end, "checkpoint": last.checkpoint}
        write_json(folder / NOTE, {**note, "alpha": alpha})
        return last.checkpoint


def _loaded(folder: Path, name: str, progress: StageProgress) -> CLIPModel:
    progress.loading(name)
    model = open_model(folder)
    progress.advance(1)
    return model


def _check_alike(before: CLIPModel, after: CLIPModel, names: str) -> None:
    for tower in ("text_config", "vision_config"):
        one: Any = getattr(before.config, tower)
        other: Any = getattr(after.config, tower)
        for key in _COMPUTED_WITH:
            values = getattr(one, key, None), getattr(other, key, None)
            if values[0] != values[1]:
                raise WeightsError(
                    f"{names}: {tower}.{key} is {values[0]!r} in one and {values[1]!r} in the "
                    "other; give the model that the second was fine-tuned from"
                )
    shapes = [{k: tuple(v.shape) for k, v in m.state_dict().items()} for m in (before, after)]
    for name in sorted(set(shapes[0]) | set(shapes[1])):
        found, wanted = shapes[0].get(name), shapes[1].get(name)
        if found != wanted:
            raise WeightsError(
                f"{names}: the weight {name} is {found or 'missing'} in one and "
                f"{wanted or 'missing'} in the other; give the model that the second was "
                "fine-tuned from"
            )


@torch.no_grad()
def _mix(before: CLIPModel, after: CLIPModel, alpha: float, names: str) -> None:
    """Move the second model's weights, in place."""
    starts = before.state_dict()
    for name, weight in after.state_dict().items():
        if weight.is_floating_point():
            weight.copy_(torch.lerp(starts[name].double(), weight.double(), alpha))
            if not bool(weight.isfinite().all()):
                raise WeightsError(f"{names}: the weight {name} is not finite; is one damaged?")
