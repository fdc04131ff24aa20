"""Load an objective's own parameters from the checkpoint that is measured."""

from __future__ import annotations

import json
from typing import TypeVar

from glit.errors import UserError
from glit.evaluation.encode import CollectionEmbedder
from glit.models.clip.runs import OBJECTIVE, read_objective
from glit.recipes.config import build_dataclass
from glit.training.checkpoint import read_module
from glit.training.module import ObjectiveModule
from glit.training.objective import Objective
from glit.training.objectives import OBJECTIVES

M = TypeVar("M", bound=ObjectiveModule)


def learned_module(
    embedder: CollectionEmbedder, kind: type[M], *, scorer: str
) -> tuple[Objective, M]:
    """Load a checkpoint's objective and its module, on the model's device.

    Args:
        embedder: the checkpoint's model.
        kind: of the module.
        scorer: that needs it, for messages.

    Raises:
        UserError: the checkpoint's objective has another module, or the text window another length.
        WeightsError: it has none, or its weights are damaged.
    """
    keys = read_objective(embedder.folder)
    name = keys.pop("objective")
    where = str(embedder.folder / OBJECTIVE / "config.json")
    found: type[Objective] | None = OBJECTIVES.get(name)
    if found is None:
        raise UserError(
            f"{embedder.name}: was trained with {name!r}, which is no objective of this glit; load "
            "the plugin that has it (docs/extend.md)"
        )
    objective = build_dataclass(found, keys, where=where)
    module = objective.module(embedder.encoder)
    if not isinstance(module, kind):
        raise UserError(
            f"evaluate.scorer = {scorer!r}: {embedder.name} was trained with {name!r}, which has "
            "none of what this scorer compares; give another run, or another scorer"
        )
    own = json.loads((embedder.folder / "config.json").read_text(encoding="utf-8"))
    context = own["text_config"]["max_position_embeddings"]
    if context != embedder.context:
        raise UserError(
            f"evaluate.context = {embedder.context}: {embedder.name} was trained with {context}, "
            f"and what it learned beside CLIP fits no other; set evaluate.context={context}"
        )
    read_module(embedder.folder, module)
    return objective, module.to(embedder.device).eval()
