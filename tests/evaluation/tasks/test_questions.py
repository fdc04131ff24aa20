"""Right texts among wrong ones, boxes by class, boxes by expression: by hand, and with a model."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from annotations import (
    aro,
    as_json,
    class_boxes_of,
    fg_ovd,
    mmvp,
    noise,
    refcoco,
    sugarcrepe,
    valse,
    winoground,
)
from evaluating import CONFIG, config

from glit.errors import InputError, RecipeError
from glit.evaluation.boxes import embed_pictures
from glit.evaluation.collection import Text
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import load_embedder
from glit.evaluation.questions import Question, QuestionImages, Questions, of_first_images
from glit.evaluation.readers.boxes import class_boxes, expressions
from glit.evaluation.readers.questions import READERS, read_questions
from glit.evaluation.run import evaluate
from glit.evaluation.scorers.sentence_patches import SentencePatches
from glit.evaluation.tasks.choose import choose, scores
from glit.evaluation.tasks.refer import refer


class Known:
    """An embedder with a vector for every text and every picture, by image number and box."""

    def __init__(self, texts, pictures) -> None:
        self._texts, self._pictures = texts, pictures

    def texts(self, texts) -> torch.Tensor:
        return torch.tensor([self._texts[text] for text in texts])

    def images(self, collection, pictures) -> torch.Tensor:
        return torch.tensor([self._pictures[picture] for picture in pictures])


def question(parts, texts, *right: int, kind: str = "") -> Question:
    return Question(parts=tuple(parts), texts=tuple(texts), right=frozenset(right), kind=kind)


def test_shares_of_right_texts_by_hand(tmp_path) -> None:
    """Two questions of three texts (right, and a draw), one of two; the box is a picture of its
    own. With the other picture, y beats z and y2, and only that is right."""
    path, box = noise(tmp_path / "a.png"), (0.0, 0.0, 9.0, 9.0)
    asked = Questions(
        "set",
        [
            question([(path, None)], ["x", "y", "z"], 0, kind="easy"),
            question([(path, None)], ["y", "z", "y2"], 0, kind="easy"),
            question([(path, box)], ["z", "x"], 0, kind="hard"),
        ],
    )
    texts = {"x": [0.9, 0.0], "y": [0.5, 2.0], "y2": [0.5, 1.0], "z": [0.1, 1.0]}
    embedder = Known(texts, {(0, None): [1.0, 0.0], (0, box): [0.0, 1.0]})
    found = choose(embedder, asked, CONFIG)
    assert found == pytest.approx(
        {
            "accuracy": 2 / 3,
            "easy_accuracy": 1 / 2,
            "hard_accuracy": 1.0,
            "blind_accuracy": 1 / 3,
            "easy_blind_accuracy": 1 / 2,
            "hard_blind_accuracy": 0.0,
            "chance_accuracy": (1 / 3 + 1 / 3 + 1 / 2) / 3,
            "chance_easy_accuracy": 1 / 3,
            "chance_hard_accuracy": 1 / 2,
            "questions": 3,
        }
    )


@torch.no_grad()
def test_texts_are_compared_by_the_scorer_that_is_set(tiny_clip, tmp_path) -> None:
    paths = [noise(tmp_path / f"{i}.png", i) for i in range(3)]
    words = ["an old chair", "a red cup", "two dogs", "the sea", "It is late. A dog sleeps."]
    asked = Questions("set", [question([(p, None)], words, 0, kind=p.name) for p in paths])
    settings = config(scorer="sentence-patches")
    embedder = load_embedder(str(tiny_clip), settings)
    scorer = SentencePatches()
    spans = [(), (), (), (), ((0, 11), (12, 25))]
    told = [Text(text=word, sentences=some) for word, some in zip(words, spans, strict=True)]
    texts = scorer.texts(embedder, told)
    assert texts.valid_NV.sum(dim=1).tolist() == [2, 2, 2, 2, 3]
    right = scorer.score(texts, scorer.images(embedder, asked)).argmax(dim=0) == 0
    found = choose(embedder, asked, settings)
    assert [found[f"{path.name}_accuracy"] for path in paths] == right.float().tolist()
    other = right.float().roll(-1).tolist()  # half of three pictures on
    assert [found[f"{path.name}_blind_accuracy"] for path in paths] == other
    boxes = Questions("boxes", [question([(paths[0], (0.0, 0.0, 9.0, 9.0))], words, 0)])
    with pytest.raises(RecipeError, match="compares whole images, and boxes asks about boxes"):
        choose(embedder, boxes, settings)


def test_scores_that_rounding_alone_tells_apart_are_a_draw() -> None:
    near = torch.tensor([[0.3 + 1e-7, 0.3]])
    assert scores(near)["accuracy"][0] == scores(near.flip(1))["accuracy"][0] == 0.0
    square = torch.tensor([[0.3 + 1e-7, 0.3], [0.3, 0.3 + 1e-7]])
    assert {name: share for name, (share, _) in scores(square).items()} == {
        "text_score": 0.0, "image_score": 0.0, "group_score": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("features", ["crop", "patches"])
@pytest.mark.parametrize(
    "box",
    [
        (50.0, 0.0, 60.0, 9.0),
        (0.0, 30.0, 9.0, 40.0),
        (-9.0, 2.0, 0.0, 8.0),
        (math.nan, 2.0, 9.0, 8.0),
    ],
)
def test_a_box_outside_its_image_is_refused(tiny_clip, tmp_path, features, box) -> None:
    """As with images that were made smaller than those that were annotated."""
    asked = Questions("set", [question([(noise(tmp_path / "a.png"), box)], ["x", "y"], 0)])
    settings = config(box_features=features)
    with pytest.raises(InputError, match=r"a box of a\.png is .* outside its 40 x 30 pixels"):
        choose(load_embedder(str(tiny_clip), settings), asked, settings)


def test_sets_of_two_images_and_two_texts_by_hand(tmp_path) -> None:
    """Cosines [[.9 .1] [.2 .8]] earn all; [[.5 .4] [.6 .7]] the texts' score alone;
    [[.5 .6] [.4 .7]] the images' alone; equal cosines nothing."""
    parts = [(noise(tmp_path / f"{i}.png", i), None) for i in range(2)]
    sets = {
        "all": [[0.9, 0.1], [0.2, 0.8]],
        "texts": [[0.5, 0.4], [0.6, 0.7]],
        "images": [[0.5, 0.6], [0.4, 0.7]],
        "equal": [[0.5, 0.5], [0.5, 0.5]],
    }
    asked, texts = [], {}
    for name, cosines in sets.items():
        pair = [f"{name} {i}" for i in (0, 1)]
        asked.append(question(parts, pair, 0, 1, kind=name))
        for number, text in enumerate(pair):
            texts[text] = [cosines[0][number], cosines[1][number]]
    embedder = Known(texts, {(0, None): [1.0, 0.0], (1, None): [0.0, 1.0]})
    found = choose(embedder, Questions("set", asked), CONFIG)
    of = {
        kind: tuple(found[f"{kind}_{which}_score"] for which in ("text", "image", "group"))
        for kind in sets
    }
    assert of == {
        "all": (1.0, 1.0, 1.0),
        "texts": (1.0, 0.0, 0.0),
        "images": (0.0, 1.0, 0.0),
        "equal": (0.0, 0.0, 0.0),
    }
    assert (found["text_score"], found["image_score"], found["group_score"]) == (0.5, 0.5, 0.25)
    assert found["chance_group_score"] == pytest.approx(1 / 6)


