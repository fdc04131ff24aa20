"""glit beside other packages on the same work: ``python -m tools.measure.peers -o OUT``.

Needs ``cleanvision``, ``daft``, ``imagededup``, ``pysbd``, ``sentence-transformers`` and ``spacy``
besides glit's own extras and tools; what is not installed is left out. Each way runs in a process
of its own, in turn with the others; imports and models that are loaded do not count. Answers are
compared, and what a way does more or less than glit is in its ``note``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image, ImageOps

from glit.bench.harness import Row, write_report
from glit.bench.machine import describe_machine, peak_mb
from glit.clip.random_clip import VIT_B_16, write_random_clip
from glit.runtime.tables import Page, Table, figure
from glit.scenes import write_scenes
from tools import messy

_SCENE_PX, _SCENES, _FEW = 512, 600, 48
_SIDE, _BATCH = 224, 32
_CONTEXT = 77
Work = Callable[[], Any]
"""Does the work that is timed; its answer, as plain values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One package's way of doing some work."""

    name: str
    prepare: Callable[[Path, Path], Work]
    """Of the folder of inputs and a folder to write into: imports, loads, and returns the work."""
    package: str = "glit"
    note: str = ""


# Sentences: 6,000 captions of scenes.


def _captions(inputs: Path) -> list[str]:
    lines = (inputs / "scenes" / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["caption"] for line in lines]
    return [f"This is view {view} of it. {text}" for view in range(10) for text in texts]


def _cut(split: Callable[[str], list[str]]) -> Callable[[Path, Path], Work]:
    def prepare(inputs: Path, out: Path) -> Work:
        texts = _captions(inputs)
        split(texts[0])
        return lambda: [[part.strip() for part in split(text)] for text in texts]

    return prepare


def _glit_sentences(inputs: Path, out: Path) -> Work:
    from glit.text.sentences import make_splitter

    spans = make_splitter("sentencex", "en")
    return _cut(lambda text: [text[a:b] for a, b in spans(text)])(inputs, out)


def _pysbd(inputs: Path, out: Path) -> Work:
    import pysbd

    return _cut(pysbd.Segmenter(language="en", clean=False).segment)(inputs, out)


def _punkt(inputs: Path, out: Path) -> Work:
    from nltk.tokenize import PunktSentenceTokenizer

    return _cut(PunktSentenceTokenizer().tokenize)(inputs, out)


def _spacy(inputs: Path, out: Path) -> Work:
    import spacy

    model = spacy.blank("en")
    model.add_pipe("sentencizer")
    return _cut(lambda text: [str(each) for each in model(text).sents])(inputs, out)


# A messy folder: which images are damaged, bad or repeated?


def _build(folder: Path, out: Path, **options: Any) -> None:
    """Build a folder's images with its captions, without models."""
    import glit

    glit.build(
        folder / "images", out, recipe="captions-only", captions=folder / "captions.jsonl",
        executor="local", quiet=True, **options,
    )  # fmt: skip


def _glit_messy(inputs: Path, out: Path) -> Work:
    import glit

    folder = inputs / "messy"
    settings = [
        "ingest.min_side=64", "ingest.near_duplicates=6", "quality.enabled=true",
        "quality.min_sharpness=50", "quality.min_contrast=0.05", "quality.min_brightness=0.1",
        "quality.max_aspect=4",
    ]  # fmt: skip
    _build(folder, out / "imports", limit=2)

    def work() -> dict[str, str]:
        _build(folder, out / "dataset", settings=settings)
        dataset = glit.open_dataset(out / "dataset")
        gone = {row.source_path for row in dataset.rows(images=False)}
        names = {path.name for path in (folder / "images").iterdir()}
        return {name: "" if name in gone else "out" for name in sorted(names)}

    return work


