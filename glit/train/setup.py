"""What a run starts from, checked before anything is trained: model, tokenizer, shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glit.backends.tokenizer import TextTokenizer, tokenizer_hash
from glit.backends.weights import resolve
from glit.clip.encoder import DualEncoder
from glit.clip.folder import Preprocessing, load_clip, read_preprocessing
from glit.clip.preprocess import vision_side
from glit.clip.text_window import stretch_model
from glit.errors import DatasetError, InputError, RecipeError, WeightsError
from glit.train.checkpoint import model_folder
from glit.train.config import TrainConfig
from glit.train.loader import BatchLoader, LoaderConfig
from glit.train.objectives import build_objective
from glit.train.objectives.protocol import Objective
from glit.train.source import Shards

if TYPE_CHECKING:
    from transformers import CLIPModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """Everything a run needs beside its configuration."""

    encoder: DualEncoder
    objective: Objective
    loader: BatchLoader
    start: Path
    """Folder of the model training started from."""
    preprocessing: Preprocessing


def find_model(name: str) -> Path:
    """Folder of a model: the best checkpoint of a run of ours, or what the name resolves to.

    Raises WeightsError when there is none, or its files are incomplete.
    """
    folder = model_folder(Path(name))
    return resolve(str(folder) if (folder / "config.json").is_file() else name).path


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
        pin_memory: page-locked batches, for a GPU.

    Raises:
        InputError: the dataset cannot feed this objective or batch size.
        WeightsError: the model's tokenizer is not the one the dataset's spans were made with.
    """
    start = find_model(config.model)
    shards = Shards(dataset, image_root=config.image_root)
    objective = build_objective(config)
    _check_fit(config, shards, objective)
    if objective.needs_tokens:
        check_tokenizer(shards, config.model, start)
    model = load_clip(checkpoint or start)
    stretch_model(model, config.context)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    found = read_preprocessing(start)
    preprocessing = Preprocessing(mean=found.mean, std=found.std, fit=config.image_fit)
    encoder = DualEncoder(
        model, mean=found.mean, std=found.std, needs_tokens=objective.needs_tokens
    )
    tokenizer = TextTokenizer(start)
    loader = BatchLoader(
        shards,
        lambda texts: tokenizer.encode_closed(texts, context=config.context),
        _loader_config(config, objective, model, tokenizer.end_id, pin_memory, num_ranks),
        rank=rank,
        num_ranks=num_ranks,
    )
    return Ingredients(
        encoder=encoder,
        objective=objective,
        loader=loader,
        start=start,
        preprocessing=preprocessing,
    )


def check_tokenizer(shards: Shards, model: str, folder: Path) -> None:
    """Refuse a model whose tokenizer is not the one the dataset's token spans were made with."""
    theirs, ours = shards.tokenizer, tokenizer_hash(folder)
    if not theirs:
        raise DatasetError(
            f"{shards.dataset}: the data files do not say which tokenizer gave the token spans; "
            "rebuild the dataset with this version of glit"
        )
    if theirs["sha256"] != ours:
        raise WeightsError(
            f"model {model!r}: its tokenizer ({ours[:12]}) is not the one the token spans of "
            f"{shards.dataset} were made with ({theirs['name']!r}, {theirs['sha256'][:12]}); "
            f"train {theirs['name']!r}, or rebuild the dataset with split.tokenizer set to "
            f"{model!r}"
        )


def _check_fit(config: TrainConfig, shards: Shards, objective: Objective) -> None:
    if config.batch_size > shards.num_samples:
        raise InputError(
            f"{shards.dataset}: train.batch_size = {config.batch_size} is larger than the "
            f"dataset's {shards.num_samples} samples; set train.batch_size to "
            f"{shards.num_samples} or less"
        )
    if objective.num_local and not shards.has_local_pairs():
        raise InputError(
            f"{shards.dataset}: no sample has a local pair, and train.objective = "
            f"{config.objective!r} learns from them; use --objective clip, or give a dataset "
            "whose regions passed the rule of pairing"
        )


def _loader_config(
    config: TrainConfig,
    objective: Objective,
    model: CLIPModel,
    pad_id: int,
    pin_memory: bool,
    num_ranks: int,
) -> LoaderConfig:
    if config.batch_size % num_ranks:
        raise RecipeError(
            f"train.batch_size = {config.batch_size} does not divide among {num_ranks} "
            f"processes; set it to a multiple of {num_ranks}"
        )
    side, _ = vision_side(model)
    return LoaderConfig(
        side=side,
        fit=config.image_fit,
        needs_global=objective.needs_global,
        num_local=objective.num_local,
        distinct_regions=config.objective == "hard-negatives",
        pad_id=pad_id,
        batch_size=config.batch_size,
        micro_batch_size=config.micro_batch_size,
        drop_last=config.drop_last,
        seed=config.seed,
        window=config.shuffle_row_groups,
        num_workers=config.num_workers,
        prefetch=config.prefetch_batches,
        pin_memory=pin_memory,
    )
