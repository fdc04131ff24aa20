"""Open and check a run's model, tokenizer and dataset before training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch

from glit.dataset.mini_models import shows_scenes
from glit.dataset.reader import Dataset
from glit.errors import RecipeError
from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.image_processor import Preprocessing, read_preprocessing
from glit.models.clip.kinds import OpenedModel, assemble, open_model
from glit.models.clip.model_types import is_naflex, is_siglip
from glit.models.clip.runs import find_model, refuse_own_encoders
from glit.models.device import has_bfloat16, warn_if_slow
from glit.models.tokenizer import TextTokenizer
from glit.models.weights import is_mini
from glit.runtime.cores import unused_allocation
from glit.training.checkpoint import read_module
from glit.training.checks import (
    check_dataset,
    check_keys,
    check_siglip_suffices,
    check_tokenizer,
)
from glit.training.config import TrainConfig
from glit.training.decode_processes import IS_SUPPORTED
from glit.training.loader import BatchLoader
from glit.training.lora import add_adapters, read_adapters
from glit.training.mixture import Mixture
from glit.training.model import TrainedModel
from glit.training.module import EncodingModule, ObjectiveModule
from glit.training.objective import Objective
from glit.training.optim import lock_towers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """Everything a run needs in addition to its configuration."""

    model: TrainedModel
    objective: Objective
    loader: BatchLoader
    tokenizer: TextTokenizer
    start: Path
    """Folder of the model training started from."""
    preprocessing: Preprocessing


Measure = Callable[[], dict[str, float]]
"""Measures the model in training as it is now. The values are for the log; the best checkpoint has
the highest ``validation_score``."""
OpenMeasure = Callable[[TrainConfig, Ingredients], Measure]
"""Opens what ``train.validation`` names, before anything is trained: whoever starts a run hands it
over (:func:`glit.evaluation.validation.open_validation`), as measuring imports this folder."""


def mixed_precision(wanted: str, device: str) -> Literal["no", "bf16", "fp16"]:
    """Resolve ``train.precision`` for a device: ``auto`` is bf16 on a GPU that supports it."""
    if wanted == "auto":
        return "bf16" if device == "cuda" and has_bfloat16(device) else "no"
    warn_if_slow(wanted, device, where="train.precision")
    return cast(Literal["no", "bf16", "fp16"], wanted)


def prepare(
    config: TrainConfig,
    dataset: str,
    *,
    rank: int = 0,
    num_ranks: int = 1,
    checkpoint: Path | None = None,
    pin_memory: bool = False,
) -> Ingredients:
    """Load and check everything.

    Args:
        config: the run's configuration.
        dataset: folder or address of a finished dataset.
        rank: this process.
        num_ranks: processes of the run.
        checkpoint: weights to go on from, in place of the starting model's.
        pin_memory: page-locked batches, for a GPU; images are decoded in processes.

    Raises:
        InputError: the dataset cannot feed this objective or batch size.
        WeightsError: the model's tokenizer is not the one the dataset's spans were made with.
    """
    if rank == 0 and (told := unused_allocation()):
        warnings.warn(told, stacklevel=2)
    objective = config.make_objective()
    start = find_model(config.model).folder
    refuse_own_encoders(start, config.model)
    if is_naflex(start):
        raise RecipeError(
            f"train.model = {config.model!r}: a NaFlex model, whose images keep their shape, is "
            "measured and matched alone; give a CLIP, or a SigLIP of fixed size"
        )
    if is_siglip(start):
        check_siglip_suffices(config, objective)
    check_keys(config, objective)
    parts = [Dataset(path, image_root=config.image_root) for path in (dataset, *config.also)]
    mixture = Mixture(parts, config.weights)
    check_dataset(config, mixture, objective)
    if rank == 0:
        _warn_of_mini(config, dataset, parts)
    if objective.needs.pooled_tokens:
        for part in parts:
            check_tokenizer(part, config.model, start)
    opened = _opened(config, objective, start, checkpoint)
    encoder, found, tokenizer = opened.encoder, opened.preprocessing, opened.tokenizer
    module = _own_module(config, objective, encoder)
    if module is None and not any(p.requires_grad for p in encoder.parameters() if p.numel() > 1):
        raise RecipeError(
            "train.lock_image and train.lock_text: both together leave nothing to train but the "
            "logit scale; leave one out, or set train.unlocked_blocks"
        )
    if checkpoint is not None and module is not None:
        read_module(checkpoint, module)
    if config.batch_size % num_ranks:
        raise RecipeError(
            f"train.batch_size = {config.batch_size} does not divide among {num_ranks} "
            f"processes; set it to a multiple of {num_ranks}"
        )
    loader = BatchLoader(
        mixture,
        objective,
        lambda texts: tokenizer.encode_closed(texts, context=config.context),
        config,
        side=encoder.side,
        pad_id=tokenizer.end_id,
        patch_size=encoder.patch_size,
        rank=rank,
        num_ranks=num_ranks,
        pin_memory=pin_memory,
        processes=pin_memory and IS_SUPPORTED,
    )
    model = TrainedModel(encoder, objective, module)
    _to_own_memory(model)
    return Ingredients(
        model=model,
        objective=objective,
        loader=loader,
        tokenizer=tokenizer,
        start=start,
        preprocessing=Preprocessing(mean=found.mean, std=found.std, fit=config.image_fit),
    )


def _warn_of_mini(config: TrainConfig, dataset: str, parts: list[Dataset]) -> None:
    """Warn where a mini model is trained on photographs."""
    if is_mini(config.model) and not all(map(shows_scenes, parts)):
        warnings.warn(
            f"{config.model} learned glit's procedural scenes alone, and the images of {dataset} "
            "look otherwise, so what is learned here means little; give a CLIP for photographs "
            "with --set train.model=FOLDER",
            stacklevel=3,
        )


def _to_own_memory(model: torch.nn.Module) -> None:
    """Copy weights out of the file that they are mapped from.

    In the file they begin at any byte, which depends on its header. Products with a batch of one
    sample add up in another order then, so that a resumed run would differ in the last digit.
    """
    for weight in {*model.parameters(), *model.buffers()}:
        weight.data = weight.data.clone()


def _own_module(
    config: TrainConfig, objective: Objective, encoder: ClipEncoder
) -> ObjectiveModule | None:
    """The objective's module, drawn from the run's seed, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        module = objective.module(encoder)
    if objective.own_encoders and not isinstance(module, EncodingModule):
        raise RecipeError(
            f"train.objective = {config.objective!r}: has own_encoders, so its module() has to "
            f"return a glit.training.module.EncodingModule, not {type(module).__name__}"
        )
    return module


def _opened(
    config: TrainConfig, objective: Objective, start: Path, checkpoint: Path | None
) -> OpenedModel:
    """The model with its text window; weights that are not trained are frozen."""
    model = open_model(start if config.lora_rank else checkpoint or start)
    found = read_preprocessing(start)  # of any size: train.image_fit makes the squares
    opened = assemble(model, found, start, context=config.context)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    lock_towers(model, config)
    if config.lora_rank:
        add_adapters(model, config)
        if checkpoint is not None:
            read_adapters(checkpoint, model)
    if objective.own_encoders:
        opened.encoder.requires_grad_(False)
    return opened
