"""Train OpenCLIP's ViT-B/32 from the same random weights: some steps, and a whole epoch."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from glit.clip.random_clip import SPECIAL_TOKENS
from tools.measure.peers.inputs import CONTEXT, build
from tools.measure.peers.way import Comparison, Way, Work

SHAPE: dict[str, Any] = {
    "embed_dim": 512,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32},
    "text_cfg": {
        "context_length": CONTEXT, "vocab_size": 49_408, "width": 512, "heads": 8, "layers": 12,
    },
}  # fmt: skip
_BATCH, _STEPS, _MANY = 16, 3, 48
"""Images of a batch, steps on one batch in memory, and images of the epoch."""
_OPTIONS: dict[str, Any] = {
    "lr": 1e-4, "beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "precision": "no", "context": CONTEXT,
    "batch_size": _BATCH, "objective": "clip", "weight_decay": 0.2, "epochs": 1, "trackers": (),
}  # fmt: skip
_NOTED = {
    "visual.proj": "clip.visual_projection.weight",
    "text_projection": "clip.text_projection.weight",
    "visual.conv1.weight": "clip.vision_model.embeddings.patch_embedding.weight",
    "token_embedding.weight": "clip.text_model.embeddings.token_embedding.weight",
    "logit_scale": "clip.logit_scale",
}
"""Parameters whose gradients are compared, by their names in OpenCLIP and in glit; the temperature
is the last."""


def make(inputs: Path) -> None:
    """Write a checkpoint of OpenCLIP's with CLIP's own tokenizer, two datasets and a table."""
    import open_clip
    import torch
    from open_clip.constants import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
    from safetensors.torch import save_file
    from transformers import CLIPTokenizer

    folder, peer = inputs / "training", open_clip
    for number in (_BATCH, _MANY):
        build(inputs / "scenes", folder / f"dataset-{number}", limit=number)
    words: Any = peer.SimpleTokenizer()
    pieces = [*[*words.encoder][:-2], *SPECIAL_TOKENS]
    merges: Any = list(words.bpe_ranks)
    vocab = {piece: number for number, piece in enumerate(pieces)}
    CLIPTokenizer(vocab=vocab, merges=merges).save_pretrained(folder / "model")
    torch.manual_seed(0)
    weights = peer.CLIP(**SHAPE).state_dict()
    save_file(weights, folder / "model" / "open_clip_model.safetensors")
    fit = {"mean": OPENAI_DATASET_MEAN, "std": OPENAI_DATASET_STD, "resize_mode": "squash"}
    told = {"model_cfg": SHAPE, "preprocess_cfg": fit}
    (folder / "model" / "open_clip_config.json").write_text(json.dumps(told), encoding="utf-8")
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([("filepath", "title"), *_rows(inputs, _MANY)])


def _rows(inputs: Path, number: int) -> list[tuple[str, str]]:
    """Files and captions of a dataset."""
    import glit

    dataset = glit.open_dataset(inputs / "training" / f"dataset-{number}")
    folder = inputs / "scenes" / "images"
    return [(str(folder / row.source_path), row.caption.text) for row in dataset.rows(images=False)]


def _record_gradients(named: Mapping[str, Any], optimizer: Any) -> dict[str, float]:
    """The norms of the gradients of some parameters, filled in when the first step is taken."""
    found: dict[str, float] = {}

    def look(*_: Any) -> None:
        for name, parameter in named.items():
            found.setdefault(name, float(parameter.grad.norm()))

    optimizer.register_step_pre_hook(look)
    return found


def _judge(inputs: Path, answer: Any, ours: Any) -> str:
    """The largest difference of losses and of gradients, as a share of glit's."""
    if answer is None:
        return "not compared"
    by_kind = (
        max(abs(a - b) / abs(b) for a, b in zip(theirs, own, strict=True) if a is not None)
        for theirs, own in zip(answer, ours, strict=True)
    )
    losses, gradients = by_kind
    return f"losses within {losses:.0e}, gradients of step 1 within {gradients:.0e}"