def test_boxes_of_expressions_by_hand(tmp_path) -> None:
    path = noise(tmp_path / "a.png")
    boxes = [(0.0, 0.0, 10.0, 10.0), (0.0, 0.0, 10.0, 9.0), (20.0, 5.0, 30.0, 20.0)]
    parts = [(path, box) for box in boxes]
    asked = Questions("set", [question(parts, ["a"], 0, 1), question(parts, ["b"], 2)])
    pictures = {(0, box): vector for box, vector in zip(boxes, torch.eye(3).tolist(), strict=True)}
    texts = {"a": [0.2, 0.9, 0.1], "b": [0.3, 0.2, 0.1]}
    found = refer(Known(texts, pictures), asked, CONFIG)
    assert found == pytest.approx({"accuracy": 0.5, "chance": 0.5, "expressions": 2})


@torch.no_grad()
def test_a_box_by_patches_is_the_mean_of_those_it_touches(tiny_clip, tmp_path) -> None:
    """A 40 x 30 image in a model of 32 pixels and 4 x 4 patches: x is scaled by 0.8."""
    images = QuestionImages("set", [noise(tmp_path / f"{i}.png", i) for i in range(2)])
    settings = config(box_features="patches", image_fit="centre-crop")
    embedder = load_embedder(str(tiny_clip), settings)
    pictures = [(0, None), (0, (0.0, 0.0, 15.0, 7.0)), (1, (0.0, 0.0, 40.0, 30.0)),
                (1, (0.0, 0.0, 40.0, 30.0))]  # fmt: skip
    found = embed_pictures(embedder, images, pictures, settings)
    whole = embedder.images(images, embedder.wholes(images))
    squeezed = embedder.squeezed()
    tokens, _ = next(iter(squeezed.encoded_images(images, embedder.wholes(images))))
    under = tokens[0, [0, 1]].mean(dim=0)  # 12 x 7.5 pixels: two patches of the first row
    assert not torch.allclose(
        tokens, next(iter(embedder.encoded_images(images, embedder.wholes(images))))[0]
    )
    expected = embedder.encoder.project_patches(torch.stack([under, tokens[1].mean(dim=0)]))
    assert torch.allclose(found[0], whole[0], atol=1e-6)
    assert torch.allclose(found[1:3], expected, atol=1e-5)
    assert torch.equal(found[3], found[2])


