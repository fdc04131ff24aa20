"""The stage that makes false sentences."""

from __future__ import annotations

import pytest
from building import run_build

from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import RecipeError
from glit.text.negatives import KINDS

ON = ("negatives.enabled=true", "negatives.per_sentence=3")


def built(scenes, output, *overrides: str) -> Dataset:
    run_build(
        scenes / "images", output, captions=scenes / "captions.jsonl", overrides=overrides, limit=6
    )
    return Dataset(str(output))


def test_the_column_and_no_other_byte_of_the_tables(scenes, tmp_path) -> None:
    plain, more = built(scenes, tmp_path / "plain"), built(scenes, tmp_path / "more", *ON)
    assert more.schema.names == [*plain.schema.names, "negatives"]
    standard = [name for name in plain.schema.names if name != "image"]
    assert more.table(standard).equals(plain.table(standard))
    before, now = (each.manifest["fingerprints"] for each in (plain, more))
    assert {k: v for k, v in now.items() if k not in ("negatives", "pack")} == {
        k: v for k, v in before.items() if k != "pack"
    }
    assert now["pack"] != before["pack"]
    assert not list(verify(str(tmp_path / "more")))
    for row in more:
        texts = [sentence.text for sentence in row.sentences]
        found = row.extra["negatives"]
        numbers = [each["sentence"] for each in found]
        assert numbers == sorted(numbers) and max(numbers.count(n) for n in numbers) == 3
        for each in found:
            assert each["kind"] in KINDS
            assert each["text"] not in texts and each["text"] != texts[each["sentence"]]
    assert any(each["sentence"] != 0 for each in more[0].extra["negatives"])


def test_the_choice_is_the_sample_s_and_its_sentence_s(scenes, tmp_path) -> None:
    """Whatever other samples there are and however they are cut into chunks."""
    whole = built(scenes, tmp_path / "whole", *ON)
    run_build(
        scenes / "images", tmp_path / "part", captions=scenes / "captions.jsonl", overrides=ON,
        limit=3,
    )  # fmt: skip
    of = {row.sample_id: row.extra["negatives"] for row in whole}
    for row in Dataset(str(tmp_path / "part")):
        assert row.extra["negatives"] == of[row.sample_id]


def test_values_that_cannot_be(scenes, tmp_path) -> None:
    with pytest.raises(RecipeError, match="per_sentence: found 0, want >= 1"):
        built(scenes, tmp_path / "none", "negatives.enabled=true", "negatives.per_sentence=0")
