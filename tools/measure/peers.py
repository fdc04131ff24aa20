"""glit beside other packages on the same work: ``python -m tools.measure.peers -o OUT``.

``tools/measure/peers.txt`` names the packages to install besides glit's extras and tools; what is
not installed is left out. Each way runs in a process of its own, in turn with the others; imports
and models that are loaded do not count. Answers are compared, and what a way does more or less than
glit is in its ``note``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image

from glit.bench.harness import Row, write_report
from glit.bench.machine import describe_machine, peak_mb
from glit.models.clip.random_clip import VIT_B_16, write_random_clip
from glit.runtime.tables import Page, Table, figure
from glit.scenes import write_scenes

SCENE_PX, SCENES = 512, 600
BATCH = 32
CONTEXT = 77
SIDE = 224
_FEW = 48

Work = Callable[[], Any]
"""Does the work that is timed; returns its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One package's way of doing some work."""

    name: str
    prepare: Callable[[Path], Work]
    """Of the folder of inputs: imports, loads, and returns the work."""
    package: str = "glit"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A work in words, and who does it; glit first."""

    title: str
    ways: tuple[Way, ...]


def captions(inputs: Path) -> list[str]:
    """Return the captions of the scenes."""
    lines = (inputs / "scenes" / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["caption"] for line in lines]


def make_inputs(folder: Path) -> None:
    """Draw scenes; make a dataset of them, its exports, and a model."""
    import glit

    if (folder / "done").exists():
        return
    scenes = folder / "scenes"
    write_scenes(scenes, num=SCENES, seed=0, size=SCENE_PX, image_format="jpeg")
    glit.build(
        scenes / "images", folder / "dataset", recipe="captions-only",
        captions=scenes / "captions.jsonl", executor="local", quiet=True,
    )  # fmt: skip
    glit.export(folder / "dataset", to="hf", output=folder / "hf")
    write_random_clip(
        folder / "clip", VIT_B_16, seed=0, corpus=captions(folder)[:200], embedding_rows=49_408
    )
    (folder / "done").touch()


# -- batches ---------------------------------------------------------------------------------------


def _glit_loader(inputs: Path) -> Work:
    import glit
    from glit.models.clip.kinds import open_tokenizer
    from glit.training.config import TrainConfig
    from glit.training.loader import BatchLoader
    from glit.training.mixture import Mixture

    tokenizer = open_tokenizer(inputs / "clip")
    config = TrainConfig(objective="clip", batch_size=BATCH, context=CONTEXT)
    loader = BatchLoader(
        Mixture([glit.open_dataset(inputs / "dataset")]), config.make_objective(),
        lambda texts: tokenizer.encode_closed(texts, context=CONTEXT), config,
        side=SIDE, pad_id=tokenizer.end_id,
    )  # fmt: skip
    return lambda: sum(part.num_valid for parts in loader.epoch(0) for part in parts)


def _torch_loader(
    rows: Any, inputs: Path, *, image: Any, text: Any, kind: Any = None
) -> Work:  # fmt: skip
    """Torch's loader, or one of its kind, with a process a core, with the transforms and the
    tokenizer of CLIP; bytes are normalised on the device, as glit does."""
    from torch.utils.data import DataLoader
    from torchvision import transforms
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(inputs / "clip", local_files_only=True)
    fit: Any = transforms.Compose([
        transforms.Resize(SIDE, transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(SIDE), transforms.PILToTensor(),
    ])  # fmt: skip

    def together(given: Sequence[Any]) -> tuple[Any, Any]:
        import torch

        words = tokenizer(
            [row[text] for row in given], padding="max_length", truncation=True,
            max_length=CONTEXT, return_tensors="pt",
        )  # fmt: skip
        return torch.stack([fit(row[image].convert("RGB")) for row in given]), words["input_ids"]

    loader = (kind or DataLoader)(rows, batch_size=BATCH, num_workers=2, collate_fn=together)
    return lambda: sum(len(images) for images, _ in loader)


def _hf_loader(inputs: Path) -> Work:
    import datasets

    files = sorted(map(str, (inputs / "hf" / "data").glob("*.parquet")))
    stream = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    stream = stream.select_columns(["image", "caption"])
    return _torch_loader(stream, inputs, image="image", text="caption")


class _OwnFolder:
    """Images of a folder with the captions of a list beside it, as one writes it for torch."""

    def __init__(self, scenes: Path) -> None:
        from torchvision.datasets import ImageFolder

        self._images: Any = ImageFolder(str(scenes), loader=Image.open)
        lines = (scenes / "captions.jsonl").read_text(encoding="utf-8").splitlines()
        self._texts = {line["path"]: line["caption"] for line in map(json.loads, lines)}

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, at: int) -> tuple[Any, str]:
        return self._images[at][0], self._texts[Path(self._images.samples[at][0]).name]


def _image_folder(inputs: Path) -> Work:
    return _torch_loader(_OwnFolder(inputs / "scenes"), inputs, image=0, text=1)


BATCHES = Comparison(
    title="600 images as batches of 224 px squares and tokens",
    ways=(
        Way(name="glit", prepare=_glit_loader, note="shuffled; resumes at any batch"),
        Way(
            name="torch's ImageFolder",
            prepare=_image_folder,
            package="torchvision",
            note="in order",
        ),
        Way(name="datasets, streamed", prepare=_hf_loader, package="datasets", note="in order"),
    ),
)


# -- embeddings ------------------------------------------------------------------------------------


def _some(inputs: Path) -> tuple[list[Path], list[str]]:
    images = sorted((inputs / "scenes" / "images").iterdir())[:_FEW]
    return images, captions(inputs)[:_FEW]


def _rounded(images: Any, texts: Any) -> list[list[float]]:
    """Cosines of eight images and texts, which all ways should agree on."""
    from torch.nn.functional import normalize

    found = normalize(images[:8].float(), dim=-1) @ normalize(texts[:8].float(), dim=-1).T
    return [[round(value, 2) for value in row] for row in found.tolist()]


def _glit_clip(inputs: Path) -> Work:
    import numpy as np
    import torch

    from glit.images import decode
    from glit.models.clip.embedder import Embedder

    model = Embedder.open(str(inputs / "clip"), device="cpu", batch_size=BATCH)
    images, texts = _some(inputs)

    def work() -> Any:
        found = list(model.pixels(decode(path.read_bytes()) for path in images))
        return _rounded(torch.from_numpy(np.concatenate(found)), model.texts(texts))

    return work


def _transformers_clip(inputs: Path) -> Work:
    import torch
    from transformers import AutoTokenizer, CLIPImageProcessor, CLIPModel

    model = CLIPModel.from_pretrained(inputs / "clip", local_files_only=True).eval()
    processor = CLIPImageProcessor.from_pretrained(inputs / "clip", local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(inputs / "clip", local_files_only=True)
    paths, texts = _some(inputs)

    @torch.inference_mode()
    def work() -> Any:
        pictures, words = [], []
        for start in range(0, _FEW, BATCH):
            batch = [Image.open(path).convert("RGB") for path in paths[start : start + BATCH]]
            pixels = processor(images=batch, return_tensors="pt")
            pictures.append(_features(model.get_image_features(**pixels)))
            ids = tokenizer(
                texts[start : start + BATCH], padding=True, truncation=True, max_length=CONTEXT,
                return_tensors="pt",
            )  # fmt: skip
            words.append(_features(model.get_text_features(**ids)))
        return _rounded(torch.cat(pictures), torch.cat(words))

    return work


def _features(found: Any) -> Any:
    """The embeddings, which newer versions wrap."""
    return getattr(found, "pooler_output", found)


def _sentence_transformers_clip(inputs: Path) -> Work:
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(inputs / "clip"), device="cpu", local_files_only=True)
    model.max_seq_length = CONTEXT
    paths, texts = _some(inputs)

    def work() -> Any:
        images = [Image.open(path).convert("RGB") for path in paths]
        options: Any = {"batch_size": BATCH, "convert_to_tensor": True}
        pictures = model.encode(images, show_progress_bar=False, **options)
        words = model.encode(texts, show_progress_bar=False, **options)
        return _rounded(torch.as_tensor(pictures), torch.as_tensor(words))

    return work


def _open_clip(inputs: Path) -> Work:
    import open_clip as peer
    import torch

    open_clip: Any = peer
    model, _, fit = open_clip.create_model_and_transforms("ViT-B-16-quickgelu")
    tokenize = open_clip.get_tokenizer("ViT-B-16-quickgelu")
    paths, texts = _some(inputs)
    model.eval()

    @torch.inference_mode()
    def work() -> Any:
        for start in range(0, _FEW, BATCH):
            batch = [fit(Image.open(path)) for path in paths[start : start + BATCH]]
            model.encode_image(torch.stack(batch))
            model.encode_text(tokenize(texts[start : start + BATCH]))
        return None

    return work


EMBEDDINGS = Comparison(
    title="48 images and captions encoded by CLIP ViT-B/16",
    ways=(
        Way(name="glit", prepare=_glit_clip),
        Way(name="transformers", prepare=_transformers_clip, package="transformers"),
        Way(
            name="sentence-transformers", prepare=_sentence_transformers_clip,
            package="sentence_transformers",
        ),
        Way(name="open_clip", prepare=_open_clip, package="open_clip", note="other weights"),
    ),
)  # fmt: skip


# -- measuring -------------------------------------------------------------------------------------


WORKS = {"loader": BATCHES, "clip": EMBEDDINGS}


def measure(folder: Path, work: str, *, repeats: int) -> Row:
    """Every way of a work, in turn: medians, and medians of the ratios of one round."""
    ways = [way for way in WORKS[work].ways if importlib.util.find_spec(way.package)]
    rounds = []
    for number in range(repeats):
        print(f"{work}, {number + 1} of {repeats}", flush=True)
        rounds.append([_ask(folder, work, way.name) for way in ways])
    answers = [found["answer"] for found in rounds[0]]
    return {
        way.name: {
            **{
                key: median(each[number][key] for each in rounds)
                for key in ("wall_s", "cpu_s", "peak_mb")
            },
            **{
                f"{key}_of_glit": median(each[number][key] / each[0][key] for each in rounds)
                for key in ("wall_s", "cpu_s")
            },
            "answer": _compared(answers[number], answers[0]),
            "note": way.note,
        }
        for number, way in enumerate(ways)
    }


def _compared(answer: Any, ours: Any) -> str:
    if answer is None:
        return "not compared"
    return "the same" if answer == ours else "differs"


def _ask(folder: Path, work: str, way: str) -> Row:
    """Run a way in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.measure.peers", "-o", folder, "--one", work, way],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{work} by {way}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _one(folder: Path, work: str, name: str) -> Row:
    way = next(each for each in WORKS[work].ways if each.name == name)
    do = way.prepare(folder / "inputs")
    wall, cpu = time.perf_counter(), _cpu_s()
    answer = do()
    spent = {"wall_s": time.perf_counter() - wall, "cpu_s": _cpu_s() - cpu, "peak_mb": peak_mb()}
    return {**spent, "answer": answer}


