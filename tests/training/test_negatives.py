"""False sentences on their way from the dataset to an objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.stages.negatives import NegativesStage
from glit.training.augment import Augmentation
from glit.training.batch import collate
from glit.training.config import TrainConfig
from glit.training.objective import InputSpec
from glit.training.objectives.goal import Clip
from glit.training.planning import plan_sample
from glit.training.setup import prepare


def with_negatives(_: int, row: dict) -> None:
    """Sentence n of every caption has n false ones."""
    row["negatives"] = [
        {"sentence": n, "kind": "object", "text": f"No {n} dog {j} {sentence['text']}"}
        for n, sentence in enumerate(row["sentences"])
        for j in range(n)
    ]


@pytest.fixture
def dataset(make_dataset) -> str:
    return str(make_dataset(4, change=with_negatives, further=NegativesStage.dataset_columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanting(Clip):
    """Wants three pairs and up to two false sentences of each."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_local=3, num_negatives=2, num_texts=1)

    def texts(self, caption, sentences, draw):
        return ["one further"]


def planned(dataset: str, seed: int):
    group = Dataset(dataset).row_group(0)
    return group, [
        plan_sample(
            group, row, Wanting(), side=32, fit="resize", draw=np.random.default_rng([seed, row])
        )
        for row in range(4)
    ]


def test_false_sentences_are_drawn_of_those_of_the_pair_s_sentence(dataset) -> None:
    group, samples = planned(dataset, 0)
    for row, sample in enumerate(samples):
        texts = [sentence.text for sentence in group.sentences_of(row)]
        for pair in sample.pairs:
            number = texts.index(pair.sentence)
            assert len(set(pair.negatives)) == len(pair.negatives) == min(number, 2)
            assert all(false.text.startswith(f"No {number} dog") for false in pair.negatives)
    drawn = [[pair.negatives for pair in sample.pairs] for sample in samples]
    assert [[p.negatives for p in s.pairs] for s in planned(dataset, 0)[1]] == drawn
    assert any(
        [[p.negatives for p in s.pairs] for s in planned(dataset, k)[1]] != drawn for k in (1, 2, 3)
    )


def test_what_false_sentences_say_of_sides_is_not_mirrored_into_truth(dataset) -> None:
    """An image is mirrored if no text tells of a side; a false "on the left" would become true."""
    seen: list[str] = []

    def augment(width: int, height: int, texts: str) -> Augmentation:
        seen.append(texts)
        return Augmentation(box_xyxy=(0, 0, width, height), mirrored=False)

    group = Dataset(dataset).row_group(0)
    plan_sample(
        group, 0, Wanting(), side=32, fit="resize", draw=np.random.default_rng(0), augment=augment
    )
    false = [each["text"] for each in Dataset(dataset)[0].extra["negatives"]]
    assert false and all(text in seen[0] for text in false)
    assert group.value("caption", 0) in seen[0]


def test_kinds_take_turns_so_that_a_rare_one_is_always_among_them(make_dataset) -> None:
    def of_each_sentence(_: int, row: dict) -> None:
        kinds = [*["attribute"] * 7, "relation"]
        row["negatives"] = [
            {"sentence": n, "kind": kind, "text": f"{n} {number}"}
            for n in range(len(row["sentences"]))
            for number, kind in enumerate(kinds)
        ]

    columns = NegativesStage.dataset_columns
    path = str(make_dataset(4, change=of_each_sentence, further=columns))
    drawn = [
        pair.negatives
        for seed in range(12)
        for sample in planned(path, seed)[1]
        for pair in sample.pairs
    ]
    assert {tuple(sorted(false.kind for false in each)) for each in drawn} == {
        ("attribute", "relation")
    }
    assert {false.text.split()[1] for each in drawn for false in each} == set("01234567")
    assert {each[0].kind for each in drawn} == {"attribute", "relation"}


def test_a_batch_holds_them_in_their_slots(dataset, tokenizer) -> None:
    _, samples = planned(dataset, 0)

    def encode(texts):
        return tokenizer.encode_closed(texts, context=248)

    batch, _ = collate(samples, encode, Wanting().needs, side=32, context=248, pad_id=0)
    number = [[len(pair.negatives) for pair in sample.pairs] for sample in samples]
    assert batch.valid_negative_NKJ.sum(dim=-1).tolist() == number
    texts = [n.text for sample in samples for pair in sample.pairs for n in pair.negatives]
    assert len(batch.texts.length_T) == 4 + 12 + len(texts) + 4 and len(texts) == len(batch.slot_F)
    flat = batch.texts.input_ids_RW.flatten()
    for at, text in enumerate(texts, start=4 + 12):
        offset, length = int(batch.texts.offset_T[at]), int(batch.texts.length_T[at])
        assert [flat[offset : offset + length].tolist()] == encode([text])


def test_features_are_those_of_the_texts(dataset, tiny_clip, tokenizer) -> None:
    made = prepare(
        TrainConfig(
            model=str(tiny_clip), batch_size=4, num_workers=0, objective="fg-clip", warmup_steps=0
        ),
        dataset,
    )
    [[batch]] = list(made.loader.epoch(0))
    with torch.no_grad():
        features, _ = made.model.eval()(batch)
        alone = made.model.encoder.encode_texts(batch.texts)[1]
    first = 4 + len(batch.slot_M)
    found = features.negative_text_NKJD[features.valid_negative_NKJ]
    torch.testing.assert_close(found, alone[first : first + len(batch.slot_F)])
    assert (features.negative_text_NKJD[~features.valid_negative_NKJ] == 0).all()
    assert len(found) == len(batch.slot_F) > 0
    loss, _ = made.objective(features, torch.tensor(3.0))
    assert torch.isfinite(loss)


def test_a_dataset_without_the_column_is_refused(make_dataset, tiny_clip) -> None:
    config = TrainConfig(model=str(tiny_clip), batch_size=2, num_workers=0, objective="fg-clip")
    with pytest.raises(InputError, match="no false sentences, .* --set negatives.enabled=true"):
        prepare(config, str(make_dataset(4)))
