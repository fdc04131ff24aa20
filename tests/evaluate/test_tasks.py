"""The measurements on a tiny model, against CLIPModel used directly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import CLIPModel

from glit.clip.preprocess import crop, fit_image
from glit.clip.text_window import stretch_model
from glit.dataset.local_pairs import LocalPair
from glit.errors import InputError, RecipeError, RunError, WeightsError
from glit.evaluate.collection import (
    AnnotatedCollection,
    DatasetCollection,
    JointCollection,
    all_captions,
    open_collection,
)
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.encode import load_embedder
from glit.evaluate.readers.files import AnnotatedImage, Segment
from glit.evaluate.report import Result, markdown, write_results
from glit.evaluate.run import evaluate
from glit.evaluate.scorers.protocol import Vectors
from glit.evaluate.scorers.sentence_average import SentenceAverage
from glit.evaluate.scorers.sentence_patches import SentencePatches
from glit.evaluate.tasks import joint_map, retrieval, robustness
from glit.evaluate.tasks.robustness import with_false_sentences
from glit.images import decode
from glit.recipe import load_table

CONFIG = EvaluateConfig(batch_size=4, num_workers=2, device="cpu", recall_at=(1, 5))


def config(**changes) -> EvaluateConfig:
    values = {"batch_size": 4, "num_workers": 2, "device": "cpu", "recall_at": (1, 5)}
    return EvaluateConfig(**{**values, **changes})


class SetByHand:
    """An embedder of known places: a vector for every text, whole image and region."""

    def __init__(self, texts: dict[str, list[float]], wholes, regions=()) -> None:
        self.text_of = texts
        self.whole_of = wholes
        self.region_of = regions

    def wholes(self, collection):
        return [(index, None) for index in range(len(collection.captions))]

    def images(self, collection, pictures) -> torch.Tensor:
        return torch.tensor(
            [self.whole_of[i] if pair is None else self.region_of[i] for i, pair in pictures]
        )

    def texts(self, texts) -> torch.Tensor:
        return torch.tensor([self.text_of[text] for text in texts])


def three_images() -> AnnotatedCollection:
    images = [AnnotatedImage(path=Path(f"{i}.jpg"), captions=(f"Image {i}.",)) for i in range(3)]
    return AnnotatedCollection("three", images, lambda text: [(0, len(text))])


@torch.no_grad()
def test_retrieval_is_what_the_model_itself_gives(tiny_clip, make_dataset) -> None:
    dataset = make_dataset(12)
    embedder = load_embedder(str(tiny_clip), CONFIG)
    collection = DatasetCollection(str(dataset), CONFIG)
    model = CLIPModel.from_pretrained(tiny_clip)
    stretch_model(model, 248)
    mean, std = embedder.encoder.mean_3[:, None, None], embedder.encoder.std_3[:, None, None]
    images, texts = [], []
    for i in range(12):
        assert embedder.fit == "centre-crop"
        fitted = fit_image(decode(collection.image(i)), side=32, fit="centre-crop")
        pixels = (fitted.float() - mean) / std
        images.append(model.get_image_features(pixel_values=pixels[None]).pooler_output)
        ids = embedder.tokenizer.encode_closed(collection.captions[i], context=248)
        texts.append(model.get_text_features(input_ids=torch.tensor(ids)).pooler_output)
    similarity = F.normalize(torch.cat(texts)) @ F.normalize(torch.cat(images)).T
    rank = (similarity > similarity.diagonal()[:, None]).sum(dim=1)
    found = retrieval(embedder, collection, CONFIG)
    assert found["image_retrieval_recall@1"] == pytest.approx(float((rank < 1).float().mean()))
    assert found["image_retrieval_recall@5"] == pytest.approx(float((rank < 5).float().mean()))
    rank = (similarity.diagonal()[:, None] < similarity.T).sum(dim=1)
    assert found["text_retrieval_recall@5"] == pytest.approx(float((rank < 5).float().mean()))


def test_neither_batches_nor_workers_nor_chunks_change_a_figure(tiny_clip, make_dataset) -> None:
    dataset = str(make_dataset(13))
    results = [
        evaluate("retrieval", [str(tiny_clip)], dataset, config(**changes))[0].metrics
        for changes in ({}, {"batch_size": 64, "num_workers": 0}, {"chunk_size": 3})
    ]
    assert results[0] == results[1] == results[2]


def test_duplicate_captions_are_right_for_both_images(tiny_clip, make_dataset) -> None:
    """Every caption the same: every image is right for every text, so recall is one."""

    def same(index: int, row) -> None:
        row["caption"], row["sentences"], row["pairs"] = "A red house.", [], []

    found = evaluate("retrieval", [str(tiny_clip)], str(make_dataset(6, change=same)), CONFIG)
    assert set(found[0].metrics.values()) == {1.0}


def test_identical_images_and_captions_score_by_their_pairs(tiny_clip, make_dataset) -> None:
    """Of four images with one picture, ties go to the first: R@1 is a quarter."""
    pictures: list[bytes] = []

    def one_picture(index: int, row) -> None:
        pictures.append(row["image"]["bytes"])
        row["image"]["bytes"] = pictures[0]

    found = evaluate(
        "retrieval", [str(tiny_clip)], str(make_dataset(4, change=one_picture)), CONFIG
    )
    assert found[0].metrics["image_retrieval_recall@1"] == 0.25


def test_sentence_average(tiny_clip, make_dataset) -> None:
    embedder = load_embedder(str(tiny_clip), CONFIG)
    collection = DatasetCollection(str(make_dataset(3)), CONFIG)
    texts, owner = all_captions(collection)
    assert owner == [0, 1, 2]
    found = SentenceAverage().texts(embedder, texts)
    caption = collection.captions[1][0]
    pieces = [caption[a:b] for a, b in collection.sentences(1)[0]]
    assert len(pieces) == 4 and all(piece.endswith(".") for piece in pieces)
    wanted = F.normalize(embedder.texts(pieces).mean(dim=0), dim=-1)
    torch.testing.assert_close(found.vector_NVD[1, 0], wanted)


def test_sentence_patches_by_hand() -> None:
    """Two texts of one and two sentences against two images of two patches."""
    a, b, c = torch.eye(3)
    images = Vectors(
        vector_NVD=torch.stack([torch.stack([a, b]), torch.stack([b, (a + c) / 2**0.5])]),
        valid_NV=torch.ones(2, 2, dtype=torch.bool),
    )
    texts = Vectors(
        vector_NVD=torch.stack([torch.stack([a, 0 * a]), torch.stack([b, c])]),
        valid_NV=torch.tensor([[True, False], [True, True]]),
    )
    found = SentencePatches().score(texts, images)
    half = 0.5**0.5
    torch.testing.assert_close(found, torch.tensor([[1, half], [0.5, (1 + half) / 2]]))


@torch.no_grad()
def test_retrieval_by_sentences_and_patches(tiny_clip, make_dataset) -> None:
    """More than one vector a side, in blocks, against a loop over all of them."""
    dataset = str(make_dataset(7))
    embedder = load_embedder(str(tiny_clip), CONFIG)
    collection = DatasetCollection(dataset, CONFIG)
    patches = torch.cat(list(embedder.patches(collection, range(7))))
    scores = torch.empty(7, 7)
    for t in range(7):
        caption = collection.captions[t][0]
        sentences = embedder.texts([caption[a:b] for a, b in collection.sentences(t)[0]])
        for i in range(7):
            scores[t, i] = (sentences @ patches[i].T).amax(dim=1).mean()
    own = scores.diagonal()
    wanted = [
        float(((scores > own[:, None]).sum(dim=1) < 1).float().mean()),
        float(((own[:, None] < scores.T).sum(dim=1) < 1).float().mean()),
    ]
    for chunk in (2, 4096):
        settings = config(scorer="sentence-patches", chunk_size=chunk)
        found = evaluate("retrieval", [str(tiny_clip)], dataset, settings)[0].metrics
        both = [found[f"{way}_retrieval_recall@1"] for way in ("image", "text")]
        assert both == pytest.approx(wanted)


def test_a_scorer_that_is_not_there(tiny_clip, make_dataset) -> None:
    with pytest.raises(RecipeError, match="'cosin': wanted one of cosine, sentence-average"):
        evaluate("retrieval", [str(tiny_clip)], str(make_dataset(2)), config(scorer="cosin"))
    with pytest.raises(RecipeError, match="did you mean 'cosine'"):
        load_table("evaluate", "mini", overrides=["evaluate.scorer=cosin"])


def test_joint_map_counts_equal_texts_once() -> None:
    """Two samples whose regions share a sentence; similarities of image and text set by hand.

    Images 0 and 1 are whole, 2 and 3 regions. Every image finds "same" first, the other's caption
    second and its own third: (1 + 2/3) / 2. With a copy of "same" in the gallery it would be
    (1 + 1 + 3/4) / 3.
    """
    collection: Any = three_images()
    collection.captions = [("A",), ("B",)]
    pair = LocalPair(sentence="same", token_span=(0, 0), box_xyxy=(0, 0, 9, 9), similarity=0.3)
    collection.pairs = lambda index: (pair,)
    own, other, same = 0.1, 0.2, 0.3
    embedder: Any = SetByHand(
        {"A": [1.0, 0, 0], "B": [0, 1.0, 0], "same": [0, 0, 1.0]},
        wholes=[[own, other, same], [other, own, same]],
        regions=[[own, other, same], [other, own, same]],
    )
    found = joint_map(embedder, collection, config())
    assert found["text_retrieval_map@10"] == pytest.approx((1 + 2 / 3) / 2)
    assert (found["pairs"], found["distinct_texts"]) == (2, 3)


@torch.no_grad()
def test_joint_map_of_a_random_model(tiny_clip, make_dataset) -> None:
    """Against CLIPModel itself and average precisions taken one by one."""
    dataset = str(make_dataset(8))
    found = evaluate("joint-map", [str(tiny_clip)], dataset, CONFIG)[0].metrics
    collection = DatasetCollection(dataset, CONFIG)
    embedder = load_embedder(str(tiny_clip), CONFIG)
    model = CLIPModel.from_pretrained(tiny_clip)
    stretch_model(model, 248)
    mean, std = embedder.encoder.mean_3[:, None, None], embedder.encoder.std_3[:, None, None]
    images, texts, samples = [], [], []
    for local in (False, True):
        for i in range(8):
            best, image = collection.pairs(i)[0], decode(collection.image(i))
            image = crop(image, np.array(best.box_xyxy)) if local else image
            fitted = fit_image(image, side=32, fit="centre-crop")
            pixels = ((fitted.float() - mean) / std)[None]
            images.append(F.normalize(model.get_image_features(pixel_values=pixels).pooler_output))
            texts.append(best.sentence if local else collection.captions[i][0])
            samples.append(i)
    distinct = list(dict.fromkeys(texts))
    ids = [embedder.tokenizer.encode_closed([text], context=248) for text in distinct]
    vectors = [F.normalize(model.get_text_features(torch.tensor(i)).pooler_output) for i in ids]
    similarity = torch.cat(images) @ torch.cat(vectors).T
    owners = [{samples[n] for n, text in enumerate(texts) if text == own} for own in distinct]
    right = torch.tensor([[sample in owner for owner in owners] for sample in samples])

    def precision(scores: torch.Tensor, relevant: torch.Tensor) -> float:
        hits = relevant[scores.argsort(descending=True)[:10]].float()
        ranks = torch.arange(1, len(hits) + 1)
        return float((hits.cumsum(0) / ranks * hits).sum() / min(10, int(relevant.sum())))

    by_image = np.mean([precision(s, r) for s, r in zip(similarity, right, strict=True)])
    by_text = np.mean([precision(s, r) for s, r in zip(similarity.T, right.T, strict=True)])
    assert found["text_retrieval_map@10"] == pytest.approx(by_image, abs=1e-6)
    assert found["image_retrieval_map@10"] == pytest.approx(by_text, abs=1e-6)
    assert (found["pairs"], found["distinct_texts"]) == (8, len(distinct))


def test_joint_map_of_a_published_joint_set() -> None:
    """Whole images A and B, a segment of each; precisions worked out by hand.

    Image to text: 5/6, 1, 3/4 and 1/2; text to image: 5/6, 1, 5/6 and 1/2.
    """
    images = [
        AnnotatedImage(
            path=Path(f"{name}.jpg"),
            captions=(name,),
            segments=(Segment(path=Path(f"{name}.png"), sentence=name.lower()),),
        )
        for name in "AB"
    ]
    collection = JointCollection("joint", images, lambda text: [(0, len(text))])
    assert collection.captions == [("A",), ("B",)]
    similarities = [  # of images A, B and segments a, b to texts A, B, a, b
        [0.40, 0.30, 0.20, 0.12],
        [0.05, 0.40, 0.15, 0.30],
        [0.10, 0.20, 0.40, 0.35],
        [0.35, 0.32, 0.25, 0.10],
    ]
    axes = torch.eye(4).tolist()
    embedder: Any = SetByHand(dict(zip("ABab", axes, strict=True)), similarities)
    found = joint_map(embedder, collection, config())
    assert found["text_retrieval_map@10"] == pytest.approx((5 / 6 + 1 + 3 / 4 + 1 / 2) / 4)
    assert found["image_retrieval_map@10"] == pytest.approx((5 / 6 + 1 + 5 / 6 + 1 / 2) / 4)
    assert (found["pairs"], found["distinct_texts"]) == (2, 4)


def test_a_joint_set_from_its_files(tiny_clip, tmp_path) -> None:
    rows = []
    for i in range(3):
        colour = (80 * i, 10, 200 - 60 * i)
        whole = tmp_path / "photos" / f"sa_{i}.jpg"
        segment = tmp_path / f"sa_{i}.jpg_results" / f"sa_{i}_max_{i}.png"
        for path, size in ((whole, (40, 30)), (segment, (9, 7))):
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", size, colour).save(path)
        rows.insert(i, {"filename": f"../{whole}", "caption": f"A red house. It has {i} doors."})
        score = {"caption": f"It has {i} doors", "similarity_score": 20.5}
        rows.append({"filename": f"../x/{segment.parent.name}/{segment.name}", **score})
    source = tmp_path / "DCI_test_joint_sim_max_11.json"
    source.write_text(json.dumps(rows))
    options = {"kind": "goal-joint", "images": tmp_path}
    found = evaluate("joint-map", [str(tiny_clip)], str(source), CONFIG, **options)[0]
    assert found.dataset == "goal-joint"
    assert (found.metrics["pairs"], found.metrics["distinct_texts"]) == (3, 6)
    assert all(0 < value <= 1 for name, value in found.metrics.items() if "@" in name)
    collection = open_collection(str(source), CONFIG, **options)
    assert len(collection.captions) == 3 and collection.pairs(0) == ()
    source.write_text(json.dumps(rows[:3]))
    with pytest.raises(InputError, match="goal: no image has a local pair, which joint-map"):
        evaluate("joint-map", [str(tiny_clip)], str(source), CONFIG, kind="goal", images=tmp_path)


def test_localize_whole_image_regions_always_hit(tiny_clip, make_dataset) -> None:
    def whole(index: int, row) -> None:
        for region in row["regions"]:
            region.update(x0=0.0, y0=0.0, x1=64.0, y1=48.0)

    found = evaluate("localize", [str(tiny_clip)], str(make_dataset(6, change=whole)), CONFIG)
    assert found[0].metrics["localisation@1"] == found[0].metrics["chance@1"] == 1.0
    assert found[0].metrics["pairs"] == 6


def test_localize_over_all_pairs(tiny_clip, make_dataset) -> None:
    found = evaluate(
        "localize", [str(tiny_clip)], str(make_dataset(5)), config(localize_pairs="all")
    )[0].metrics
    assert found["pairs"] == 20
    assert found["localisation@1"] <= found["localisation@15"]
    assert 0 < found["chance@1"] < found["chance@15"] <= 1


def test_a_false_sentence_in_the_middle(make_dataset) -> None:
    collection = DatasetCollection(str(make_dataset(5)), CONFIG)
    wrong = with_false_sentences(collection, seed=3)
    others = {
        c[a:b]
        for i in range(5)
        for c in collection.captions[i]
        for a, b in collection.sentences(i)[0]
    }
    for i, item in enumerate(wrong):
        text = item.text
        caption = collection.captions[i][0]
        middle = collection.sentences(i)[0][2][0]
        assert text.startswith(caption[:middle]) and text.endswith(caption[middle:])
        false = text[middle : len(text) - len(caption) + middle].strip()
        assert false in others and false not in caption
        assert item.pieces == [
            *(caption[a:b] for a, b in collection.sentences(i)[0][:2]),
            false,
            *(caption[a:b] for a, b in collection.sentences(i)[0][2:]),
        ]
    assert with_false_sentences(collection, seed=3) == wrong
    assert with_false_sentences(collection, seed=4) != wrong


def test_robustness_reports_the_drop(tiny_clip, make_dataset, tmp_path) -> None:
    dataset = str(make_dataset(10))
    found = evaluate("robustness", [str(tiny_clip)], dataset, CONFIG)[0].metrics
    ways = ("image_retrieval_recall@1", "text_retrieval_recall@1")
    drop = np.mean([found[way] - found[f"wrong_{way}"] for way in ways])
    assert found["drop"] == pytest.approx(drop)
    given = tmp_path / "false.jsonl"
    rows = [{"image": i, "sentence": "An empty field."} for i in range(10)]
    given.write_text("\n".join(map(json.dumps, rows)))
    same = evaluate("robustness", [str(tiny_clip)], dataset, CONFIG, false_sentences=given)[0]
    assert same.metrics["image_retrieval_recall@5"] == found["image_retrieval_recall@5"]
    given.write_text(json.dumps(rows[0]))
    with pytest.raises(InputError, match=r"no false sentence for 9 of 10 images \(first: 1\)"):
        evaluate("robustness", [str(tiny_clip)], dataset, CONFIG, false_sentences=given)


def test_the_drop_is_of_recall_at_1_whatever_is_asked() -> None:
    """Three captions at their images; with a false sentence, two of them at the next one."""
    axes = torch.eye(3).tolist()
    right = {f"Image {i}.": axes[i] for i in range(3)}
    wrong = {f"No. Image {i}.": axes[j] for i, j in enumerate((0, 2, 1))}
    false = dict.fromkeys(range(3), "No.")
    embedder: Any = SetByHand(right | wrong, axes)
    for ks in ((3,), (3, 1)):
        found = robustness(embedder, three_images(), config(recall_at=ks), false_sentences=false)
        assert found["drop"] == pytest.approx(2 / 3)
        ways = ("image_retrieval_recall", "text_retrieval_recall")
        names = [f"{way}@{k}" for way in ways for k in ks]
        assert list(found) == [*names, *(f"wrong_{name}" for name in names), "drop"]
        assert found["wrong_image_retrieval_recall@3"] == 1


def test_caption_quality_over_a_sample(tiny_clip, make_dataset) -> None:
    dataset = str(make_dataset(9))
    everything = evaluate("caption-quality", [str(tiny_clip)], dataset, CONFIG)[0].metrics
    assert everything["pairs"] == 9 and -1 < everything["mean_cosine"] < 1
    drawn = evaluate("caption-quality", [str(tiny_clip)], dataset, config(quality_samples=4))
    assert drawn[0].metrics["pairs"] == 4
    again = evaluate("caption-quality", [str(tiny_clip)], dataset, config(quality_samples=4))
    assert again[0].metrics == drawn[0].metrics


def test_annotation_files(tiny_clip, tmp_path) -> None:
    for i in range(3):
        (tmp_path / "caption").mkdir(exist_ok=True)
        (tmp_path / "image").mkdir(exist_ok=True)
        (tmp_path / "caption" / f"{i}.txt").write_text(f"A red house. It has {i} doors.")
        colour = (80 * i, 10, 200 - 60 * i)
        Image.new("RGB", (40, 30), colour).save(tmp_path / "image" / f"{i}.jpg")
    collection = open_collection(str(tmp_path), CONFIG, kind="urban1k")
    assert decode(collection.image(2)).shape == (30, 40, 3)
    assert [len(s) for s in collection.sentences(0)] == [2]
    for task in ("retrieval", "robustness", "caption-quality"):
        found = evaluate(task, [str(tiny_clip)], str(tmp_path), CONFIG, kind="urban1k")
        assert found[0].dataset == "urban1k"
    with pytest.raises(InputError, match="no image has a local pair, which localize measures"):
        evaluate("localize", [str(tiny_clip)], str(tmp_path), CONFIG, kind="urban1k")


@pytest.mark.parametrize(
    ("weight", "task", "named"),
    [
        ("visual_projection.weight", "retrieval", r"image 000000\.jpg is not finite"),
        ("text_projection.weight", "retrieval", r"the text '.* is not finite"),
        ("visual_projection.weight", "joint-map", r"image 000000\.jpg is not finite"),
        ("visual_projection.weight", "localize", r"image 000000\.jpg is not finite"),
        ("text_projection.weight", "robustness", r"the text '.* is not finite"),
        ("visual_projection.weight", "caption-quality", r"image 000000\.jpg is not finite"),
    ],
)
def test_one_nan_weight_is_an_error_in_every_measurement(
    tiny_clip, make_dataset, tmp_path, weight, task, named
) -> None:
    """NaN is below every similarity, so ranks counted from it would all be the first."""
    broken = Path(shutil.copytree(tiny_clip, tmp_path / "broken"))
    weights = load_file(broken / "model.safetensors")
    weights[weight][0, 0] = torch.nan
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunError, match=rf"model .*broken: its embedding of {named}"):
        evaluate(task, [str(broken)], str(make_dataset(4)), CONFIG)


def test_an_image_that_does_not_decode(tiny_clip, make_dataset) -> None:
    def damage(index: int, row) -> None:
        row["image"]["bytes"] = b"no image"

    with pytest.raises(InputError, match=r"image 0 cannot be decoded"):
        evaluate("retrieval", [str(tiny_clip)], str(make_dataset(4, change=damage)), CONFIG)


def test_the_limit_takes_the_first_images(tiny_clip, make_dataset) -> None:
    dataset = str(make_dataset(20, rows_per_group=3))
    assert len(DatasetCollection(dataset, config(limit=7)).captions) == 7


def test_models_side_by_side_and_on_disk(tiny_clip, make_dataset, tmp_path) -> None:
    results = evaluate("retrieval", [str(tiny_clip), str(tiny_clip)], str(make_dataset(5)), CONFIG)
    paths = write_results(tmp_path / "out", results)
    assert len(set(paths)) == 3
    values = json.loads(paths[1].read_text())
    assert set(values) >= {"dataset", "model", "pretrained", "task", "metrics", "language"}
    assert (values["num_images"], values["num_captions"]) == (5, 5)
    assert values["task"] == "zeroshot_retrieval"
    assert values["metrics"] == results[0].metrics
    table = paths[0].read_text().splitlines()
    assert table[2].startswith("| model | T2I R@1 | T2I R@5 | I2T R@1 | I2T R@5 |")
    assert len(table) == 6


def test_markdown_of_a_result() -> None:
    result = Result(
        checkpoint="",
        task="robustness",
        model="m",
        dataset="docci test",
        num_images=5000,
        num_captions=25010,
        metrics={"image_retrieval_recall@1": 0.5, "drop": 0.0289, "mean_cosine": 0.24341},
        settings={},
    )
    lines = markdown([result]).splitlines()
    assert lines[0] == "robustness on docci test: 5000 images, 25010 captions"
    assert lines[-1] == "| m | 50.00 | 2.89 | 0.2434 |"


def test_models_and_settings_that_cannot_be(tmp_path: Path, make_dataset) -> None:
    with pytest.raises(WeightsError):
        evaluate("retrieval", [str(tmp_path)], str(make_dataset(3)), CONFIG)
    with pytest.raises(RecipeError, match=r"evaluate.image_fit = 'stretch'"):
        EvaluateConfig(image_fit="stretch")
    with pytest.raises(RecipeError, match=r"evaluate.recall_at"):
        EvaluateConfig(recall_at=(0,))
