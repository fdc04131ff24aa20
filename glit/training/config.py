"""The ``[train]`` table of a recipe. Loads no model library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from glit.errors import RecipeError
from glit.models.clip.image_fit import ImageFit
from glit.plain import limited
from glit.recipes.config import Choice, RecipeTable

if TYPE_CHECKING:
    from glit.training.objective import Objective

PairChoice = Literal["best", "sample", "weighted"]
LocalChoice = Literal["sentence", "phrase", "both"]
CaptionChoice = Literal["long", "short", "sample"]
PatchChoice = Literal["box", "mask"]
Precision = Literal["auto", "no", "bf16", "fp16"]


def _objectives() -> Mapping[str, type[Objective]]:
    from glit.training.objectives import OBJECTIVES  # they bring torch

    return OBJECTIVES


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(RecipeTable):
    """Fine-tuning of CLIP. Model, batch and epochs default to FAST-GOAL's."""

    table: ClassVar[str] = "train"

    objective: str = "fast-goal"
    """The loss; each objective may add keys, listed below."""

    options: Any = None
    """The objective itself, with its keys; None takes their defaults."""

    choice: ClassVar[Choice] = Choice(key="objective", options=_objectives)

    model: str = "openai/clip-vit-base-patch16"
    """The model to start from: a built-in name, a folder, or a hub id of a CLIPModel; or a
    SigLIP model for objectives that use no tokens of texts."""

    context: int = limited(248, least=1)
    """Text window in tokens; the model's positions are stretched to it (Long-CLIP's rule)."""

    image_fit: ImageFit = "resize"
    """``resize`` squeezes the image into the model's square; ``centre-crop`` cuts its middle, as
    GOAL's script does."""

    also: tuple[str, ...] = ()
    """Further datasets to train on, mixed with the first in every batch."""

    weights: tuple[float, ...] = limited((), above=0)
    """Passes over each dataset per epoch, the first dataset's value first: 1 takes every sample
    once, 0.5 every second one. Empty takes all datasets once."""

    min_crop: float = limited(1.0, above=0, most=1)
    """Crop images at random to at least this share of their area; boxes follow. OpenCLIP uses 0.9.
    1 turns it off."""

    flip: float = limited(0.0, least=0, most=1)
    """Probability of mirroring an image with its boxes; never if its caption mentions left, right
    or writing."""

    caption: CaptionChoice = "long"
    """The text of a whole image, of a dataset with several captions an image: ``long`` is its
    ``caption``; ``short`` that of the kind ``short``, where an image has one; ``sample`` draws one
    of all kinds in every epoch."""

    pairs: PairChoice = "best"
    """The local pairs of an image to learn from: ``best`` takes the first ones; ``sample`` draws
    them by probability in every epoch; ``weighted`` takes the first ones and weights each by its
    probability."""

    local: LocalChoice = "sentence"
    """The texts of local pairs: ``sentence``; ``phrase``, the noun phrases of a dataset built with
    ``ground.enabled`` and their regions; ``both`` takes one of each in turn, either first at
    random."""

    patches: PatchChoice = "box"
    """The patches that are pooled for a region: those that its ``box`` touches, or those that its
    ``mask`` touches, of a dataset built with ``propose.keep_masks``; a region without a mask keeps
    its box."""

    min_probability: float = limited(0.0, least=0, below=1)
    """Leave out pairs with a lower probability; above 0 needs a dataset with probabilities."""

    image_root: str = ""
    """The folder that the dataset was built from; needed only if the dataset stores images by
    path."""

    epochs: int = limited(10, least=1)
    """Passes over the dataset."""

    max_steps: int = limited(0, least=0)
    """Stop after this many optimiser steps; 0 is no limit. The schedule ends at the same step."""

    batch_size: int = limited(256, least=1)
    """Samples per contrastive batch, summed over all processes."""

    micro_batch_size: int = limited(0, least=0)
    """Samples that one process encodes at a time (gradient caching); 0 encodes the whole batch."""

    accumulation_steps: int = limited(1, least=1)
    """Contrastive batches whose gradients are averaged into one optimiser step."""

    drop_last: bool = False
    """Skip the smaller last batch of an epoch instead of training on it."""

    lr: float = limited(5e-6, above=0)
    """Highest learning rate; 5e-6 is the value of GOAL's script, at batches of 16."""

    image_lr: float = limited(0.0, least=0)
    """Highest learning rate of the image tower and its projection; 0 takes ``lr``."""

    text_lr: float = limited(0.0, least=0)
    """Highest learning rate of the text tower and its projection; 0 takes ``lr``."""

    lock_image: bool = False
    """Freeze the image tower and its projection."""

    lock_text: bool = False
    """Freeze the text tower and its projection."""

    unlocked_blocks: int = limited(0, least=0)
    """Still train this many last blocks of a locked tower, and the layers after them."""

    lora_rank: int = limited(0, least=0)
    """Train adapters of this rank instead of the towers' weights (LoRA); use a higher ``lr``, about
    1e-4. 0 trains the weights."""

    lora_alpha: float = limited(0.0, least=0)
    """LoRA's alpha: the adapters' output is scaled by alpha / rank. 0 takes the rank, so the scale
    is 1."""

    min_lr: float = limited(0.0, least=0)
    """Learning rate at the end of the cosine schedule."""

    warmup_steps: int = limited(0, least=0)
    """Optimiser steps over which the learning rate rises from zero."""

    weight_decay: float = limited(0.05, least=0)
    """AdamW's weight decay, on matrices and embeddings; not on gains, biases and the logit
    scale."""

    beta1: float = limited(0.9, least=0, below=1)
    """AdamW's decay of the mean gradient."""

    beta2: float = limited(0.999, least=0, below=1)
    """AdamW's decay of the mean squared gradient; CLIP's ViTs were trained with 0.98."""

    eps: float = limited(1e-8, above=0)
    """AdamW's term against division by zero; CLIP's ViTs were trained with 1e-6."""

    ema_decay: float = limited(0.0, least=0, below=1)
    """Keep a moving average of the weights with this decay per step (0.999 to 0.9999); checkpoints
    then hold the average. 0 is off."""

    max_grad_norm: float = limited(0.0, least=0)
    """Clip the gradient's norm to this; 0 is off."""

    max_logit_scale: float = limited(100.0, least=1)
    """Upper limit of CLIP's learned logit scale, as in CLIP's own training. The scale of a SigLIP
    model starts above it and has no limit."""

    precision: Precision = "auto"
    """Mixed precision: ``no``, ``bf16`` or ``fp16``; ``auto`` is ``bf16`` on a GPU that supports it
    and ``no`` elsewhere."""

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third slower."""

    compile: bool = False
    """Compile the encoders with torch.compile; worth its minute of start-up on long GPU runs."""

    seed: int = 0
    """Seed of the sample order and of all other random choices."""

    num_workers: int = limited(-1, least=-1)
    """Threads that read and decode images, on Linux beside a GPU processes that decode them; -1
    starts one per usable core; 0 decodes in the training thread."""

    prefetch_batches: int = limited(4, least=1)
    """Batches prepared ahead of the model, concurrently."""

    shuffle_row_groups: int = limited(16, least=1)
    """Row groups in the shuffle buffer; they are in memory, encoded."""

    together: int = limited(1, least=1)
    """Keep this many neighbouring samples together, so that similar ones (twins, frames of a film)
    share a batch."""

    log_every: int = limited(10, least=1)
    """Optimiser steps between two lines of metrics."""

    checkpoint_every: int = limited(0, least=0)
    """Optimiser steps between two checkpoints; 0 saves at the end of every epoch only."""

    keep_every: int = limited(0, least=0)
    """Also keep every n-th checkpoint; 0 keeps only the last and the best."""

    validation: str = ""
    """A glit dataset on which retrieval is measured at the start and at every checkpoint; the mean
    R@1 of both ways then chooses the best checkpoint instead of the loss."""

    validation_classes: str = ""
    """A folder of classes (see ``glit eval classify``), measured at the same points; without
    ``validation``, ``acc1`` chooses the best checkpoint."""

    trackers: tuple[str, ...] = ("tensorboard",)
    """Trackers of accelerate in addition to the JSONL file: tensorboard, wandb, mlflow, ..."""

    def check(self) -> None:
        if self.local != "sentence" and (self.pairs != "best" or self.min_probability):
            raise RecipeError(
                f"train.local = {self.local!r}: phrases have no probability, which train.pairs = "
                f"{self.pairs!r} and train.min_probability = {self.min_probability} ask for; leave "
                "these at their defaults"
            )
        self._check_locks()
        self._check_mixture()
        if self.micro_batch_size > self.batch_size:
            raise RecipeError(
                f"train.micro_batch_size = {self.micro_batch_size} is larger than "
                f"train.batch_size = {self.batch_size}; set it to 0 or lower"
            )

    @property
    def is_measured(self) -> bool:
        """True if checkpoints are measured on something."""
        return bool(self.validation or self.validation_classes)

    def _check_locks(self) -> None:
        """Refuse settings that would have no effect."""
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
