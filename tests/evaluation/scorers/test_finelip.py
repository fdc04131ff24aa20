"""FineLIP's score of a run, in this process and in another, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from evaluating import CONFIG, config, run_of

from glit.errors import RecipeError, UserError, WeightsError
from glit.evaluation.collection import DatasetCollection, all_captions
from glit.evaluation.encode import load_embedder
from glit.evaluation.learned import learned_module
from glit.evaluation.run import evaluate
from glit.evaluation.scorers.finelip import FineLipScore
from glit.evaluation.scorers.protocol import Vectors
from glit.models.clip.late_interaction import late_interaction
from glit.training.objectives.finelip import FineLipModule


@pytest.fixture
def trained(tiny_clip, make_dataset, tmp_path):
    dataset = make_dataset(6)
    return run_of("finelip", tiny_clip, dataset, tmp_path / "run"), dataset


def test_the_starred_sum_by_hand() -> None:
    a, b, c = torch.eye(3)
    texts = Vectors(vector_NVD=torch.stack([a, b])[None], valid_NV=torch.ones(1, 2).bool())
    images = Vectors(vector_NVD=torch.stack([a, c])[None], valid_NV=torch.ones(1, 2).bool())
    fine = (1 + 0) / 2 + (1 + 0) / 2
    assert FineLipScore().score(texts, images).item() == pytest.approx(fine)
    starred = FineLipScore(global_weight=0.5).score(texts, images)
    assert starred.item() == pytest.approx(0.5 * fine / 2 + 0.5 * 1)
    with pytest.raises(RecipeError, match="global_weight: found nan, want 0 to 1"):
        FineLipScore(global_weight=float("nan"))


@torch.no_grad()
def test_texts_and_images_alone_give_the_same_vectors(trained) -> None:
    """In batches, sorted by length and packed in rows, against one after the other."""
    run, dataset = trained
    embedder = load_embedder(str(run), CONFIG)
    collection = DatasetCollection(str(dataset), CONFIG)
    texts, _ = all_captions(collection)
    found = FineLipScore().texts(embedder, texts)
    images = FineLipScore().images(embedder, collection)
    tokens = learned_module(embedder, FineLipModule, scorer="finelip")[1].tokens
    assert found.vector_NVD.shape[1] == 1 + 49  # a fifth of 246, and the end token
    assert images.vector_NVD.shape[1] == 1 + 3  # a fifth of 16, and the class token
    clip = embedder.encoder.clip
    for i, text in enumerate(texts):
        ids = torch.tensor(embedder.tokenizer.encode_closed([text.text], context=248))
        hidden = clip.text_model(input_ids=ids).last_hidden_state
        words = clip.text_projection(hidden)
        refined = F.normalize(tokens.text(words[:, 1:-1]), dim=-1)
        wanted = torch.cat([F.normalize(words[:, -1:], dim=-1), refined], dim=1)[0]
        torch.testing.assert_close(found.vector_NVD[i], wanted, rtol=1e-4, atol=1e-5)
    scores = FineLipScore().score(found, images)
    wanted = late_interaction(
        images.vector_NVD, images.valid_NV, found.vector_NVD, found.valid_NV
    ).T
    assert torch.equal(scores, wanted)


@pytest.mark.slow
def test_another_process_measures_the_same(trained) -> None:
    run, dataset = trained
    settings = ["--set", "evaluate.scorer=finelip", "--set", "evaluate.global_weight=0.5"]
    command = [sys.executable, "-m", "glit", "eval", "retrieval", str(run), str(dataset)]
    done = subprocess.run(
        [*command, "-o", str(run / "out"), *settings], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    there = json.loads((run / "out" / "retrieval_run.json").read_text())["metrics"]
    here = evaluate(
        "retrieval", [str(run)], str(dataset), config(scorer="finelip",
        options=FineLipScore(global_weight=0.5), recall_at=(1, 5), chunk_size=2),
    )[0].metrics  # fmt: skip
    for name, value in here.items():
        assert there[name] == pytest.approx(value)


def test_a_model_that_has_none_of_it_is_refused(trained, tiny_clip, tmp_path) -> None:
    run, dataset = trained
    settings = config(scorer="finelip")
    with pytest.raises(WeightsError, match="does not say which objective"):
        evaluate("retrieval", [str(tiny_clip)], str(dataset), settings)
    other = run_of("siglip", tiny_clip, dataset, tmp_path / "other")
    with pytest.raises(UserError, match="was trained with 'siglip', which has none of what"):
        evaluate("retrieval", [str(other)], str(dataset), settings)
    with pytest.raises(UserError, match="evaluate.context = 100: .* trained with 248"):
        evaluate("retrieval", [str(run)], str(dataset), config(scorer="finelip", context=100))
    damaged = shutil.copytree((run / "last").resolve(), tmp_path / "damaged")
    (damaged / "objective" / "model.safetensors").write_bytes(b"")
    with pytest.raises(WeightsError, match="not the parameters of this run's objective"):
        evaluate("retrieval", [str(damaged)], str(dataset), settings)