EXPECTED = {
    "sugarcrepe": {
        "swap_att": (("A red cup number 0.", "A blue box."), None),
        "add_obj": (("A red cup number 1.", "A blue box."), None),
    },
    "valse": {"existence": (("A cup.", "No cup."), None)},
    "aro": {
        "relation": (("the cup is on the box", "the box is on the cup"), (2.0, 3.0, 12.0, 23.0))
    },
    "winoground": {"": (("a cup in a box", "a box in a cup"), None)},
    "mmvp": {
        "state-and-condition": (
            ("a photo of an open box", "a photo of a closed, red box"), None
        )
    },
    "fg-ovd": {
        "material": (("A paper cup.", "A wooden cup.", "A glass cup."), (1.0, 2.0, 11.0, 14.0))
    },
}  # fmt: skip
LAYOUTS = {
    "sugarcrepe": sugarcrepe, "valse": valse, "aro": aro, "winoground": winoground, "mmvp": mmvp,
    "fg-ovd": fg_ovd,
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_benchmarks_as_published(name, tmp_path, tiny_clip) -> None:
    folder = LAYOUTS[name](tmp_path / name)
    found = {
        each.kind: (each.texts, each.parts[0][1])
        for each in read_questions(name, folder, images=None)
    }
    assert found == EXPECTED[name]
    (result,) = evaluate("choose", [str(tiny_clip)], str(folder), CONFIG, kind=name)
    number = len(EXPECTED[name])
    assert result.metrics["questions"] == number
    assert 0 <= result.metrics[next(iter(result.metrics))] <= 1
    cut = next(folder.glob(READERS[name][1]))
    cut.write_bytes(cut.read_bytes()[:30])
    with pytest.raises(InputError, match=f"not a file of {name} as published|no question of"):
        read_questions(name, cut, images=None)


def test_boxes_of_a_picture_of_twice_the_size_are_scaled_and_told(tmp_path) -> None:
    folder = fg_ovd(tmp_path)
    values = json.loads((folder / "material.json").read_text())
    values["images"][0] |= {"width": 80, "height": 60}  # the picture has 40 x 30
    as_json(folder / "material.json", values)
    with pytest.warns(UserWarning, match="boxes of 1 image were scaled, as the picture"):
        found = read_questions("fg-ovd", folder, images=None)
    assert [asked.parts[0][1] for asked in found] == [(0.5, 1.0, 5.5, 7.0)]
    values["images"][0] |= {"width": 90}
    as_json(folder / "material.json", values)
    with pytest.raises(InputError, match="a picture of 90x60 pixels, the image has 40x30"):
        read_questions("fg-ovd", folder, images=None)


@pytest.mark.parametrize("features", ["crop", "patches"])
def test_classes_of_boxes_as_published(tmp_path, tiny_clip, features) -> None:
    file = class_boxes_of(tmp_path / "coco")
    found = class_boxes(file, images=None)
    assert found.classes == [("traffic light",), ("bow",)]
    assert found.class_of == [0, 1]
    assert [(path.name, box) for path, box in found.parts] == [
        ("1.jpg", (4.0, 5.0, 14.0, 17.0)), ("2.jpg", (4.0, 5.0, 14.0, 17.0)),
    ]  # fmt: skip
    settings = config(box_features=features)
    (result,) = evaluate("boxes", [str(tiny_clip)], str(file), settings, kind="coco")
    assert result.metrics["boxes"] == 2
    assert result.metrics["acc1"] in (0.0, 0.5, 1.0)
    for side in (2, 3):  # width, height
        values = json.loads(file.read_text())
        values["annotations"][0]["bbox"][side] = math.nan
        with pytest.raises(InputError, match="empty|finite"):
            class_boxes(as_json(tmp_path / "nan.json", values), images=None)
    lvis = class_boxes(class_boxes_of(tmp_path / "lvis", lvis=True), images=None)
    assert lvis.classes == [("traffic light",), ("bow", "longbow")]
    assert lvis.parts[0][0] == tmp_path / "lvis" / "val2017" / "1.jpg"


def test_expressions_as_published(tmp_path, tiny_clip) -> None:
    folder = refcoco(tmp_path / "refcoco")
    found = expressions(folder, images=None, split=None)
    assert [each.texts for each in found] == [("left cup",), ("the cup at left",)]
    assert found[0].right == {0, 1}  # an IoU of 0.9 with its own box
    both = expressions(folder / "refs(unc).p", images=None, split="val+testA")
    assert [(each.texts[0], each.right) for each in both[2:]] == [("right cup", {2})]
    (result,) = evaluate("refer", [str(tiny_clip)], str(folder), CONFIG, kind="refcoco")
    assert result.metrics["expressions"] == 2
    assert result.metrics["chance"] == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="no part 'testB'; known are testA, val"):
        expressions(folder, images=None, split="testB")


