"""Training on phrases and their regions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from glit.dataset.local_pairs import local_pairs, phrase_pairs
from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError
from glit.stages.ground import GroundStage
from glit.training.batch import collate, words_key
from glit.training.config import TrainConfig
from glit.training.objective import InputSpec
from glit.training.objectives.goal import Clip
from glit.training.planning import ChosenPairs, plan_sample, read_columns
from glit.training.setup import prepare


def with_phrases(index: int, row: dict) -> None:
    """The first word of the first two sentences: on region 1 with 0.4 and on 0 with 0.9; on 2."""
    row["sentences"][1]["in_window"] = index != 1
    row["phrases"] = [
        {
            "sentence": number, "text": sentence["text"].split()[0],
            "char_start": sentence["char_start"],
            "char_end": sentence["char_start"] + len(sentence["text"].split()[0]),
            "token_start": sentence["token_start"], "token_end": sentence["token_start"] + 1,
        }
        for number, sentence in enumerate(row["sentences"][:2])
    ]  # fmt: skip
    row["groundings"] = [
        {"phrase": 0, "region": 1, "score": 0.4},
        {"phrase": 0, "region": 0, "score": 0.9},
        {"phrase": 1, "region": 2, "score": 0.5},
    ]


@pytest.fixture
def dataset(make_dataset) -> str:
    return str(make_dataset(4, change=with_phrases, further=GroundStage.dataset_columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPairs(Clip):
    """Wants two local pairs."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_local=2)


def test_a_phrase_is_a_pair_with_each_of_its_regions_best_first(dataset) -> None:
    group = Dataset(dataset).row_group(0)
    row = group[0]
    words = [sentence.text.split()[0] for sentence in row.sentences[:2]]
    starts = [sentence.token_start for sentence in row.sentences[:2]]
    found = phrase_pairs(group, 0)
    assert [(p.sentence, p.box_xyxy, p.token_span) for p in found] == [
        (words[0], row.regions[0].box.xyxy, (starts[0], starts[0] + 1)),
        (words[1], row.regions[2].box.xyxy, (starts[1], starts[1] + 1)),
        (words[0], row.regions[1].box.xyxy, (starts[0], starts[0] + 1)),
    ]
    assert [p.similarity for p in found] == pytest.approx([0.9, 0.5, 0.4])
    assert phrase_pairs(group, 1)[1].token_span == (0, 0)  # its sentence leaves the window


def test_both_take_one_of_each_in_turn(dataset) -> None:
    group = Dataset(dataset).row_group(0)
    sentences, phrases = local_pairs(group, 2), phrase_pairs(group, 2)
    assert len(sentences) > len(phrases) == 3
    draws = [np.random.default_rng(seed) for seed in range(9)]
    found = {ChosenPairs(local="both").in_row(group, 2, draw) for draw in draws}
    (s1, s2, s3, *rest), (p1, p2, p3) = sentences, phrases
    assert found == {(s1, p1, s2, p2, s3, p3, *rest), (p1, s1, p2, s2, p3, s3, *rest)}
    draw = np.random.default_rng(0)
    assert ChosenPairs().in_row(group, 2, draw) == sentences
    assert draw.random() == np.random.default_rng(0).random()  # nothing was drawn


def test_a_batch_holds_phrases_and_their_spans(dataset, tokenizer) -> None:
    group = Dataset(dataset).row_group(0, columns=read_columns(InputSpec(num_local=2), "phrase"))
    objective = TwoPairs()
    sample = plan_sample(
        group, 0, objective, side=32, fit="resize", chosen=ChosenPairs(local="phrase"),
        draw=np.random.default_rng(0),
    )  # fmt: skip
    batch, _ = collate(
        [sample],
        lambda texts: tokenizer.encode_closed(texts, context=77),
        objective.needs,
        side=32,
        context=77,
        pad_id=0,
    )
    first, second = phrase_pairs(Dataset(dataset).row_group(0), 0)[:2]
    assert batch.spans_NK2[0].tolist() == [list(first.token_span), list(second.token_span)]
    assert batch.local_key_NK2[0].tolist() == [
        list(map(float, words_key(each.sentence))) for each in (first, second)
    ]


def test_the_key_of_words_is_48_bits_of_their_hash() -> None:
    """Both halves tell words apart; case and punctuation do not."""
    assert words_key("A dog.") == words_key("a dog") == (11115603, 1785754)
    keys = [words_key(f"dog {number}") for number in range(300)]
    assert len({first for first, _ in keys}) == len({second for _, second in keys}) == 300
    assert all(0 <= half < 1 << 24 for key in keys for half in key)


def config(tiny_clip, **values) -> TrainConfig:
    return TrainConfig(
        model=str(tiny_clip), objective="fast-goal", batch_size=4, num_workers=0, **values
    )


def test_steps_on_phrases_differ_from_those_on_sentences(dataset, tiny_clip) -> None:
    losses = {}
    for local in ("sentence", "phrase", "both"):
        torch.manual_seed(0)
        made = prepare(config(tiny_clip, local=local), dataset)
        [parts] = list(made.loader.epoch(0))
        with torch.no_grad():
            features, scale = made.model.eval()(parts[0])
            losses[local] = float(made.objective(features, scale)[0])
    assert losses["sentence"] != losses["phrase"] and all(map(np.isfinite, losses.values()))


def test_a_dataset_without_phrases_is_refused(make_dataset, dataset, tiny_clip) -> None:
    plain = str(make_dataset(4, name="plain"))
    with pytest.raises(InputError, match="plain: has no phrases, which train.local = 'phrase'"):
        prepare(config(tiny_clip, local="phrase"), plain)
    empty = str(
        make_dataset(
            4, name="empty", further=GroundStage.dataset_columns,
            change=lambda _, row: row.update(phrases=[], groundings=[]),
        )
    )  # fmt: skip
    with pytest.raises(InputError, match="no phrase has a region"):
        prepare(config(tiny_clip, local="phrase"), empty)


def test_probabilities_are_asked_of_sentences_alone(tiny_clip) -> None:
    with pytest.raises(RecipeError, match="phrases have no probability"):
        config(tiny_clip, local="both", pairs="sample")
    with pytest.raises(RecipeError, match="found 'words'; known: sentence"):
        config(tiny_clip, local="words")
