"""Captions that grow by their sentences."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluating import CONFIG, SetByHand
from PIL import Image

from glit.errors import InputError
from glit.evaluation.collection import AnnotatedCollection, GrowingCollection
from glit.evaluation.run import evaluate
from glit.evaluation.tasks.hierarchy import correlation, hierarchy
from glit.inputs.published.files import AnnotatedImage


def growing(*captions: tuple[str, ...]) -> GrowingCollection:
    images = [AnnotatedImage(path=Path(f"{i}.jpg"), captions=c) for i, c in enumerate(captions)]
    return GrowingCollection("set", images, lambda text: [(0, len(text))])


def test_growth_by_hand() -> None:
    """Cosines .1 .2 .3 correlate with 1 2 3 by 1; .4 .2 by -1; a caption of one sentence does not
    count. The second image is found by its first sentence, the first by its third."""
    texts = {"a": [0.1, 0.5], "ab": [0.2, 0.3], "abc": [0.3, 0.2], "d": [0.1, 0.4],
             "de": [0.3, 0.2], "f": [0.0, 0.0]}  # fmt: skip
    embedder = SetByHand(texts, [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    found = hierarchy(embedder, growing(("a", "ab", "abc"), ("d", "de"), ("f",)), CONFIG)
    assert found == pytest.approx(
        {
            "himo": 0.0,
            "first_1_recall@1": 1 / 3,
            "first_2_recall@1": 0.0,
            "first_3_recall@1": 1 / 3,
            "captions": 2,
        }
    )


def test_of_images_that_begin_alike_each_is_right() -> None:
    """The first sentence finds the second image for both; with the second, each finds its own."""
    texts = {"a": [0.1, 0.5], "ab": [0.9, 0.1], "ac": [0.1, 0.9]}
    embedder = SetByHand(texts, wholes=[[1.0, 0.0], [0.0, 1.0]])
    found = hierarchy(embedder, growing(("a", "ab"), ("a", "ac")), CONFIG)
    assert (found["first_1_recall@1"], found["first_2_recall@1"]) == (1.0, 1.0)


def test_correlation_is_numpys() -> None:
    cosines = np.random.default_rng(0).normal(size=7)
    assert correlation(cosines) == pytest.approx(np.corrcoef(range(1, 8), cosines)[0, 1])
    assert correlation(np.full(3, 0.2)) == correlation(np.array([0.2, 0.2 + 1e-8, 0.2])) == 0.0


def test_sentences_of_a_caption_are_added_one_by_one() -> None:
    image = AnnotatedImage(path=Path("a.jpg"), captions=("One. Two.",))
    collection = AnnotatedCollection("set", [image], lambda _: [(0, 4), (5, 9)])
    seen: list[str] = []

    class Listening(SetByHand):
        def texts(self, texts) -> torch.Tensor:
            seen.extend(texts)
            return super().texts(texts)

    embedder = Listening({"One.": [0.1], "One. Two.": [0.2]}, [[1.0]])
    assert hierarchy(embedder, collection, CONFIG)["himo"] == 1.0
    assert seen == ["One.", "One. Two."]
    single = AnnotatedCollection("set", [image], lambda _: [(0, 9)])
    with pytest.raises(InputError, match="no caption has two sentences"):
        hierarchy(embedder, single, CONFIG)


def test_himo_docci_as_published(tmp_path, tiny_clip) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("test_0.jpg", "test_1.jpg"):
        Image.linear_gradient("L").save(folder / name)
    file = tmp_path / "himo_docci_data.json"
    rows = [
        {"img_path": "test_0.jpg", "caption": ["A cup.", "A cup. It is red."]},
        {"img_path": "test_1.jpg", "caption": ["A box,", "A box, and a cup.", "A box. A cup. Two"]},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    (result,) = evaluate("hierarchy", [str(tiny_clip)], str(file), CONFIG, kind="himo-docci")
    assert result.metrics["captions"] == 2
    assert -1 <= result.metrics["himo"] <= 1


def test_a_dataset_of_glit(tiny_clip, make_dataset) -> None:
    (result,) = evaluate("hierarchy", [str(tiny_clip)], str(make_dataset(4)), CONFIG)
    assert result.metrics["captions"] == 4
    assert "first_2_recall@1" in result.metrics
