"""Training on datasets with several captions an image."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from glit.data.schema import CAPTIONS
from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError
from glit.training.checks import short_text_note
from glit.training.config import TrainConfig
from glit.training.loop import train
from glit.training.objective import InputSpec
from glit.training.objectives.f_cast.objective import FCast
from glit.training.objectives.fg_clip import FgClip
from glit.training.objectives.long_clip import LongClip
from glit.training.objectives.mulclip import MulClip
from glit.training.planning import chosen_caption, plan_sample, read_columns
from glit.training.setup import prepare


def several(index: int, row: dict) -> None:
    """Long and short captions; the second image has no short one."""
    texts = {"long": row["caption"], "short": f"Short {index}.", "web": f"Web {index}."}
    row["captions"] = [
        {"kind": kind, "text": text, "source": "provided"}
        for kind, text in texts.items()
        if index != 1 or kind != "short"
    ]


@pytest.fixture
def dataset(make_dataset) -> str:
    return str(make_dataset(6, change=several, further=(CAPTIONS,)))


@pytest.fixture
def plain(make_dataset) -> str:
    return str(make_dataset(6, name="plain"))


def config(tiny_clip, **values) -> TrainConfig:
    given = {"objective": "clip", "batch_size": 3, "num_workers": 0, "lr": 1e-3, "trackers": ()}
    return TrainConfig(model=str(tiny_clip), **{**given, **values})


def planned(group, row, objective, seed=0, **how):
    draw = np.random.default_rng(seed)
    return plan_sample(group, row, objective, side=32, fit="resize", draw=draw, **how)


@pytest.mark.parametrize("objective", [LongClip(), FgClip(), MulClip(), MulClip(lambda_sub=0)])
def test_the_short_caption_takes_the_place_of_the_first_sentence(dataset, objective) -> None:
    group = Dataset(dataset).row_group(0)
    without = Dataset(dataset).row_group(0, columns=read_columns(InputSpec()))
    with_short = planned(group, 0, objective).texts
    assert with_short[0] == "Short 0."
    first = planned(without, 0, objective).texts
    assert with_short[1:] == first[1:] and first[0] == group.sentences_of(0)[0].text
    assert planned(group, 1, objective).texts == planned(without, 1, objective).texts


def test_f_cast_takes_the_short_caption_after_the_chunks_of_the_long_one(dataset) -> None:
    group = Dataset(dataset).row_group(0)
    without = Dataset(dataset).row_group(0, columns=read_columns(InputSpec()))
    number = FCast().num_chunks
    found, before = (planned(each, 0, FCast()).texts for each in (group, without))
    assert len(found) == len(before) and found[:number] == before[:number]
    assert found[number] == "Short 0." and found[number + 1 :] == before[number:-1]
    assert planned(group, 0, FCast(num_chunks=4, num_parts=4)).texts == found[:number]


def test_the_text_of_the_whole_image(dataset) -> None:
    captions = Dataset(dataset).row_group(0).captions_of(0)
    assert chosen_caption("Long.", captions, "long", None) == "Long."
    assert chosen_caption("Long.", captions, "short", None) == "Short 0."
    assert chosen_caption("Long.", [], "short", None) == "Long."
    drawn = [
        chosen_caption("Long.", captions, "sample", np.random.default_rng(seed))
        for seed in range(30)
    ]
    assert {*drawn} == {each["text"] for each in captions}
    assert chosen_caption("Long.", [], "sample", np.random.default_rng(0)) == "Long."


def keys_of(tiny_clip, dataset, *, epoch: int = 0, start: int = 0, **values) -> list[list]:
    """What tells the whole images' texts of an epoch from others, by batch."""
    loader = prepare(config(tiny_clip, **values), dataset).loader
    return [
        [tuple(key) for batch in parts for key in batch.caption_key_N2.tolist()]
        for parts in loader.epoch(epoch, start=start)
    ]


def test_drawn_captions_depend_on_seed_and_epoch_alone(dataset, tiny_clip) -> None:
    def keys(**how):
        return keys_of(tiny_clip, dataset, caption="sample", **how)

    whole = keys()
    assert keys() == whole == keys(num_workers=3)
    assert keys(start=1) == whole[1:], "a resumed epoch goes on with the same texts"
    assert {*chain(*keys(epoch=1))} != {*chain(*whole)}
    assert {*chain(*keys(seed=1))} != {*chain(*whole)}


def test_a_dataset_without_captions_gives_the_same_run(dataset, plain, tiny_clip, tmp_path) -> None:
    """The column changes nothing for an objective without short texts."""
    lines = []
    for name, path in (("with", dataset), ("without", plain)):
        lines.append([])
        train(config(tiny_clip, epochs=1), path, tmp_path / name, report=lines[-1].append)
    losses = [[line["loss"] for line in found if "loss" in line] for found in lines]
    assert losses[0] == losses[1] != []


def test_what_is_refused(dataset, plain, tiny_clip) -> None:
    with pytest.raises(InputError, match="has one caption an image, and train.caption = 'short'"):
        prepare(config(tiny_clip, caption="short"), plain)
    with pytest.raises(RecipeError, match="takes its sentences from the long caption"):
        prepare(config(tiny_clip, caption="sample", objective="fast-goal"), dataset)
    with pytest.raises(RecipeError, match=r"\[train\] caption: found 'middle'"):
        config(tiny_clip, caption="middle")


def test_no_short_caption_at_all(make_dataset, tiny_clip) -> None:
    def only_long(index: int, row: dict) -> None:
        row["captions"] = [{"kind": "long", "text": row["caption"], "source": "provided"}]

    path = str(make_dataset(4, name="long", change=only_long, further=(CAPTIONS,)))
    with pytest.raises(InputError, match="no image has a caption of the kind 'short'"):
        prepare(config(tiny_clip, caption="short"), path)


def test_a_run_says_where_its_short_texts_are_from(dataset, plain, tiny_clip) -> None:
    long_clip = config(tiny_clip, objective="long-clip")
    assert short_text_note(config(tiny_clip), plain) == ""
    assert short_text_note(long_clip, dataset).startswith("short texts: captions of the kind")
    assert short_text_note(long_clip, plain).startswith("short texts: first sentences")
    own = config(tiny_clip, objective="glit")
    assert short_text_note(own, plain) == ""
    assert short_text_note(own, dataset).endswith("none for images without one")
    both = config(tiny_clip, objective="long-clip", also=(plain,))
    assert short_text_note(both, dataset).endswith(f"'short' in {plain}")


def test_another_column_of_this_name_is_nobody_s_captions(make_dataset, tiny_clip) -> None:
    import pyarrow as pa

    def numbers(index: int, row: dict) -> None:
        row["captions"] = [index]

    column = ("captions", pa.list_(pa.int32()))
    path = str(make_dataset(4, name="own", change=numbers, further=(column,)))
    assert Dataset(path).row_group(0).captions_of(0) == []
    assert planned(Dataset(path).row_group(0), 0, LongClip()).texts[0] != ""
