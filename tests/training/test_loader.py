"""Batches from the shards: exactly once, in the same order, from any position."""

from __future__ import annotations

import pytest
import torch
from loading import loader

from glit.dataset.reader import Dataset
from glit.errors import DatasetError
from glit.training.objectives.goal import GlobalLocal


def captions(batch, tokenizer) -> list[str]:
    """Captions of the real samples of a batch, from its token ids."""
    flat = batch.texts.input_ids_RW.flatten()
    texts = []
    for index in range(batch.num_global):
        if bool(batch.valid_N[index]):
            start, length = int(batch.texts.offset_T[index]), int(batch.texts.length_T[index])
            texts.append(tokenizer.hf.decode(flat[start + 1 : start + length - 1].tolist()))
    return texts


def all_captions(parts_of_batches, tokenizer) -> list[str]:
    return [c for parts in parts_of_batches for part in parts for c in captions(part, tokenizer)]


def test_workers_give_what_the_calling_thread_gives(make_dataset, tokenizer) -> None:
    dataset = make_dataset(45, rows_per_group=5, rows_per_file=15)
    alone = list(loader(dataset, tokenizer).epoch(0))
    threaded = list(loader(dataset, tokenizer, num_workers=3, prefetch_batches=2).epoch(0))
    assert len(alone) == len(threaded) == 6
    for a, b in zip(alone, threaded, strict=True):
        assert torch.equal(a[0].pixels_V3SS, b[0].pixels_V3SS)
        assert torch.equal(a[0].texts.input_ids_RW, b[0].texts.input_ids_RW)
        assert torch.equal(a[0].boxes_NK4, b[0].boxes_NK4)


class Colours(GlobalLocal):
    """Prepares the mean colour of every image, and how long its caption is."""

    def inputs(self, side):
        return {"colour": torch.empty(3), "length": torch.empty((), dtype=torch.int64)}

    def prepare(self, image, caption, inputs):
        inputs["colour"].copy_(image.float().mean(dim=(1, 2)))
        inputs["length"].fill_(len(caption))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_objective_prepares_inputs_of_its_own(make_dataset, tokenizer, num_workers: int) -> None:
    """In parts of a batch; a filler's are zeros."""
    found = loader(make_dataset(7), tokenizer, Colours(), num_workers=num_workers, num_ranks=2,
                   rank=1, micro_batch_size=2)  # fmt: skip
    [[first, second]] = list(found.epoch(0))
    for batch in (first, second):
        real = batch.valid_N
        wanted = batch.pixels_V3SS[: batch.num_global].float().mean(dim=(2, 3))
        torch.testing.assert_close(batch.prepared["colour"][real], wanted[real])
        assert (batch.prepared["length"][real] > 20).all()
        same = batch.map(torch.clone).prepared["length"]
        assert torch.equal(same, batch.prepared["length"])
    assert second.valid_N.tolist() == [True, False]


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_every_sample_once_and_batches_do_not_depend_on_the_ranks(
    make_dataset, tokenizer, num_ranks: int
) -> None:
    dataset = make_dataset(45, rows_per_group=5, rows_per_file=15)
    wanted = list(loader(dataset, tokenizer).epoch(1))
    ranks = [
        list(loader(dataset, tokenizer, rank=r, num_ranks=num_ranks).epoch(1))
        for r in range(num_ranks)
    ]
    everything = []
    for index, parts in enumerate(wanted):
        together = [c for rank in ranks for c in captions(rank[index][0], tokenizer)]
        assert together == captions(parts[0], tokenizer)
        assert len({len(rank[index][0].valid_N) for rank in ranks}) == 1
        everything += together
    assert len(everything) == len(set(everything)) == 45


def test_starting_in_the_middle(make_dataset, tokenizer) -> None:
    dataset = make_dataset(40, rows_per_group=5)
    whole = all_captions(loader(dataset, tokenizer).epoch(2), tokenizer)
    rest = all_captions(loader(dataset, tokenizer, num_workers=2).epoch(2, start=3), tokenizer)
    assert rest == whole[24:]


def test_parts_of_a_batch_for_gradient_caching(make_dataset, tokenizer) -> None:
    dataset = make_dataset(16)
    whole = all_captions(loader(dataset, tokenizer).epoch(0), tokenizer)
    parts = list(loader(dataset, tokenizer, micro_batch_size=3).epoch(0))
    assert [len(p.valid_N) for p in parts[0]] == [3, 3, 2]
    assert all_captions(parts, tokenizer) == whole


def test_stopping_early_ends_the_threads(make_dataset, tokenizer) -> None:
    import threading

    epoch = loader(make_dataset(64), tokenizer, num_workers=2, prefetch_batches=1).epoch(0)
    next(epoch)
    epoch.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("glit-")]


def test_a_dataset_without_pairs(make_dataset, tokenizer) -> None:
    def no_pairs(index: int, row) -> None:
        row["pairs"], row["regions"] = [], []

    dataset = make_dataset(9, change=no_pairs)
    batch = next(loader(dataset, tokenizer).epoch(0))[0]
    assert not bool(batch.valid_local_NK.any())
    assert batch.pixels_V3SS.shape[0] == batch.num_global == 8


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("damage", ["removed", "cut short"])
def test_a_shard_lost_under_the_trainer(make_dataset, tokenizer, num_workers, damage) -> None:
    dataset = make_dataset(40, rows_per_group=4, rows_per_file=20)
    epoch = loader(
        dataset, tokenizer, num_workers=num_workers, shuffle_row_groups=1, prefetch_batches=1
    ).epoch(0)
    next(epoch)
    for file in (dataset / "data").iterdir():
        if damage == "removed":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(DatasetError, match=r"row group \d+ cannot be read .* repair the dataset"):
        list(epoch)


def test_an_image_that_does_not_decode_is_named(make_dataset, tokenizer) -> None:
    def damage(index: int, row) -> None:
        row["image"]["bytes"] = b"not an image"

    dataset = make_dataset(8, change=damage)
    with pytest.raises(
        DatasetError,
        match=r"sample [0-9a-f]{64} in data/train-00000\S+, row group 0 cannot be decoded",
    ):
        list(loader(dataset, tokenizer, num_workers=1).epoch(0))


def test_each_rank_reads_a_share_of_the_row_groups(make_dataset, tokenizer, monkeypatch) -> None:
    dataset = make_dataset(160, rows_per_group=5, rows_per_file=40)
    read: list[int] = []
    real = Dataset.row_group

    def row_group(self, number, *args, **options):
        read.append(number)
        return real(self, number, *args, **options)

    monkeypatch.setattr(Dataset, "row_group", row_group)
    for rank in (0, 1):
        read.clear()
        made = loader(
            dataset,
            tokenizer,
            rank=rank,
            num_ranks=2,
            batch_size=32,
            shuffle_row_groups=16,
            drop_last=True,
        )
        assert len(list(made.epoch(0))) == 5
        assert 16 <= len(read) <= 24, f"of 32 row groups rank {rank} read {len(read)}"
