"""Retrieval on a tiny model, against CLIPModel used directly."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from evaluating import CONFIG, config
from transformers import CLIPModel

from glit.evaluation.collection import (
    DatasetCollection,
)
from glit.evaluation.encode import load_embedder
from glit.evaluation.run import evaluate
from glit.evaluation.tasks.retrieval import retrieval
from glit.images import decode
from glit.models.clip.preprocess import fit_image
from glit.models.clip.text_window import stretch_model


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
        assert embedder.preprocessing.fit == "centre-crop"
        fitted = fit_image(decode(collection.image(i)), side=32, fit="centre-crop")
        pixels = (fitted.float() - mean) / std
        images.append(model.get_image_features(pixel_values=pixels[None]).pooler_output)
        ids = embedder.tokenizer.encode_closed(collection.captions[i], context=248)
        texts.append(model.get_text_features(input_ids=torch.tensor(ids)).pooler_output)
    similarity = F.normalize(torch.cat(texts)) @ F.normalize(torch.cat(images)).T
    rank = (similarity > similarity.diagonal()[:, None]).sum(dim=1)
    found = retrieval(embedder, collection, CONFIG).metrics
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
        text = "A red house."
        sentence = {**row["sentences"][0], "text": text, "char_start": 0, "char_end": len(text)}
        row |= {"caption": text, "sentences": [sentence], "pairs": []}
        row |= {"similarity": [0.0] * len(row["regions"]), "image_similarity": [0.0]}

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