def _glit_steps(inputs: Path, out: Path) -> Work:
    from accelerate import Accelerator

    from glit.training.config import TrainConfig
    from glit.training.optimizer import make_optimizer
    from glit.training.setup import prepare
    from glit.training.step import run_step

    folder = inputs / "training"
    config = TrainConfig(model=str(folder / "model"), **_OPTIONS)
    made = prepare(config, str(folder / f"dataset-{_BATCH}"))
    optimizer = make_optimizer(made.model, made.objective, config, fused=False)
    named = dict(made.model.encoder.named_parameters())
    gradients = _record_gradients({key: named[name] for key, name in _NOTED.items()}, optimizer)
    accelerator = Accelerator(cpu=True)
    model, ready = accelerator.prepare(made.model, optimizer)
    model.train()
    [batch] = next(made.loader.epoch(0))

    def work() -> Any:
        losses = []
        for _ in range(_STEPS):
            found = run_step(
                [batch], model=model, objective=made.objective, accelerator=accelerator
            )
            ready.step()
            ready.zero_grad(set_to_none=True)
            made.model.encoder.limit_logit_scale(config.max_logit_scale)
            losses.append(float(found["loss"]))
        return losses, [gradients[name] for name in _NOTED]

    return work


def _arguments(inputs: Path, out: Path) -> list[str]:
    """Arguments of OpenCLIP's trainer that ask for what glit does."""
    folder = inputs / "training"
    given = {
        "model": f"local-dir:{folder / 'model'}", "train-data": folder / "train.csv",
        "dataset-type": "csv", "batch-size": _BATCH, "epochs": 1, "workers": 2, "warmup": 0,
        "precision": "fp32", "device": "cpu", "logs": out, "log-every-n-steps": 1,
        "lr": _OPTIONS["lr"], "beta1": _OPTIONS["beta1"], "beta2": _OPTIONS["beta2"],
        "eps": _OPTIONS["eps"], "wd": _OPTIONS["weight_decay"],
    }  # fmt: skip
    return [
        *(part for key, value in given.items() for part in (f"--{key}", str(value))),
        "--aug-cfg", "scale=(1.0,1.0)",
    ]  # fmt: skip


def _open_clip_steps(inputs: Path, out: Path) -> Work:
    import open_clip
    import torch
    from open_clip_train.params import parse_args
    from open_clip_train.train import train_one_epoch
    from PIL import Image

    peer: Any = open_clip
    name = f"local-dir:{inputs / 'training' / 'model'}"
    model, _, fit = peer.create_model_and_transforms(name, output_dict=True)
    rows = _rows(inputs, _BATCH)
    images = torch.stack([fit(Image.open(path)) for path, _ in rows])
    texts = peer.get_tokenizer(name)([text for _, text in rows])
    arguments: Any = parse_args(_arguments(inputs, out))
    vars(arguments).update(distill=False, rank=0, world_size=1, wandb=False)
    optimizer = _adamw(model.parameters())
    named = dict(model.named_parameters())
    gradients = _record_gradients({key: named[key] for key in _NOTED}, optimizer)
    losses: list[float] = []
    loss_of = peer.ClipLoss()

    def noted(**given: Any) -> Any:
        found = loss_of(**given)
        losses.append(float(found["contrastive_loss"]))
        return found

    class Batches(list[Any]):
        num_batches, num_samples = _STEPS, _STEPS * _BATCH

    loader = SimpleNamespace(
        dataloader=Batches([(images, texts)] * _STEPS), set_epoch=lambda epoch: None
    )

    def work() -> Any:
        train_one_epoch(
            model, {"train": loader}, noted, 0, optimizer, None, lambda step: None, None, arguments
        )
        return losses, [gradients[name] for name in _NOTED]

    return work


