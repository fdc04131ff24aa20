"""What a sample brings along for an objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glit.dataset.local_pairs import LocalPair
from glit.dataset.reader import Dataset
from glit.train.batch import collate
from glit.train.objective import Needs
from glit.train.objectives.clip import Clip
from glit.train.sample import best_pairs, decode_sample


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
    def needs(self) -> Needs:
        return Needs(num_texts=3)

    def texts(self, caption, sentences, draw):
        drawn = sentences[1 + int(draw.integers(len(sentences) - 1))]
        return [caption[slice(*span)] for span in (sentences[0], drawn)]


def test_an_objective_picks_further_texts(make_dataset, tokenizer) -> None:
    group = Dataset(make_dataset(3)).row_group(0)
    objective = WithSentences()

    def decoded(seed: int):
        return [
            decode_sample(
                group, row, objective, side=32, fit="resize",
                draw=np.random.default_rng([seed, row]),
            )
            for row in range(3)
        ]  # fmt: skip

    samples = decoded(0)
    for row, sample in enumerate(samples):
        whole = [s.text for s in group.sentences_of(row)]
        assert sample.texts[0] == whole[0] and sample.texts[1] in whole[1:]
    assert [s.texts for s in decoded(0)] == [s.texts for s in samples]
    assert [s.texts for s in decoded(1)] != [s.texts for s in samples]

    batch = collate(
        samples,
        lambda texts: tokenizer.encode_closed(texts, context=248),
        objective.needs,
        side=32,
        pad_id=tokenizer.end_id,
    )
    assert batch.slot_E.tolist() == [0, 1, 3, 4, 6, 7]
    assert batch.valid_further_BS.tolist() == [[True, True, False]] * 3
    assert len(batch.texts.length_T) == 3 + 6
    flat = batch.texts.input_ids_RW.flatten()
    offset, length = (int(each[4]) for each in (batch.texts.offset_T, batch.texts.length_T))
    ids = flat[offset : offset + length].tolist()
    assert [ids] == tokenizer.encode_closed([samples[0].texts[1]], context=248)
