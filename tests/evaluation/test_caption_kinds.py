"""Retrieval by captions of another kind, and by all of an image; worked by hand."""

from __future__ import annotations

import pytest
from evaluating import SetByHand, config

from glit.data.schema import CAPTIONS
from glit.errors import InputError, UserError
from glit.evaluation.collection import DatasetCollection
from glit.evaluation.run import evaluate
from glit.evaluation.tasks.retrieval import retrieval

PLACES = {
    "Long 0.": [1.0, 0.0, 0.0],
    "Long 1.": [0.8, 0.5, 0.33],
    "Long 2.": [0.0, 0.6, 0.8],
    "Short 0.": [1.0, 0.0, 0.0],
    "Short 1.": [0.6, 0.75, 0.2],
    "Short 2.": [0.0, 0.5, 0.85],
}
WHOLES = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
"""So a text's cosine with image i is its number i."""


def two_kinds(index, row):
    caption = f"Long {index}."
    span = {"text": caption, "char_start": 0, "char_end": len(caption)}
    row["caption"], row["pairs"] = caption, []
    row["sentences"] = [{**row["sentences"][0], **span}]
    row["captions"] = [
        {"kind": "long", "text": caption, "source": "provided"},
        {"kind": "short", "text": f"Short {index}.", "source": "provided"},
    ]


@pytest.mark.parametrize(
    ("kind", "text_to_image", "image_to_text"),
    [
        ("long", 2 / 3, 2 / 3),  # Long 1 is nearer to image 0; image 1 is nearer to Long 2 (0.6)
        ("short", 1.0, 1.0),
        ("all", 5 / 6, 1.0),  # Long 1 misses still; image 1 finds Short 1 (0.75)
    ],
)
def test_recall_by_kind(make_dataset, kind, text_to_image, image_to_text):
    settings = config(caption=kind, recall_at=(1,))
    collection = DatasetCollection(
        str(make_dataset(3, change=two_kinds, further=(CAPTIONS,))), settings
    )
    assert len(collection.captions[0]) == (2 if kind == "all" else 1)
    found = retrieval(SetByHand(PLACES, WHOLES), collection, settings).metrics
    assert found["image_retrieval_recall@1"] == pytest.approx(text_to_image)
    assert found["text_retrieval_recall@1"] == pytest.approx(image_to_text)


def test_each_text_has_its_own_sentences(make_dataset):
    path = str(make_dataset(2, change=two_kinds, further=(CAPTIONS,)))
    collection = DatasetCollection(path, config(caption="all"))
    assert collection.sentences(1) == [[(0, 7)], [(0, 8)]]
    assert collection.name == "dataset (all captions)"


def test_what_is_not_there_is_said(make_dataset, tiny_clip):
    def one_lacks(index, row):
        two_kinds(index, row)
        if index == 1:
            row["captions"] = row["captions"][:1]

    lacking = str(make_dataset(3, change=one_lacks, further=(CAPTIONS,)))
    with pytest.raises(InputError, match="has no captions of the kind 'short'"):
        DatasetCollection(lacking, config(caption="short"))
    with pytest.raises(InputError, match="has one caption an image"):
        DatasetCollection(str(make_dataset(3, name="one")), config(caption="short"))
    with pytest.raises(UserError, match="measure other captions, not localize of glit"):
        evaluate("localize", [str(tiny_clip)], lacking, config(caption="short"))
    with pytest.raises(UserError, match="not retrieval of coco"):
        evaluate("retrieval", [str(tiny_clip)], lacking, config(caption="short"), kind="coco")
