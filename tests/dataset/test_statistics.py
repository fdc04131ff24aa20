"""The statistics of a dataset, against rows counted by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import run_build
from hypothesis import given
from hypothesis import strategies as st

import glit
from glit import api
from glit.data.schema import CAPTIONS, PAIR, REGION, SENTENCE
from glit.dataset.manifest import MergedDataset, RecordedRecipe
from glit.dataset.reader import Dataset
from glit.dataset.select import narrowed
from glit.dataset.statistics import (
    PAPERS,
    CaptionTally,
    Spread,
    beside_papers,
    lines,
    narrowed_statistics,
)
from glit.errors import DatasetError
from glit.models.tokenizer import clip_tokenizer
from glit.view.charts import figures


def made_by(tables) -> MergedDataset:
    recipe = RecordedRecipe(name="r", about="", tables=tables)
    return MergedDataset(name="d", manifest_sha256="", rows=1, recipe=recipe)


MANIFEST = made_by({"score": {"backend": "clip"}})
ALONE = made_by({"propose": {"enabled": False}})
FILES = made_by({"score": {"backend": "file"}})


def sentence(token_end):
    return dict.fromkeys(SENTENCE.names, 0) | {
        "text": "", "token_end": token_end, "in_window": True, "truncated": False,
        "mean_logprob": None, "min_logprob": None,
    }  # fmt: skip


def pair(number, similarity, *, wins=False):
    return {
        "sentence": number, "region": 0, "similarity": similarity, "global_wins": wins,
        "probability": None, "support": None,
    }  # fmt: skip


def region():
    return dict.fromkeys(REGION.names, 0.0) | {"label": "", "source": "grid"}


SEVERAL = (("long", "provided"), ("short", "condensed"))
ROWS = [
    {  # 5 words, 2 sentences, 78 tokens: 80 with start and end
        "caption": " One two.\nThree\u00a0four five ", "sentences": [sentence(4), sentence(79)],
        "regions": [region()] * 3, "pairs": [pair(1, 0.5), pair(0, 0.25)],
        "by_hand": [{"sentence": 0, "region": 0, "scored": True}],
        "captions": [{"kind": k, "text": "", "source": s} for k, s in SEVERAL],
    },
    {  # 1 word, 1 sentence, 75 tokens: 77 fit
        "caption": "One", "sentences": [sentence(76)], "regions": [region()],
        "pairs": [pair(0, 0.0)], "by_hand": [{"sentence": 0, "region": 0, "scored": False}],
        "captions": [{"kind": "long", "text": "", "source": "vllm"}],
    },
    {  # 2 words, 3 sentences, 247 tokens; the whole image wins two of them
        "caption": "One two", "sentences": [sentence(2), sentence(3), sentence(248)],
        "regions": [], "pairs": [pair(0, 0.125), pair(1, 9.0, wins=True), pair(2, 9.0, wins=True)],
        "by_hand": [], "captions": [],
    },
    {"caption": " \t", "sentences": [], "regions": [], "pairs": [], "by_hand": [], "captions": []},
]  # fmt: skip
SCHEMA = pa.schema(
    [
        ("caption", pa.string()),
        ("sentences", pa.list_(SENTENCE)),
        ("regions", pa.list_(REGION)),
        ("pairs", pa.list_(PAIR)),
        ("by_hand", pa.list_(pa.struct(
            [("sentence", pa.int32()), ("region", pa.int32()), ("scored", pa.bool_())]
        ))),
        CAPTIONS,
    ]
)  # fmt: skip


def tally(rows=ROWS, columns=SCHEMA.names):
    found = CaptionTally()
    found.rows(pa.Table.from_pylist(rows, schema=SCHEMA).select(columns), None)
    return found


def test_four_rows_by_hand():
    found = tally().statistics(MANIFEST, tokenizer="clip")
    assert (found.images, found.captions, found.tokenizer) == (4, 4, "clip")
    assert found.words == Spread(mean=2.0, median=1.5, most=5)
    assert found.sentences == Spread(mean=1.5, median=1.5, most=3)
    assert found.sentence_histogram == {0: 1, 1: 1, 2: 1, 3: 1}
    assert found.tokens == Spread(mean=100.0, median=76.5, most=247)
    assert found.beyond == {77: 0.5, 248: 0.25}
    # the second row's pair was made by a person, and no matcher scored it
    assert found.per_image == {"regions": 1.0, "pairs": 1.0, "similarity": 0.875 / 3}
    assert found.kinds == {"long": {"provided": 1, "vllm": 1}, "short": {"condensed": 1}}
    assert ("captions of the kind long", "1 provided, 1 vllm") in lines(found)


def test_no_regions_of_captions_alone_and_no_similarity_from_files():
    assert tally().statistics(ALONE).per_image == {}
    assert "regions" not in " ".join(name for name, _ in lines(tally().statistics(ALONE)))
    assert tally().statistics(FILES).per_image == {"regions": 1.0, "pairs": 1.0}
    inner = replace(MANIFEST, merged=(MANIFEST, FILES))
    merged = replace(MANIFEST, merged=(MANIFEST, inner))
    assert tally().statistics(merged).per_image == {"regions": 1.0, "pairs": 1.0}
    none = tally([{**row, "pairs": []} for row in ROWS]).statistics(MANIFEST)
    assert none.per_image == {"regions": 1.0, "pairs": 0.0}


def test_parts_and_slices_add_up():
    table = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    found = CaptionTally()
    for part in (table.slice(0, 1), table.slice(1, 2), table.slice(3, 1)):
        own = CaptionTally()
        own.rows(part, None)
        found.merge(own)
    assert found.statistics(MANIFEST) == tally().statistics(MANIFEST)
    without = tally(columns=["caption", "sentences", "regions", "pairs"]).statistics(MANIFEST)
    assert without.kinds == {} and without.per_image["similarity"] == 0.875 / 4


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"caption": None}, "caption is null"),
        ({"sentences": [sentence(None)]}, "sentences.token_end holds a null"),
        ({"pairs": None}, "pairs is null"),
        ({"by_hand": [], "pairs": [pair(0, float("nan"))]}, "similarity is not finite"),
        ({"by_hand": [], "pairs": [pair(0, float("inf"))]}, "similarity is not finite"),
    ],
)
def test_a_missing_or_infinite_value_is_no_number(change, fault):
    with pytest.raises(ValueError, match=re.escape(fault)):
        tally([ROWS[0], {**ROWS[1], **change}])


@given(st.lists(st.integers(0, 9), min_size=1))
def test_mean_and_median_are_those_of_the_values(values):
    found = Spread.of(Counter(values))
    assert found == Spread(mean=fmean(values), median=median(values), most=max(values))


@given(st.lists(st.text(alphabet=st.sampled_from("ab \n\x1c\x85\u00a0\u2003\u3000\u200b"))))
def test_words_are_those_of_str_split(texts):
    rows = [{**ROWS[3], "caption": text} for text in texts] or ROWS
    assert tally(rows).words == Counter(len(row["caption"].split()) for row in rows)


def test_the_spans_of_a_dataset_are_what_its_tokenizer_counts(built):
    own = api.statistics(built)
    again = api.statistics(built, tokenizer=own.tokenizer)
    assert own == again and own.tokens is not None
    assert own.tokenizer == Dataset(built).manifest.tokenizer.name
    assert narrowed_statistics(Dataset(built)) == own
    some = narrowed(Dataset(built), "len(sentences) > 8")
    lengths = [len(row.sentences) for row in some.rows()]
    assert narrowed_statistics(some).sentence_histogram == dict(sorted(Counter(lengths).items()))


def test_card_page_and_status_say_what_stats_says(built, run_glit, tmp_path):
    found = api.statistics(built)
    card = (built / "README.md").read_text()
    assert all(f"| {name} | {value} |" in card for name, value in lines(found))
    assert all(f"| {' | '.join(row)} |" in card for row in beside_papers(found))
    assert card.count("FAST-GOAL, § V-A") == 1 and "Tokens are those of " in card
    page = figures(Dataset(built))
    assert page["lines"] == lines(found)[:-1] and page["papers"] == beside_papers(found)
    told = json.loads(json.dumps(found.as_dict()))
    assert json.loads(run_glit("status", built, "--json").output)["statistics"] == told
    assert json.loads(run_glit("stats", built, "--json").output) == told
    said = run_glit("stats", built).output
    assert "FineLIP" in said and f"Tokens are those of {found.tokenizer};" in said
    api.export(built, to="hf", output=tmp_path / "hub")
    hub = (tmp_path / "hub" / "README.md").read_text()
    assert all(f"| {name} | {value} |" in hub for name, value in lines(found))


def test_a_damaged_dataset_has_a_status_and_no_statistics(built_copy, run_glit):
    path = next((built_copy / "data").iterdir())
    table = pq.read_table(path)
    broken = pa.nulls(len(table), pa.string())
    at = table.schema.get_field_index("caption")
    pq.write_table(table.set_column(at, table.schema.field(at), broken), path)
    with pytest.raises(DatasetError, match=r"row 0: caption is null\); run 'glit verify'"):
        api.statistics(built_copy)
    done = run_glit("status", built_copy, "--json")
    assert done.code == 0 and json.loads(done.output)["statistics"] is None
    assert "no statistics: " in done.errors and "caption is null" in done.errors
    assert run_glit("stats", built_copy).code == 1
    path.unlink()
    with pytest.raises(DatasetError, match=rf"{path.name}: its rows .* \(missing"):
        api.statistics(built_copy)


def test_captions_alone_and_what_is_merged_with_them(scenes, built, tmp_path, run_glit):
    run_build(
        scenes / "images", tmp_path / "alone", recipe="captions-only", limit=3,
        captions=scenes / "captions.jsonl",
        overrides=[f"split.tokenizer={Dataset(built).manifest.tokenizer.name}"],
    )  # fmt: skip
    alone = api.statistics(tmp_path / "alone")
    assert alone.images == 3 and alone.per_image == {} and alone.tokens is not None
    assert "regions" not in run_glit("stats", tmp_path / "alone").output
    figures = (tmp_path / "alone" / "README.md").read_text().partition("## In figures")[2]
    assert "regions per image" not in figures and "pairs per image" not in figures
    glit.select(built, tmp_path / "others", where="source_path >= '000003'")
    merged = glit.merge([tmp_path / "alone", tmp_path / "others"], tmp_path / "merged")
    found, rows = api.statistics(merged.path), list(Dataset(merged.path))
    whole = api.statistics(built)
    assert (found.words, found.tokens, found.images) == (whole.words, whole.tokens, 24)
    pairs = [each for row in rows for each in row.pairs if not each.global_wins]
    assert found.per_image == {
        "regions": sum(len(row.regions) for row in rows) / 24, "pairs": len(pairs) / 24,
        "similarity": pytest.approx(fmean(each.similarity for each in pairs)),
    }  # fmt: skip


def test_the_documents_print_the_papers_figures_too():
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    rows = {tuple(c.strip() for c in line.strip("|").split("|")) for line in text.splitlines()}
    assert set(PAPERS) <= rows


def test_many_different_numbers_share_a_row():
    several = [{**ROWS[3], "sentences": [sentence(2)] * number} for number in range(40)]
    *_, (title, shown) = lines(tally(several).statistics(MANIFEST))
    assert title == "captions by sentences"
    assert shown.startswith("0: 1, 1: 1, ") and shown.endswith("29: 1, 30 to 39: 10")


def test_tokens_of_a_dataset_without_a_model_are_counted_as_papers_count(sample):
    """By CLIP's vocabulary, which gave the spans too."""
    found = api.statistics(sample / "dataset")
    assert found.tokenizer == "CLIP" and found.tokens is not None
    rows = list(glit.open_dataset(sample / "dataset").rows(images=False))
    own = [clip_tokenizer().encode([row.caption.text])[0] for row in rows]
    assert found.tokens.mean == sum(map(len, own)) / len(own)
    assert found.beyond[77] == sum(len(ids) + 2 > 77 for ids in own) / len(own)
    assert [row.sentences[-1].token_end for row in rows] == [len(ids) + 1 for ids in own]