def _cpu_s() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def page(report: Row) -> Page:
    """The report as tables."""
    machine = "; ".join(f"{key}: {value}" for key, value in report["machine"].items())
    blocks: list[str | Table] = ["# Beside other packages", f"{machine}. Medians of "
                                 f"{report['repeats']}, in turn."]  # fmt: skip
    for work, ways in report["works"].items():
        heads = [WORKS[work].title, "wall", "CPU", "peak MB", "answer", "note"]
        rows = [
            [name, f"{figure(way['wall_s'])} s ({way['wall_s_of_glit']:.2f} ×)",
             f"{figure(way['cpu_s'])} s ({way['cpu_s_of_glit']:.2f} ×)", f"{way['peak_mb']:.0f}",
             way["answer"], way["note"]]
            for name, way in ways.items()
        ]  # fmt: skip
        blocks.append(Table(heads=heads, rows=rows))
    return blocks


def main() -> None:
    """Measure; or, with --one, be one way."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.measure.peers", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/peers"))
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(_one(given.output, *given.one)))
        return
    make_inputs(given.output / "inputs")
    report: Row = {"machine": describe_machine("cpu"), "repeats": given.repeats, "works": {}}
    for work in given.only:
        report["works"][work] = measure(given.output, work, repeats=given.repeats)
        print(*write_report(given.output, "peers", report, page(report)))


if __name__ == "__main__":
    main()
