"""Zero-shot classification: ranks and shares by hand, folders, a real model's figures."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluating import config
from PIL import Image

from glit.errors import InputError, RecipeError
from glit.evaluation.class_folder import ClassFolder
from glit.evaluation.encode import load_embedder
from glit.evaluation.tasks.classify import (
    accuracies,
    class_vectors,
    classify,
    rank_of_own,
)
from glit.evaluation.templates import TEMPLATES, templates


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three classes of one, two and three images; one of the last is no image."""
    draw = np.random.default_rng(0)
    for number, kind in enumerate(("green_house", "red", "house"), start=1):
        (tmp_path / "classes" / kind).mkdir(parents=True)
        for index in range(number):
            pixels = draw.integers(0, 255, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "classes" / kind / f"{index}.png")
    (tmp_path / "classes" / "house" / "broken.jpg").write_bytes(b"\xff\xd8 no image")
    return tmp_path / "classes"


def test_ranks_and_shares_by_hand() -> None:
    scores = torch.tensor([[0.9, 0.1, 0.9], [0.2, 0.2, 0.1], [0.1, 0.3, 0.5], [0.3, 0.2, 0.1]])
    own = torch.tensor([2, 0, 1, 0])
    rank = rank_of_own(scores, own)
    assert rank.tolist() == [1, 0, 1, 0]  # of equal scores the first class comes first
    found = accuracies(rank, own, num_classes=4)  # of class 3 there is no image
    assert found == pytest.approx({"acc1": 0.5, "mean_per_class_recall": 1 / 3})
    five = accuracies(torch.tensor([0, 4, 5]), torch.tensor([0, 1, 2]), num_classes=6)
    assert five["acc5"] == pytest.approx(2 / 3)


def test_the_templates_are_those_of_clips_authors() -> None:
    eighty = TEMPLATES["openai-80"]
    published = "a8a4822f2921936e2ef07cf2e7a5df69be9532aab2f3f4880156bb03563e2467"
    assert hashlib.sha256("\n".join(sorted(eighty)).encode()).hexdigest() == published
    assert len(eighty) == 80 and set(TEMPLATES["openai-7"]) < set(eighty)
    assert templates("a {} of mine") == ("a {} of mine",)
    for wrong in ("openai", "{} and {}"):
        with pytest.raises(RecipeError, match="wanted openai-80, openai-7, or a text"):
            templates(wrong)


def test_the_same_as_transformers_answers(tiny_clip, folder) -> None:
    from transformers import CLIPModel, CLIPProcessor

    settings = config(context=77, templates="openai-7", chunk_size=2)
    embedder, collection = load_embedder(str(tiny_clip), settings), ClassFolder(folder)
    found = classify(embedder, collection, settings)
    metrics = found.metrics
    assert found.broken == ("house/broken.jpg",)
    assert (metrics["images"], metrics["classes"], metrics["broken"]) == (6, 3, 1)

    model, processor = (
        CLIPModel.from_pretrained(tiny_clip),
        CLIPProcessor.from_pretrained(tiny_clip),
    )
    rows = []
    for name in ("green house", "house", "red"):
        texts = [frame.replace("{}", name) for frame in TEMPLATES["openai-7"]]
        tokens = processor(text=texts, return_tensors="pt", padding=True)
        vectors = model.get_text_features(**tokens).pooler_output
        mean = (vectors / vectors.norm(dim=-1, keepdim=True)).mean(dim=0)
        rows.append(mean / mean.norm())
    torch.testing.assert_close(
        class_vectors(embedder, collection.classes, settings),
        torch.stack(rows).detach(),
        rtol=0,
        atol=1e-5,
    )
    right = [[], [], []]
    for path, own in zip(collection.names, collection.class_of, strict=True):
        if path not in found.broken:
            pixels = processor(images=Image.open(folder / path), return_tensors="pt")
            vector = model.get_image_features(**pixels).pooler_output[0]
            right[own].append(int((torch.stack(rows) @ vector).argmax()) == own)
    flat = [value for some in right for value in some]
    assert metrics["acc1"] == pytest.approx(sum(flat) / len(flat))
    assert metrics["mean_per_class_recall"] == pytest.approx(
        sum(sum(some) / len(some) for some in right) / 3
    )


def test_a_limit_takes_of_every_class(folder) -> None:
    found = ClassFolder(folder, limit=4)
    assert found.class_of == [0, 1, 2, 1]
    assert found.classes == [("green house",), ("house",), ("red",)]


def test_names_of_classes(folder, tmp_path) -> None:
    names = {"green_house": ["greenhouse", "glasshouse"], "house": "villa", "red": "red", "x": "y"}
    (folder / "classes.json").write_text(json.dumps(names))
    assert ClassFolder(folder).classes == [("greenhouse", "glasshouse"), ("villa",), ("red",)]
    other = tmp_path / "other.json"
    for values, message in (
        ({**names, "red": "villa"}, "house and red are both called 'villa'"),
        ({"house": "villa"}, r"names no class 'green_house' \(2 of 3 folders have no name\)"),
        ({"house": 3}, "wanted names of classes as"),
    ):
        other.write_text(json.dumps(values))
        with pytest.raises(InputError, match=message):
            ClassFolder(folder, names=str(other))
    (folder / "classes.json").unlink()
    (folder / "red").rename(folder / "n01440764")
    with pytest.raises(InputError, match="n01440764 is no word a model knows"):
        ClassFolder(folder)


def test_folders_that_are_none_of_classes(folder, tmp_path, run_glit, tiny_clip) -> None:
    for wrong in (tmp_path / "nowhere", folder / "red"):
        with pytest.raises(InputError, match="found 0 folders; wanted one for every class"):
            ClassFolder(wrong)
    done = run_glit("eval", "classify", tiny_clip, folder, "--format", "coco")
    assert done.code == 2 and "classify takes a folder of classes" in done.errors
    shown = run_glit("eval", "classify", tiny_clip, folder, "--json", "-o", tmp_path / "out")
    (result,) = json.loads(shown.output)
    assert result["task"] == "zeroshot_classification"
    assert result["broken"] == ["house/broken.jpg"] and result["metrics"]["images"] == 6
    said = run_glit("eval", "classify", tiny_clip, folder).output
    assert "left out, 1 of 7 images cannot be read: house/broken.jpg" in said
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no image of this class"):
        ClassFolder(folder)
    for kind in ("red", "house"):
        for path in (folder / kind).iterdir():
            path.write_bytes(b"")
    (folder / "empty").rmdir()
    (folder / "green_house" / "0.png").write_bytes(b"")
    done = run_glit("eval", "classify", tiny_clip, folder)
    assert done.code == 2 and "none of 7 images can be read" in done.errors
