"""What a sample brings along for an objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from glit.dataset.local_pairs import LocalPair
from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError
from glit.training.batch import collate
from glit.training.config import TrainConfig
from glit.training.objective import InputSpec
from glit.training.objectives.goal import Clip
from glit.training.planning import ChosenPairs, best_pairs, plan_sample
from glit.training.setup import prepare


def test_distinct_regions_keep_the_best_sentence() -> None:
    def pair(name: str, x: float) -> LocalPair:
        return LocalPair(
            sentence=name, token_span=(1, 2), box_xyxy=(x, 0, x + 1, 1), similarity=0.1
        )

    pairs = (pair("a", 0), pair("b", 0), pair("c", 5))
    assert [p.sentence for p in best_pairs(pairs, most=8, distinct_regions=True)] == ["a", "c"]
    assert [p.sentence for p in best_pairs(pairs, most=2, distinct_regions=False)] == ["a", "b"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WithSentences(Clip):
    """Wants the first sentence, and one drawn from the others."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_texts=3)

    def texts(self, caption, sentences, draw):
        drawn = sentences[1 + int(draw.integers(len(sentences) - 1))]
        return [caption[slice(*span)] for span in (sentences[0], drawn)]


def test_an_objective_picks_further_texts(make_dataset, tokenizer) -> None:
    group = Dataset(make_dataset(3)).row_group(0)
    objective = WithSentences()

    def planned(seed: int):
        return [
            plan_sample(
                group, row, objective, side=32, fit="resize",
                draw=np.random.default_rng([seed, row]),
            )
            for row in range(3)
        ]  # fmt: skip

    samples = planned(0)
    for row, sample in enumerate(samples):
        whole = [s.text for s in group.sentences_of(row)]
        assert sample.texts[0] == whole[0] and sample.texts[1] in whole[1:]
    assert [s.texts for s in planned(0)] == [s.texts for s in samples]
    assert [s.texts for s in planned(1)] != [s.texts for s in samples]

    batch, _ = collate(
        samples,
        lambda texts: tokenizer.encode_closed(texts, context=248),
        objective.needs,
        side=32,
        context=248,
        pad_id=tokenizer.end_id,
    )
    assert batch.slot_E.tolist() == [0, 1, 3, 4, 6, 7]
    assert batch.valid_further_NS.tolist() == [[True, True, False]] * 3
    assert len(batch.texts.length_T) == 3 + 6
    flat = batch.texts.input_ids_RW.flatten()
    offset, length = (int(each[4]) for each in (batch.texts.offset_T, batch.texts.length_T))
    ids = flat[offset : offset + length].tolist()
    assert [ids] == tokenizer.encode_closed([samples[0].texts[1]], context=248)


def likely(*probabilities: float | None) -> tuple[LocalPair, ...]:
    return tuple(
        LocalPair(
            sentence=str(number), token_span=(1, 2), box_xyxy=(0, 0, 1, 1), similarity=0.1,
            probability=probability,
        )
        for number, probability in enumerate(probabilities)
    )  # fmt: skip


def test_pairs_are_drawn_by_their_probability() -> None:
    """Over many epochs the first of three is drawn as often as its share: 6, 3 and 1 of 10."""
    pairs, chosen = likely(0.6, 0.3, 0.1), ChosenPairs(how="sample")
    firsts = [
        int(chosen.of(pairs, np.random.default_rng(epoch))[0].sentence) for epoch in range(4000)
    ]
    shares = np.bincount(firsts, minlength=3) / len(firsts)
    assert np.abs(shares - [0.6, 0.3, 0.1]).max() < 0.03
    assert len(chosen.of(pairs, np.random.default_rng(0))) == 3


def test_improbable_pairs_are_left_out_and_impossible_ones_come_last() -> None:
    draw = np.random.default_rng(0)
    strict = ChosenPairs(min_probability=0.5)
    assert [p.sentence for p in strict.of(likely(0.4, 0.9, None, 0.5), draw)] == ["1", "3"]
    last = ChosenPairs(how="sample").of(likely(0.0, 0.2), draw)
    assert [p.sentence for p in last] == ["1", "0"]
    assert ChosenPairs(how="sample").of((), draw) == ()


def test_weighted_pairs_count_as_much_as_they_are_probable() -> None:
    found = ChosenPairs(how="weighted").of(likely(0.4, 0.9, 0.0), np.random.default_rng(0))
    assert [(p.sentence, p.weight) for p in found] == [("0", 0.4), ("1", 0.9), ("2", 0.0)]
    assert {p.weight for p in ChosenPairs().of(likely(0.4), np.random.default_rng(0))} == {1.0}


@pytest.mark.parametrize(
    "changes", [{"pairs": "sample"}, {"pairs": "weighted"}, {"min_probability": 0.3}]
)
def test_a_dataset_without_probabilities_is_refused(tiny_clip, make_dataset, changes) -> None:
    config = TrainConfig(model=str(tiny_clip), batch_size=2, num_workers=0, **changes)
    with pytest.raises(InputError, match="its pairs have no probability"):
        prepare(config, str(make_dataset(4)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"pairs": "all"}, "pairs"), ({"min_probability": 1.0}, "min_probability: found 1.0")],
)
def test_settings_that_cannot_be(changes, message) -> None:
    with pytest.raises(RecipeError, match=message):
        TrainConfig(**changes)
