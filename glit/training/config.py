"""The ``[train]`` table of a recipe. Loads no model library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from glit.clip import ImageFit
from glit.errors import RecipeError
from glit.recipes.config import Choice

if TYPE_CHECKING:
    from glit.training.objective import Objective

PairChoice = Literal["best", "sample", "weighted"]
Precision = Literal["auto", "no", "bf16", "fp16"]


def _objectives() -> Mapping[str, type[Objective]]:
    from glit.training.objectives import OBJECTIVES  # they bring torch

    return OBJECTIVES


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How CLIP is fine-tuned. Model, batch and epochs are FAST-GOAL's by default."""

    objective: str = "fast-goal"
    """Which loss, and with it which further keys."""

    options: Any = None
    """The objective itself, with its keys; None takes their defaults."""

    choice: ClassVar[Choice] = Choice(key="objective", options=_objectives)

    model: str = "openai/clip-vit-base-patch16"
    """The CLIPModel to start from: a built-in name, a folder, or a hub id. OpenCLIP's folders too,
    and SigLIP models for objectives that look at embeddings alone."""

    context: int = 248
    """Text window in tokens; the model's positions are stretched to it (Long-CLIP's rule)."""

    image_fit: ImageFit = "resize"
    """``resize`` squeezes the image into the model's square; ``centre-crop`` cuts its middle, as
    GOAL's script does."""

    also: tuple[str, ...] = ()
    """Further datasets to train on, mixed with the first in every batch."""

    weights: tuple[float, ...] = ()
    """How many times its size an epoch takes of each dataset, the first one's first: 1 every
    sample once, 0.5 every second one. Without them, all once."""

    min_crop: float = 1.0
    """Images are cropped at random to this share of their area or more, boxes with them; 0.9 is
    what OpenCLIP takes. 1 leaves them whole."""

    flip: float = 0.0
    """How probable it is that an image is mirrored, boxes with it; never where its caption speaks
    of left, right or writing."""

    pairs: PairChoice = "best"
    """Which local pairs of an image are learned from: ``best``, those that come first;
    ``sample``, drawn anew every epoch by their probability; ``weighted``, those that come first,
    and each counts as much as it is probable."""

    min_probability: float = 0.0
    """Less probable pairs are left out; above 0 wants a dataset with probabilities."""

    image_root: str = ""
    """Folder the dataset was built from; needed only when it stores images by path."""

    epochs: int = 10
    """Passes over the dataset."""

    max_steps: int = 0
    """Stop after this many optimiser steps; 0 for no limit. The schedule ends there too."""

    batch_size: int = 256
    """Samples in one contrastive batch, over all processes together."""

    micro_batch_size: int = 0
    """Samples encoded at a time on one process (gradient caching); 0 encodes the whole batch."""

    accumulation_steps: int = 1
    """Contrastive batches whose gradients are averaged into one optimiser step."""

    drop_last: bool = False
    """Skip the smaller last batch of an epoch instead of training on it."""

    lr: float = 5e-6
    """Highest learning rate; 5e-6 is that of GOAL's script, at batches of 16."""

    image_lr: float = 0.0
    """Highest learning rate of the image tower and its projection; 0 takes ``lr``."""

    text_lr: float = 0.0
    """Highest learning rate of the text tower and its projection; 0 takes ``lr``."""

    lock_image: bool = False
    """Leave the image tower and its projection as they are."""

    lock_text: bool = False
    """Leave the text tower and its projection as they are."""

    unlocked_blocks: int = 0
    """So many of a locked tower's last blocks are trained all the same, with what comes after."""

    lora_rank: int = 0
    """Learn adapters of this rank in place of the towers' weights (LoRA); they want a higher
    ``lr``, 1e-4 or so. 0 trains the weights."""

    lora_alpha: float = 0.0
    """The adapters' part counts this times over the rank; 0 takes the rank, so once."""

    min_lr: float = 0.0
    """Learning rate at the end of the cosine."""

    warmup_steps: int = 0
    """Optimiser steps over which the learning rate rises from zero."""

    weight_decay: float = 0.05
    """AdamW's decay, on matrices and embeddings; not on gains, biases and the logit scale."""

    beta1: float = 0.9
    """AdamW's decay of the mean gradient."""

    beta2: float = 0.999
    """AdamW's decay of the mean squared gradient; 0.98 is what CLIP's ViT were trained with."""

    eps: float = 1e-8
    """AdamW's term against division by zero; 1e-6 is what CLIP's ViT were trained with."""

    ema_decay: float = 0.0
    """Average the weights, with this decay a step (0.999 to 0.9999); checkpoints then hold the
    average. 0 for none."""

    max_grad_norm: float = 0.0
    """Clip the gradient's norm to this; 0 leaves it alone."""

    max_logit_scale: float = 100.0
    """CLIP's learned logit scale is kept at or below this factor, as its own training did; that of
    a SigLIP model, which begins above, has no limit."""

    precision: Precision = "auto"
    """Mixed precision: ``no``, ``bf16`` or ``fp16``; ``auto`` is ``bf16`` on a GPU that has it and
    ``no`` elsewhere."""

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third slower."""

    compile: bool = False
    """Compile the encoders with torch.compile (worth its minute of start-up on long GPU runs)."""

    seed: int = 0
    """Decides the order of the samples, and everything else that is random."""

    num_workers: int = -1
    """Threads that read and decode images; -1 takes one for every core that this process may use,
    0 does it in the training thread."""

    prefetch_batches: int = 4
    """Batches that are prepared ahead of the model, all at once."""

    shuffle_row_groups: int = 16
    """Row groups mixed together by the shuffle buffer; they are in memory (encoded) meanwhile."""

    together: int = 1
    """So many samples that lie side by side in the dataset stay side by side, so that similar ones
    (twins, frames of a film) meet in a batch."""

    log_every: int = 10
    """Optimiser steps between two lines of metrics."""

    checkpoint_every: int = 0
    """Optimiser steps between two checkpoints; 0 saves at the end of every epoch only."""

    keep_every: int = 0
    """Each so-many-th of these checkpoints stays; 0 keeps the last and the best alone."""

    validation: str = ""
    """A dataset of glit's that every checkpoint is measured on by retrieval, and the start too; the
    mean R@1 of both ways then chooses the best checkpoint, in the place of the loss."""

    validation_classes: str = ""
    """A folder of classes (see ``glit eval classify``) that they are measured on as well; without
    ``validation``, ``acc1`` chooses the best."""

    trackers: tuple[str, ...] = ("tensorboard",)
    """Trackers of accelerate beside the JSONL file: tensorboard, wandb, mlflow, ..."""

    def __post_init__(self) -> None:
        _one_of("image_fit", self.image_fit, get_args(ImageFit))
        _one_of("pairs", self.pairs, get_args(PairChoice))
        if not 0 <= self.min_probability < 1:
            raise RecipeError(f"[train] min_probability: found {self.min_probability}, want 0 to 1")
        _one_of("precision", self.precision, get_args(Precision))
        for name in ("epochs", "batch_size", "accumulation_steps", "context", "log_every"):
            _at_least(name, getattr(self, name), 1)
        for name in ("prefetch_batches", "shuffle_row_groups", "together"):
            _at_least(name, getattr(self, name), 1)
        for name in ("max_steps", "micro_batch_size", "warmup_steps"):
            _at_least(name, getattr(self, name), 0)
        _at_least("num_workers", self.num_workers, -1)
        for name in ("checkpoint_every", "keep_every", "unlocked_blocks", "lora_rank"):
            _at_least(name, getattr(self, name), 0)
        for name in ("min_lr", "weight_decay", "image_lr", "text_lr", "lora_alpha"):
            _at_least(name, getattr(self, name), 0.0)
        _at_least("max_grad_norm", self.max_grad_norm, 0.0)
        _at_least("max_logit_scale", self.max_logit_scale, 1.0)
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise RecipeError(f"train.lr = {self.lr}: wanted a positive number; set e.g. 5e-6")
        for name in ("beta1", "beta2", "ema_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise RecipeError(f"train.{name} = {getattr(self, name)}: wanted 0 to below 1")
        if not 0 < self.min_crop <= 1:
            raise RecipeError(f"train.min_crop = {self.min_crop}: wanted above 0, to 1")
        if not 0 <= self.flip <= 1:
            raise RecipeError(f"train.flip = {self.flip}: wanted 0 to 1")
        if not (math.isfinite(self.eps) and self.eps > 0):
            raise RecipeError(f"train.eps = {self.eps}: wanted a positive number")
        self._check_locks()
        self._check_mixture()
        if self.micro_batch_size > self.batch_size:
            raise RecipeError(
                f"train.micro_batch_size = {self.micro_batch_size} is larger than "
                f"train.batch_size = {self.batch_size}; set it to 0 or lower"
            )

    @property
    def is_measured(self) -> bool:
        """Whether checkpoints are measured on something."""
        return bool(self.validation or self.validation_classes)

    def _check_locks(self) -> None:
        """Refuse what would do nothing."""
        if self.unlocked_blocks and not (self.lock_image or self.lock_text):
            raise RecipeError(
                f"train.unlocked_blocks = {self.unlocked_blocks}: nothing is locked; set "
                "train.lock_image or train.lock_text, or leave it out"
            )
        self._check_adapters()
        for tower in ("image", "text"):
            locked = getattr(self, f"lock_{tower}") and not self.unlocked_blocks
            if locked and getattr(self, f"{tower}_lr"):
                raise RecipeError(
                    f"train.{tower}_lr = {getattr(self, f'{tower}_lr')}: train.lock_{tower} leaves "
                    "nothing to learn at it; leave one of the two out"
                )

    def _check_adapters(self) -> None:
        if self.lora_alpha and not self.lora_rank:
            raise RecipeError(
                f"train.lora_alpha = {self.lora_alpha}: there are no adapters; set "
                "train.lora_rank, or leave it out"
            )
        if self.lora_rank and self.lock_image and self.lock_text and not self.unlocked_blocks:
            raise RecipeError(
                f"train.lora_rank = {self.lora_rank}: train.lock_image and train.lock_text leave "
                "no block to adapt; leave one out, or set train.unlocked_blocks"
            )

    def _check_mixture(self) -> None:
        if self.weights and len(self.weights) != 1 + len(self.also):
            raise RecipeError(
                f"train.weights: found {len(self.weights)}, wanted {1 + len(self.also)}: one for "
                "the dataset and one for each of train.also"
            )
        if not all(math.isfinite(weight) and weight > 0 for weight in self.weights):
            raise RecipeError(f"train.weights = {list(self.weights)}: wanted positive numbers")
        if self.together > 1 and self.also:
            raise RecipeError(
                f"train.together = {self.together}: mixing in train.also would part those that lie "
                "side by side; leave one of the two out"
            )

    def make_objective(self) -> Objective:
        """The objective with its keys.

        Raises:
            RecipeError: there is none of that name, or the options are another one's.
        """
        known = _objectives()
        if self.objective not in known:
            raise RecipeError(
                f"train.objective = {self.objective!r}: wanted one of {', '.join(known)}"
            )
        made = self.options or known[self.objective]()
        if type(made) is not known[self.objective]:
            raise RecipeError(
                f"train.objective = {self.objective!r}, but its options are those of "
                f"{type(made).__name__}"
            )
        return made


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise RecipeError(f"train.{name} = {value!r}: wanted one of {', '.join(allowed)}")


def _at_least(name: str, value: float, low: float) -> None:
    if not (math.isfinite(value) and value >= low):
        raise RecipeError(f"train.{name} = {value}: wanted {low} or more")