def _cleanvision(inputs: Path, out: Path) -> Work:
    from cleanvision import Imagelab

    def work() -> dict[str, str]:
        folder = inputs / "messy" / "images"
        names = sorted(path.name for path in folder.iterdir())
        lab = Imagelab(filepaths=[str(folder / name) for name in names if _opens(folder / name)])
        lab.find_issues(n_jobs=1, verbose=False)
        issues = lab.issues
        flags = issues[[column for column in issues if column.startswith("is_")]].any(axis=1)
        found = {os.path.basename(path): "out" if flag else "" for path, flag in flags.items()}
        return {name: found.get(name, "out") for name in names}

    return work


def _opens(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            image.load()
    except OSError:
        return False
    return True


def _imagededup(inputs: Path, out: Path) -> Work:
    from imagededup.methods import PHash

    def work() -> dict[str, str]:
        folder = inputs / "messy" / "images"
        method = PHash(verbose=False)
        gone = set(method.find_duplicates_to_remove(
            image_dir=str(folder), max_distance_threshold=6, num_enc_workers=0, num_dist_workers=0,
        ))  # fmt: skip
        return {path.name: "out" if path.name in gone else "" for path in sorted(folder.iterdir())}

    return work


# A folder becomes Parquet: bytes, captions, hash, size upright.


def _looked(data: bytes) -> dict[str, Any]:
    """Hash and upright size of an image that is decoded whole."""
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": list(upright.size)}


def _glit_parquet(inputs: Path, out: Path) -> Work:
    import glit

    _build(inputs / "scenes", out / "imports", limit=2)

    def work() -> list[Any]:
        _build(inputs / "scenes", out / "dataset")
        rows = glit.open_dataset(out / "dataset").rows(images=False)
        return sorted([row.sample_id, [row.width, row.height]] for row in rows)

    return work


def _hf_parquet(inputs: Path, out: Path) -> Work:
    import datasets

    datasets.disable_progress_bars()

    def work() -> list[Any]:
        lines = (inputs / "scenes" / "captions.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        folder = inputs / "scenes" / "images"
        found = datasets.Dataset.from_list([
            {"image": str(folder / row["path"]), "caption": row["caption"]} for row in rows
        ])  # fmt: skip
        found = found.map(lambda row: _looked(Path(row["image"]).read_bytes()))
        found = found.cast_column("image", datasets.Image())
        found.to_parquet(str(out / "data.parquet"))
        told: Any = found.remove_columns("image")
        return sorted([row["sha256"], row["size"]] for row in told)

    return work


def _daft_parquet(inputs: Path, out: Path) -> Work:
    import daft

    def work() -> list[Any]:
        lines = (inputs / "scenes" / "captions.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        folder = inputs / "scenes" / "images"
        frame = daft.from_pydict({
            "path": [str(folder / row["path"]) for row in rows],
            "caption": [row["caption"] for row in rows],
        })  # fmt: skip
        frame = frame.with_column("image", frame["path"].download())

        @daft.func(return_dtype=daft.DataType.string())
        def look(data: bytes) -> str:
            return json.dumps(_looked(data))

        frame = frame.with_column("looked", look(frame["image"]))
        frame.write_parquet(str(out / "data"))
        told = daft.read_parquet(str(out / "data")).select("looked").to_pydict()["looked"]
        return sorted([each["sha256"], each["size"]] for each in map(json.loads, told))

    return work


# Batches of 224 px squares and tokens from the finished dataset.


def _glit_loader(inputs: Path, out: Path) -> Work:
    from glit.api import open_dataset
    from glit.clip.kinds import open_tokenizer
    from glit.training.config import TrainConfig
    from glit.training.loader import BatchLoader
    from glit.training.mixture import Mixture

    tokenizer = open_tokenizer(inputs / "clip")
    config = TrainConfig(objective="clip", batch_size=_BATCH, context=_CONTEXT)
    loader = BatchLoader(
        Mixture([open_dataset(inputs / "dataset")]), config.make_objective(),
        lambda texts: tokenizer.encode_closed(texts, context=_CONTEXT), config,
        side=_SIDE, pad_id=tokenizer.end_id,
    )  # fmt: skip
    return lambda: sum(part.num_valid for parts in loader.epoch(0) for part in parts)


def _torch_loader(rows: Any, inputs: Path, *, image: Any, text: Any) -> Work:
    """Torch's loader with a process a core, with the transforms and the tokenizer of CLIP;
    bytes are normalised on the device, as glit does."""
    from torch.utils.data import DataLoader
    from torchvision import transforms
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(inputs / "clip", local_files_only=True)
    fit: Any = transforms.Compose([
        transforms.Resize(_SIDE, transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(_SIDE), transforms.PILToTensor(),
    ])  # fmt: skip

    def together(given: Sequence[Any]) -> tuple[Any, Any]:
        import torch

        words = tokenizer(
            [row[text] for row in given], padding="max_length", truncation=True,
            max_length=_CONTEXT, return_tensors="pt",
        )  # fmt: skip
        return torch.stack([fit(row[image].convert("RGB")) for row in given]), words["input_ids"]

    loader = DataLoader(rows, batch_size=_BATCH, num_workers=2, collate_fn=together)
    return lambda: sum(len(images) for images, _ in loader)


def _webdataset(inputs: Path, out: Path) -> Work:
    import webdataset

    reader: Any = webdataset

    shards = sorted(map(str, (inputs / "tars").rglob("*.tar")))
    rows = reader.WebDataset(shards, shardshuffle=False).decode("pil").to_tuple("jpg", "txt")
    return _torch_loader(rows, inputs, image=0, text=1)


def _hf_loader(inputs: Path, out: Path) -> Work:
    import datasets

    files = sorted(map(str, (inputs / "hf" / "data").glob("*.parquet")))
    stream = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    stream = stream.select_columns(["image", "caption"])
    return _torch_loader(stream, inputs, image="image", text="caption")


# CLIP embeddings of files and captions, ViT-B/16 with random weights, float32.


def _some(inputs: Path) -> tuple[list[Path], list[str]]:
    images = sorted((inputs / "scenes" / "images").iterdir())[:_FEW]
    return images, _captions(inputs)[:_FEW]


def _rounded(images: Any, texts: Any) -> list[list[float]]:
    """Cosines of eight images and texts, which all ways should agree on."""
    from torch.nn.functional import normalize

    found = normalize(images[:8].float(), dim=-1) @ normalize(texts[:8].float(), dim=-1).T
    return [[round(value, 2) for value in row] for row in found.tolist()]


def _glit_clip(inputs: Path, out: Path) -> Work:
    import numpy as np
    import torch

    from glit.clip.embedder import Embedder
    from glit.images import decode

    model = Embedder.open(str(inputs / "clip"), device="cpu", batch_size=_BATCH)
    images, texts = _some(inputs)

    def work() -> Any:
        found = list(model.pixels(decode(path.read_bytes()) for path in images))
        return _rounded(torch.from_numpy(np.concatenate(found)), model.texts(texts))

    return work


def _transformers_clip(inputs: Path, out: Path) -> Work:
    import torch
    from transformers import AutoTokenizer, CLIPImageProcessor, CLIPModel

    model = CLIPModel.from_pretrained(inputs / "clip", local_files_only=True).eval()
    processor = CLIPImageProcessor.from_pretrained(inputs / "clip", local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(inputs / "clip", local_files_only=True)
    paths, texts = _some(inputs)

    @torch.inference_mode()
    def work() -> Any:
        pictures, words = [], []
        for start in range(0, _FEW, _BATCH):
            batch = [Image.open(path).convert("RGB") for path in paths[start : start + _BATCH]]
            pixels = processor(images=batch, return_tensors="pt")
            pictures.append(_features(model.get_image_features(**pixels)))
            ids = tokenizer(
                texts[start : start + _BATCH], padding=True, truncation=True, max_length=_CONTEXT,
                return_tensors="pt",
            )  # fmt: skip
            words.append(_features(model.get_text_features(**ids)))
        return _rounded(torch.cat(pictures), torch.cat(words))

    return work


def _features(found: Any) -> Any:
    """The embeddings, which newer versions wrap."""
    return getattr(found, "pooler_output", found)


def _sentence_transformers_clip(inputs: Path, out: Path) -> Work:
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(inputs / "clip"), device="cpu", local_files_only=True)
    model.max_seq_length = _CONTEXT
    paths, texts = _some(inputs)

    def work() -> Any:
        images = [Image.open(path).convert("RGB") for path in paths]
        options: Any = {"batch_size": _BATCH, "convert_to_tensor": True}
        pictures = model.encode(images, show_progress_bar=False, **options)
        words = model.encode(texts, show_progress_bar=False, **options)
        return _rounded(torch.as_tensor(pictures), torch.as_tensor(words))

    return work


def _open_clip(inputs: Path, out: Path) -> Work:
    import open_clip as peer
    import torch

    open_clip: Any = peer
    model, _, fit = open_clip.create_model_and_transforms("ViT-B-16-quickgelu")
    tokenize = open_clip.get_tokenizer("ViT-B-16-quickgelu")
    paths, texts = _some(inputs)
    model.eval()

    @torch.inference_mode()
    def work() -> Any:
        for start in range(0, _FEW, _BATCH):
            batch = [fit(Image.open(path)) for path in paths[start : start + _BATCH]]
            model.encode_image(torch.stack(batch))
            model.encode_text(tokenize(texts[start : start + _BATCH]))
        return None

    return work


WORKS: dict[str, tuple[str, tuple[Way, ...]]] = {
    "sentences": (
        "6,000 captions cut into sentences",
        (
            Way(name="glit", prepare=_glit_sentences),
            Way(name="pySBD", prepare=_pysbd, package="pysbd"),
            Way(name="Punkt", prepare=_punkt, package="nltk", note="untrained"),
            Way(name="spaCy", prepare=_spacy, package="spacy", note="its rule of full stops"),
        ),
    ),
    "messy": (
        "a messy folder: which images to leave out",
        (
            Way(name="glit", prepare=_glit_messy, note="writes the dataset too"),
            Way(name="cleanvision", prepare=_cleanvision, package="cleanvision"),
            Way(name="imagededup", prepare=_imagededup, package="imagededup", note="repeats only"),
        ),
    ),
    "parquet": (
        "600 images with captions: hashed, measured upright, written to Parquet",
        (
            Way(name="glit", prepare=_glit_parquet, note="cuts sentences and counts tokens too"),
            Way(name="datasets", prepare=_hf_parquet, package="datasets"),
            Way(name="Daft", prepare=_daft_parquet, package="daft"),
        ),
    ),
    "loader": (
        "600 images as batches of 224 px squares and tokens",
        (
            Way(name="glit", prepare=_glit_loader, note="shuffled; resumes at any batch"),
            Way(name="webdataset", prepare=_webdataset, package="webdataset", note="in order"),
            Way(name="datasets, streamed", prepare=_hf_loader, package="datasets", note="in order"),
        ),
    ),
    "clip": (
        "48 images and captions encoded by CLIP ViT-B/16",
        (
            Way(name="glit", prepare=_glit_clip),
            Way(name="transformers", prepare=_transformers_clip, package="transformers"),
            Way(
                name="sentence-transformers", prepare=_sentence_transformers_clip,
                package="sentence_transformers",
            ),
            Way(name="open_clip", prepare=_open_clip, package="open_clip", note="other weights"),
        ),
    ),
}  # fmt: skip
"""What is measured, in words, and by whom; glit first."""


def make_inputs(folder: Path, photographs: Path | None) -> None:
    """Draw scenes, make a messy folder of some, a dataset, its exports, and a model."""
    import glit

    if (folder / "done").exists():
        return
    scenes = folder / "scenes"
    write_scenes(scenes, num=_SCENES, seed=0, size=_SCENE_PX, image_format="jpeg")
    messy.make(photographs or scenes / "images", folder / "messy", captions=None, seed=0)
    _build(scenes, folder / "dataset")
    _write_tars(folder / "dataset", folder / "tars")
    glit.export(folder / "dataset", to="hf", output=folder / "hf")
    write_random_clip(
        folder / "clip", VIT_B_16, seed=0, corpus=_captions(folder)[:200], embedding_rows=49_408
    )
    (folder / "done").touch()


def _write_tars(dataset: Path, folder: Path) -> None:
    """The samples in tar files of a hundred, by webdataset's own writer if it is installed."""
    if not importlib.util.find_spec("webdataset"):
        return
    import webdataset

    import glit

    writer: Any = webdataset
    folder.mkdir()
    with writer.ShardWriter(str(folder / "%03d.tar"), maxcount=100, verbose=0) as tars:
        for row in glit.open_dataset(dataset).rows():
            tars.write({"__key__": row.sample_id[:16], "jpg": row.image, "txt": row.caption.text})


def measure(folder: Path, work: str, *, repeats: int) -> Row:
    """Every way of a work, in turn: medians, and medians of the ratios of one round."""
    ways = [way for way in WORKS[work][1] if importlib.util.find_spec(way.package)]
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
            "quality": quality(folder / "inputs", work, answers[number], answers[0]),
            "note": way.note,
        }
        for number, way in enumerate(ways)
    }


def quality(inputs: Path, work: str, answer: Any, ours: Any) -> str:
    """How good an answer is, where the truth is known; else whether it is the one of glit."""
    if work == "sentences":
        same = sum(map(lambda a, b: a == b, answer, ours)) / len(ours)
        return f"{100 * same:.1f} % of captions as glit"
    if work == "messy":
        truth = json.loads((inputs / "messy" / "truth.json").read_text(encoding="utf-8"))
        good, found = [], {"bad": [0, 0], "repeats": [0, 0]}
        for name, told in truth.items():
            kind = told["fate"].split()[0]
            if kind == "double":
                if "-2." in name:  # one of the two has to go
                    pair = [name, told["of"]]
                    found["repeats"][0] += any(answer[each] for each in pair if each in answer)
                    found["repeats"][1] += 1
            elif kind in ("good", "test"):
                good.append(not answer[name])
            else:
                found["bad"][0] += bool(answer[name])
                found["bad"][1] += 1
        told = ", ".join(f"{right} of {number} {name}" for name, (right, number) in found.items())
        return f"{told} found; {len(good) - sum(good)} of {len(good)} good ones taken"
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
    import tempfile

    way = next(each for each in WORKS[work][1] if each.name == name)
    with tempfile.TemporaryDirectory() as scratch:
        do = way.prepare(folder / "inputs", Path(scratch))
        wall, cpu = time.perf_counter(), _cpu_s()
        answer = do()
        return {
            "wall_s": time.perf_counter() - wall, "cpu_s": _cpu_s() - cpu, "peak_mb": peak_mb(),
            "answer": answer,
        }  # fmt: skip


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
        heads = [WORKS[work][0], "wall", "CPU", "peak MB", "answer", "note"]
        rows = [
            [name, f"{figure(way['wall_s'])} s ({way['wall_s_of_glit']:.2f} ×)",
             f"{figure(way['cpu_s'])} s ({way['cpu_s_of_glit']:.2f} ×)", f"{way['peak_mb']:.0f}",
             way["quality"], way["note"]]
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
    parser.add_argument("--photographs", type=Path, help="for the messy folder; else scenes")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(_one(given.output, *given.one)))
        return
    make_inputs(given.output / "inputs", given.photographs)
    report: Row = {"machine": describe_machine("cpu"), "repeats": given.repeats, "works": {}}
    for work in given.only:
        report["works"][work] = measure(given.output, work, repeats=given.repeats)
        print(*write_report(given.output, "peers", report, page(report)))


if __name__ == "__main__":
    main()
