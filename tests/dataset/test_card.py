"""The card of a dataset: what the Hub reads of it, and what people do."""

from __future__ import annotations

from dataclasses import replace

from glit.api import statistics
from glit.dataset.card import balance, dataset_card, paragraph, size_category
from glit.dataset.manifest import Counts


def test_the_hub_reads_features_sizes_and_a_licence_to_be_named(built, tmp_path):
    from datasets import Features, load_dataset
    from huggingface_hub import DatasetCard

    card = DatasetCard.load(built / "README.md")
    assert card.data.license == "unknown" and "name the licence" in card.text
    info = card.data.dataset_info
    files = sorted((built / "data").iterdir())
    assert info["splits"][0]["num_bytes"] == sum(path.stat().st_size for path in files)
    rows = load_dataset(str(built), split="train", cache_dir=str(tmp_path))
    assert Features._from_yaml_list(info["features"]) == rows.features
    assert len(rows) == info["splits"][0]["num_examples"] == 24
    assert rows[0]["image"].size == (rows[0]["width"], rows[0]["height"])


def test_no_line_is_long_and_no_sum_is_torn(built):
    from glit.dataset.reader import Dataset

    text = dataset_card(Dataset(str(built)).manifest, statistics(built)).split("---", 2)[2]
    assert all(len(line) <= 100 or line.startswith("|") for line in text.splitlines())
    counts = Counts(
        ingested=9, shipped=5, dropped=3, duplicates=1, without_pair=2,
        drops={"ingest/corrupt": 2, "caption/looping": 1},
    )  # fmt: skip
    assert balance(counts).splitlines()[2:] == [
        "| found | 9 |",
        "| here | 5 |",
        "| of these without a pair | 2 |",
        "| dropped: caption/looping | 1 |",
        "| dropped: ingest/corrupt | 2 |",
        "| repeat another | 1 |",
    ]
    assert balance(counts, here=4).splitlines()[3:6] == [
        "| in the dataset | 5 |",
        "| of these without a pair | 2 |",
        "| of these chosen by a condition, and here | 4 |",
    ]


def test_the_hub_reads_who_wrote_what_and_in_which_language(built):
    from huggingface_hub import DatasetCard

    from glit.dataset.reader import Dataset

    manifest, figures = Dataset(str(built)).manifest, statistics(built)
    found = DatasetCard(dataset_card(manifest, figures)).data
    assert (found.language, found.pretty_name) == (
        ["en"], "Images with region-grounded long captions",
    )  # fmt: skip
    assert found.annotations_creators == ["machine-generated"]
    split = dict(manifest.recipe.table("split"))
    for language in ("no", "en\nlicense: mit"):
        recipe = manifest.recipe.with_table("split", {**split, "language": language})
        found = DatasetCard(dataset_card(replace(manifest, recipe=recipe), figures)).data
        assert (found.language, found.license) == ([language], "unknown")


def test_words_and_sizes():
    assert paragraph("a-b " * 40).splitlines() == [("a-b " * 25).strip(), ("a-b " * 15).strip()]
    assert [size_category(n) for n in (999, 1_000, 115_000_000)] == [
        "n<1K", "1K<n<10K", "100M<n<1B"
    ]  # fmt: skip
