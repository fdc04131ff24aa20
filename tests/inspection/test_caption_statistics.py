"""``glit stats``: lengths of captions, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glit import api
from glit.dataset.statistics import Spread
from glit.errors import InputError
from glit.models.tokenizer import TextTokenizer

TEXTS = [
    "A red door. It is open.",
    "Two dogs run, and a third one sleeps on the grass behind them.",
    "One. Two three. Four five six.",
]
WORDS, SENTENCES = [6, 13, 6], [2, 1, 3]


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "captions.jsonl"
    rows = [{"caption": text, "index": number} for number, text in enumerate(TEXTS)]
    rows.append({"caption": None, "index": 9})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_words_and_sentences_are_counted_without_a_tokenizer(file) -> None:
    found = api.statistics(file, format="captions")
    assert (found.images, found.captions) == (3, 3)
    assert found.words == Spread(mean=sum(WORDS) / 3, median=6, most=13)
    assert found.sentences == Spread(mean=2, median=2, most=3)
    assert found.sentence_histogram == {1: 1, 2: 1, 3: 1}
    assert found.tokens is None and found.beyond == {} and found.per_image == {}


def test_a_window_holds_the_start_and_end_token_too(tiny_clip, tmp_path) -> None:
    path = tmp_path / "captions.csv"
    words = ["the"] * 75
    path.write_text("text\n" + " ".join(words) + "\n" + " ".join([*words, "the"]) + "\n")
    found = api.statistics(path, format="captions", tokenizer=str(tiny_clip))
    assert found.tokens is not None
    lengths = [len(ids) for ids in TextTokenizer(tiny_clip).encode([" ".join(words), "the"])]
    assert found.tokens.most == lengths[0] + lengths[1]
    assert found.beyond[77] == sum(n + 2 > 77 for n in (lengths[0], found.tokens.most)) / 2


def test_a_dataset_is_counted_by_its_own_sentences_and_token_spans(built) -> None:
    found = api.statistics(built)
    rows = list(api.open_dataset(built).rows(images=False))
    num = len(rows)
    assert found.images == found.captions == num
    assert found.words.mean == sum(len(row.caption.text.split()) for row in rows) / num
    assert found.sentences.mean == sum(len(row.sentences) for row in rows) / num
    assert found.tokens is not None and found.tokens.most >= max(
        sentence.token_end - 1 for row in rows for sentence in row.sentences
    )
    pairs = [pair for row in rows for pair in row.pairs if not pair.global_wins]
    assert found.per_image["regions"] == sum(len(row.regions) for row in rows) / num
    assert found.per_image["pairs"] == len(pairs) / num
    mean = sum(pair.similarity for pair in pairs) / len(pairs)
    assert found.per_image["similarity"] == pytest.approx(mean)


def test_the_command_prints_a_table_or_json(file, run_glit) -> None:
    code, said, _ = run_glit("stats", file, "--format", "captions")
    assert code == 0 and "mean 8.3, median 6, most 13" in said and "1: 1, 2: 1, 3: 1" in said
    code, said, _ = run_glit("stats", file, "--format", "captions", "--json")
    assert code == 0 and json.loads(said)["words"]["most"] == 13


def test_what_has_no_caption_is_refused(tmp_path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text('{"caption": ""}\n')
    with pytest.raises(InputError, match="no caption under caption or text"):
        api.statistics(path, format="captions")
    with pytest.raises(InputError, match="captions.txt: want .parquet, .csv, .tsv, .jsonl"):
        api.statistics(tmp_path / "captions.txt", format="captions")
    with pytest.raises(InputError, match="known formats are glit"):
        api.statistics(path, format="docic")


def test_a_split_of_what_has_none_is_refused_in_one_line(file, built, run_glit) -> None:
    for words in ((built,), (file, "--format", "captions")):
        code, said, errors = run_glit("stats", *words, "--split", "test")
        assert (code, said, errors.count("\n")) == (2, "", 1)
        assert "--split 'test': these annotations have no parts; leave --split out" in errors
