"""Maps of sentences over images."""

from __future__ import annotations

import base64

import numpy as np
import torch
from evaluating import CONFIG, config

from glit.dataset.reader import Dataset
from glit.evaluation.collection import DatasetCollection
from glit.evaluation.encode import load_embedder
from glit.evaluation.patch_maps import patch_maps
from glit.view import report
from glit.view.report import write_report


def test_a_byte_is_a_patchs_share_of_its_sentences_range(tiny_clip, make_dataset) -> None:
    dataset = make_dataset(5)
    found = patch_maps([str(tiny_clip)] * 2, str(dataset), [3, 0], config(limit=1))
    assert [len(some) for some in found] == [2, 2]
    embedder = load_embedder(str(tiny_clip), CONFIG).squeezed()
    collection = DatasetCollection(str(dataset), CONFIG)
    patches = torch.cat(list(embedder.patches(collection, [3])))[0]
    row = Dataset(str(dataset))[3]
    texts = embedder.texts([sentence.text for sentence in row.sentences])
    first = found[0][0]
    assert (first["grid"], len(first["maps"])) == (4, len(row.sentences))
    for text, given, low, high in zip(
        texts, first["maps"], first["low"], first["high"], strict=True
    ):
        cosines = (patches @ text).numpy()
        assert np.allclose([low, high], [cosines.min(), cosines.max()], atol=1e-4)
        share = np.frombuffer(base64.b64decode(given), dtype=np.uint8) / 255
        wanted = (cosines - cosines.min()) / (cosines.max() - cosines.min())
        assert np.abs(share - wanted).max() < 0.01


def test_a_page_holds_maps_of_the_images_that_can_be_read(tmp_path, built, monkeypatch) -> None:
    asked: list[list[int]] = []

    def maps(numbers: list[int]) -> list[list[dict]]:
        asked.append(numbers)
        return [[{"model": "a"}] for _ in numbers]

    data = write_report(Dataset(built), tmp_path / "page.html", most=3, maps=maps)
    assert asked == [[sample["n"] for sample in data["samples"]]]
    assert all(sample["maps"] == [{"model": "a"}] for sample in data["samples"])
    monkeypatch.setattr(report, "thumbnail_url", lambda row: "")  # no image can be read
    data = write_report(Dataset(built), tmp_path / "page.html", most=3, maps=maps)
    assert len(asked) == 1 and not any("maps" in sample for sample in data["samples"])


def test_where_maps_do_not_go(tiny_clip, make_dataset, run_glit) -> None:
    done = run_glit("view", make_dataset(2), "--maps", tiny_clip, "--serve")
    assert done.code == 2
    assert "--maps MODEL: takes one dataset, or runs, and -o" in done.errors