class Program:
    """What a hostile pickle holds."""

    def __reduce__(self):
        return (Path.touch, (Path("escaped"),))


def test_a_pickle_of_programs_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = refcoco(tmp_path / "refcoco")
    (folder / "refs(unc).p").write_bytes(pickle.dumps([Program()]))
    with pytest.raises(InputError, match="which RefCOCO's files do not"):
        expressions(folder, images=None, split=None)
    assert not Path("escaped").exists()
    (folder / "refs(unc).p").write_bytes(b"no pickle")
    with pytest.raises(InputError, match="not RefCOCO's files as published"):
        expressions(folder, images=None, split=None)


def test_what_cannot_be_measured_is_refused(tmp_path, tiny_clip, make_dataset) -> None:
    dataset, model = str(make_dataset(2)), [str(tiny_clip)]
    for task, known in (
        ("choose", "choose knows fg-ovd"), ("boxes", "boxes knows coco, lvis"),
        ("refer", "refer knows refcoco"), ("segment", "segment knows voc, ade20k"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=known):
            evaluate(task, model, dataset, CONFIG)
        with pytest.raises(InputError, match="no such file or folder"):
            evaluate(task, model, str(tmp_path / "gone"), CONFIG)
    folder = sugarcrepe(tmp_path / "sc")
    (folder / "1.jpg").unlink()
    with pytest.raises(InputError, match=r"1 of 2 images are missing \(first: .*1\.jpg\)"):
        evaluate("choose", model, str(folder), CONFIG, kind="sugarcrepe")


def test_equal_boxes_have_equal_embeddings_either_way(tiny_clip, tmp_path) -> None:
    """A box that is the whole image has the whole image's embedding as a crop."""
    images = QuestionImages("set", [noise(tmp_path / "a.png")])
    embedder = load_embedder(str(tiny_clip), CONFIG)
    found = embed_pictures(embedder, images, [(0, None), (0, (0.0, 0.0, 40.0, 30.0))], CONFIG)
    assert torch.allclose(found[0], found[1], atol=1e-6)
    assert torch.allclose(found.norm(dim=1), torch.ones(2))
    assert F.cosine_similarity(found[:1], found[1:]).item() == pytest.approx(1)


def test_a_limit_counts_images_and_not_boxes() -> None:
    asked = [(Path("a"), 1), (Path("b"), 2), (Path("a"), 3), (Path("c"), 4), (Path("b"), 5)]
    for limit, wanted in ((0, [1, 2, 3, 4, 5]), (1, [1, 3]), (2, [1, 2, 3, 5])):
        found = of_first_images(asked, limit, lambda each: each[0])
        assert [number for _, number in found] == wanted


def test_a_limit_reads_all_of_the_first_image_and_nothing_of_the_others(tmp_path) -> None:
    noise(tmp_path / "1.jpg")
    noise(tmp_path / "2.jpg", 1)
    places = [(1, [0, 0, 10, 10]), (2, [20, 5, 10, 15]), (1, [5, 5, 20, 20])]
    instances = {
        "images": [{"id": i, "file_name": f"{i}.jpg"} for i in (1, 2)],
        "categories": [{"id": 3, "name": "cup"}],
        "annotations": [
            {"id": number, "image_id": image, "category_id": 3, "bbox": box}
            for number, (image, box) in enumerate(places)
        ],
    }
    file = as_json(tmp_path / "instances.json", instances)
    first = [(tmp_path / "1.jpg", box) for box in ((0, 0, 10, 10), (5, 5, 25, 25))]
    assert class_boxes(file, images=None, limit=1).parts == first
    assert len(class_boxes(file, images=None, limit=2).parts) == 3

    refs = [
        {"ref_id": number, "ann_id": number, "image_id": image, "split": "val",
         "sentences": [{"sent": f"{number}a"}, {"sent": f"{number}b"}]}
        for number, (image, _) in enumerate(places)
    ]  # fmt: skip
    (tmp_path / "refs(unc).p").write_bytes(pickle.dumps(refs, protocol=0))
    asked = expressions(tmp_path, images=None, split=None, limit=1)
    assert [each.texts[0] for each in asked] == ["0a", "0b", "2a", "2b"]
    assert all([*each.parts] == first for each in asked)

    entries = {
        str(number): {
            "filename": f"{image}.jpg", "caption": f"A {number}.", "negative_caption": "No.",
        }
        for number, (image, _) in enumerate(places)
    }  # fmt: skip
    for name in ("one.json", "two.json"):
        as_json(tmp_path / "sets" / name, entries)
    told = read_questions("sugarcrepe", tmp_path / "sets", images=tmp_path, limit=1)
    assert [(each.kind, each.texts[0]) for each in told] == [
        ("one", "A 0."), ("one", "A 2."), ("two", "A 0."), ("two", "A 2."),
    ]  # fmt: skip


def test_an_image_that_is_being_decoded_is_waited_for(tmp_path, monkeypatch) -> None:
    """Or else eight threads would all decode it."""
    noise(tmp_path / "a.png")
    images = QuestionImages("x", [tmp_path / "a.png"])
    seen = []
    decode = images._decode

    def noted(index: int):
        seen.append(images._locks[index].locked())
        return decode(index)

    monkeypatch.setattr(images, "_decoded", cache(noted))
    assert images.pixels(0) is images.pixels(0)
    assert seen == [True] and not images._locks[0].locked()


def test_another_scorers_options_are_refused() -> None:
    settings = EvaluateConfig(scorer="sentence-patches", options=SentencePatches(window=5))
    assert settings.make_scorer() == SentencePatches(window=5)
    with pytest.raises(RecipeError, match="options are of SentencePatches, not of evaluate.scorer"):
        replace(settings, scorer="cosine").make_scorer()
