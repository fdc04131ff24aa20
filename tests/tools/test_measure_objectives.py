"""Scenes as what objectives are compared on: galleries, twins, questions, and a comparison."""

from __future__ import annotations

import json
import zlib

import pytest
import torch
import torch.nn.functional as F

from glit.bench.objectives.measure import measure, of_regions
from glit.bench.objectives.table import ObjectiveRow, page
from glit.dataset.reader import Dataset
from glit.errors import UserError
from glit.evaluation.config import EvaluateConfig
from glit.runtime.tables import markdown
from glit.scenes.captions import write_caption
from tools.measure.scene_questions import KINDS, questions, twins, without_twins
from tools.measure.scene_world import GALLERY_SEED, SceneCollection, Scenes

SMALL = Scenes(gallery=12, twins=6, local=8, validation=4)


def test_a_gallery_has_no_twins_and_twins_differ_in_one_object() -> None:
    scenes = without_twins(GALLERY_SEED, 9)
    assert len(scenes) == 9 and not any(scene.twin_of is not None for scene in scenes)
    assert [scene.index for scene in scenes] == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    pairs = twins(GALLERY_SEED, 3)
    for first, second in zip(pairs[::2], pairs[1::2], strict=True):
        assert second.twin_of == first.index
        changed = [a != b for a, b in zip(first.objects, second.objects, strict=True)]
        assert sum(changed) == 1


def test_pairs_are_true_boxes_of_object_sentences() -> None:
    collection = SceneCollection("some", without_twins(GALLERY_SEED, 3))
    for index, scene in enumerate(collection.scenes):
        told = [s for s in write_caption(scene).sentences if s.kind == "object"]
        pairs = collection.pairs(index)
        assert [pair.sentence for pair in pairs] == [s.text for s in told]
        for pair, sentence in zip(pairs, told, strict=True):
            item = scene.objects[sentence.object]
            x0, y0, x1, y1 = pair.box_xyxy
            assert x0 <= item.cx * 128 <= x1 + 1 and y0 <= item.cy * 128 <= y1 + 1
        text, (spans,) = collection.captions[index][0], collection.sentences(index)
        assert all(pair.sentence in [text[a:b] for a, b in spans] for pair in pairs)


def test_questions_are_true_and_false_of_their_scene() -> None:
    scenes = without_twins(GALLERY_SEED, 40)
    asked = questions(scenes)
    assert questions(scenes) == asked and len(asked) == 3 * 40
    assert {each.kind for each in asked} == set(KINDS)
    for each in asked:
        assert each.true != each.false
        words = {"attribute": 1, "relation": 1}  # a place is more than a word
        if each.kind in words:
            pairs = zip(each.true.split()[1:], each.false.split()[1:], strict=False)
            assert sum(a != b for a, b in pairs) <= 2
        if each.kind == "position":
            before, place = each.false.rstrip(".").split(" lies ")
            assert each.true.startswith(before) and place not in each.true.split(" lies ")[1:]
        elif each.kind == "relation":
            swapped = {"left of", "right of", "above", "below"}
            first = next(w for w in swapped if f" is {w} the " in each.true)
            second = next(w for w in swapped if f" is {w} the " in each.false)
            assert {first, second} in ({"left of", "right of"}, {"above", "below"})


class Knowing:
    """Embeds a picture as its own caption: right wherever captions differ."""

    def wholes(self, collection):
        return [(index, None) for index in range(len(collection.captions))]

    def texts(self, texts) -> torch.Tensor:
        found = []
        for text in texts:
            generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
            found.append(F.normalize(torch.randn(64, generator=generator), dim=0))
        return torch.stack(found)

    def images(self, collection, pictures) -> torch.Tensor:
        return self.texts([
            collection.told[i].text if box is None else self.sentence(collection.pairs(i), box)
            for i, box in pictures
        ])  # fmt: skip

    def sentence(self, pairs, box) -> str:
        return next(pair.sentence for pair in pairs if pair.box_xyxy == box)

    def encoded_images(self, collection, pictures, *, tokens=True):
        raise UserError("no patches")

    def patches(self, collection, numbers):
        raise UserError("no patches")

    batch_size = 4


def test_who_knows_the_captions_finds_everything_but_what_they_do_not_say() -> None:
    found = measure(Knowing(), EvaluateConfig(), SMALL)
    assert found.found.shape == (2, 12) and found.found.all()
    assert found.figures["t2i"] == found.figures["i2t"] == found.figures["twins"] == 1
    assert found.figures["short"] < 0.5
    assert all(0.2 < found.figures[kind] < 0.9 for kind in KINDS)
    regions = of_regions(Knowing(), EvaluateConfig(), SMALL)
    assert regions["joint"] > 0.5 and "localisation" not in regions


class Answering(Knowing):
    """Embeds a picture as the true sentences of its questions, or of everybody's."""

    def __init__(self, *, blind: bool) -> None:
        self._blind = blind

    def images(self, collection, pictures) -> torch.Tensor:
        asked = questions(collection.scenes)
        told = [[q.true for q in asked if self._blind or q.scene == i] for i, _ in pictures]
        return torch.stack([F.normalize(self.texts(true).sum(0), dim=0) for true in told])


def test_answers_with_another_picture_tell_who_looks() -> None:
    looks, guesses = (
        measure(Answering(blind=blind), EvaluateConfig(), SMALL).figures for blind in (False, True)
    )
    for kind in KINDS:
        assert looks[kind] == 1 and 0.2 < looks[f"{kind}_blind"] < 0.8
        assert guesses[kind] == guesses[f"{kind}_blind"] > 0.75


def test_every_figure_of_scenes_has_a_column() -> None:
    found = measure(Knowing(), EvaluateConfig(), SMALL)
    row = ObjectiveRow(name="clip", lr=1e-4, figures=[found.figures], found=[found.found])
    heads = markdown(page("Scenes", [row], further=SMALL.further_columns)).splitlines()[2]
    named = ("I2T R@1", "twins", "short R@1", *KINDS, "attribute, blind", "position, blind")
    assert f"| {' | '.join(named)} |" in heads


def test_a_training_set_that_is_there_is_not_built_again(tmp_path) -> None:
    (tmp_path / "train-40").mkdir()
    (tmp_path / "train-40" / "manifest.json").write_text("{}")
    assert SMALL.training_set(tmp_path, 40, negatives=False) == tmp_path / "train-40"
    (tmp_path / "train-40").rename(tmp_path / "train-40-negatives")
    found = SMALL.training_set(tmp_path, 40, negatives=True)
    assert found == tmp_path / "train-40-negatives"


@pytest.mark.slow
def test_scenes_are_compared_from_another_start(tiny_clip, tmp_path, run_tool) -> None:
    words = ["objectives", "-o", tmp_path / "out", "--size", 32, "--gallery", 8]
    words += ["--level", "hard", "--lr", "1e-3", "--seeds", 1, "--epochs", 1]
    words += ["--objective", "glit", "--start", tiny_clip]
    code, said, err = run_tool(*words)
    assert code == 0, err
    assert "| glit | 0.001 |" in said and f"{tiny_clip} as it is" in err
    trained_from = json.loads(next((tmp_path / "out").rglob("run.json")).read_text())
    assert trained_from["train"]["model"] == str(tiny_clip)
    spans = Dataset(tmp_path / "out/data/train-32").tokenizer
    assert spans is not None and spans["name"] == str(tiny_clip)
    code, _, said = run_tool(*words[:-2])
    assert code == 2 and "holds a comparison with world" in said
    code, _, said = run_tool(*words, "--start", "")
    assert code == 2 and "--start: is empty" in said
