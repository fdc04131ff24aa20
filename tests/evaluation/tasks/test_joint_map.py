"""Whole images and regions in one gallery, by hand and against CLIPModel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from evaluating import CONFIG, SetByHand, config, three_images
from PIL import Image
from transformers import CLIPModel

from glit.dataset.local_pairs import LocalPair
from glit.errors import InputError
from glit.evaluation.collection import (
    DatasetCollection,
    JointCollection,
    open_collection,
)
from glit.evaluation.encode import load_embedder
from glit.evaluation.run import evaluate
from glit.evaluation.tasks.joint_map import joint_map
from glit.images import decode
from glit.inputs.published.files import AnnotatedImage, Segment
from glit.models.clip.preprocess import crop, fit_image
from glit.models.clip.text_window import stretch_model


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
    collection = open_collection(str(source), CONFIG, **options)
    assert len(collection.captions) == 3 and collection.pairs(0) == ()
    assert [decode(collection.image(i)).shape for i in range(3)] == [(30, 40, 3)] * 3
    by_hand = JointCollection(
        "joint",
        [
            AnnotatedImage(
                path=tmp_path / "photos" / f"sa_{i}.jpg",
                captions=(f"A red house. It has {i} doors.",),
                segments=(
                    Segment(
                        path=tmp_path / f"sa_{i}.jpg_results" / f"sa_{i}_max_{i}.png",
                        sentence=f"It has {i} doors",
                    ),
                ),
            )
            for i in range(3)
        ],
        lambda text: [(0, len(text))],
    )
    assert found.metrics == joint_map(load_embedder(str(tiny_clip), CONFIG), by_hand, CONFIG)
    source.write_text(json.dumps(rows[:3]))
    with pytest.raises(InputError, match="goal: no image has a local pair, which joint-map"):
        evaluate("joint-map", [str(tiny_clip)], str(source), CONFIG, kind="goal", images=tmp_path)