def _sentence_transformers_steps(inputs: Path, out: Path) -> Work:
    """The same weights in transformers' layout; the temperature is fixed, which glit trains."""
    from PIL import Image
    from sentence_transformers import SentenceTransformer, losses
    from transformers import CLIPTokenizer

    from glit.training.config import TrainConfig
    from glit.training.setup import prepare

    folder = inputs / "training"
    config = TrainConfig(model=str(folder / "model"), **_OPTIONS)
    clip: Any = prepare(config, str(folder / f"dataset-{_BATCH}")).model.encoder.clip
    clip.save_pretrained(out / "clip")
    CLIPTokenizer.from_pretrained(folder / "model").save_pretrained(out / "clip")
    (out / "clip" / "preprocessor_config.json").write_text(json.dumps(_fit()), encoding="utf-8")
    model: Any = SentenceTransformer(str(out / "clip"), device="cpu", local_files_only=True)
    model.max_seq_length = CONTEXT
    model.train()
    rows = _rows(inputs, _BATCH)
    batch = [
        model.preprocess([Image.open(path).convert("RGB") for path, _ in rows]),
        model.preprocess([text for _, text in rows]),
    ]
    loss_of: Any = losses.MultipleNegativesRankingLoss(
        model, scale=clip.logit_scale.exp().item(), directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )  # fmt: skip
    named = {name.partition("model.")[2]: value for name, value in model.named_parameters()}
    optimizer = _adamw(named.values())
    noted = [name.removeprefix("clip.") for name in _NOTED.values()]
    gradients = _record_gradients({name: named[name] for name in noted[:-1]}, optimizer)

    def work() -> Any:
        found = []
        for _ in range(_STEPS):
            loss = loss_of([dict(each) for each in batch], None)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            found.append(loss.item())
        return found, [gradients.get(name) for name in noted]

    return work


def _adamw(parameters: Iterable[Any]) -> Any:
    """The optimizer of glit's settings, which lets gains and biases be."""
    import torch

    every = list(parameters)
    groups = [
        {"params": [p for p in every if p.ndim < 2], "weight_decay": 0.0},
        {"params": [p for p in every if p.ndim >= 2], "weight_decay": _OPTIONS["weight_decay"]},
    ]
    return torch.optim.AdamW(
        groups, lr=_OPTIONS["lr"], betas=(_OPTIONS["beta1"], _OPTIONS["beta2"]),
        eps=_OPTIONS["eps"],
    )  # fmt: skip


def _fit() -> dict[str, Any]:
    """How OpenCLIP's checkpoint wants images, as transformers writes it."""
    from open_clip.constants import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

    side = SHAPE["vision_cfg"]["image_size"]
    return {
        "image_processor_type": "CLIPImageProcessor", "do_center_crop": False, "resample": 3,
        "size": {"height": side, "width": side}, "image_mean": OPENAI_DATASET_MEAN,
        "image_std": OPENAI_DATASET_STD,
    }  # fmt: skip


def _glit_epoch(inputs: Path, out: Path) -> Work:
    from accelerate import Accelerator  # noqa: F401 - imported late by glit; imports do not count
    from transformers import AutoTokenizer, CLIPModel  # noqa: F401 - as above

    from glit.training.config import TrainConfig
    from glit.training.loop import train

    folder = inputs / "training"
    config = TrainConfig(model=str(folder / "model"), **_OPTIONS)

    def work() -> None:
        train(config, str(folder / f"dataset-{_MANY}"), out / "run")

    return work


def _open_clip_epoch(inputs: Path, out: Path) -> Work:
    from open_clip_train.main import main

    arguments = _arguments(inputs, out)
    return lambda: main(arguments)


def _ways(glit: Callable[..., Work], peer: Callable[..., Work], note: str = "") -> tuple[Way, ...]:
    return (
        Way(name="glit", prepare=glit),
        Way(name="open_clip", prepare=peer, package="open_clip_train", note=note),
    )


STEPS = Comparison(
    title="three training steps of CLIP ViT-B/32, 16 images and captions in memory, float32",
    make=make, judge=_judge,
    ways=(
        *_ways(_glit_steps, _open_clip_steps),
        Way(
            name="sentence-transformers", prepare=_sentence_transformers_steps,
            package="sentence_transformers", note="fixed temperature",
        ),
    ),
)  # fmt: skip
EPOCH = Comparison(
    title="an epoch of 48 images by the whole trainer: weights loaded, a checkpoint written",
    make=make, judge=_judge, ways=_ways(_glit_epoch, _open_clip_epoch),
)  # fmt: skip
