"""The draft of a summary of training content, with what a dataset knows of itself."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from building import run_build
from noticed import NOTICES, noticed, picture

from glit.dataset.rights_figures import count_rights, merged, rights_section
from glit.inputs.rights import RIGHTS

SECTIONS = (
    "## 1. General information",
    "### 1.1. Provider identification",
    "### 1.2. Model identification",
    "### 1.3. Modalities, overall training data size and other characteristics",
    "## 2. List of data sources",
    "### 2.1. Publicly available datasets",
    "### 2.2. Private non-publicly available datasets obtained from third parties",
    "### 2.3. Data crawled and scraped from online sources",
    "### 2.4. User data",
    "### 2.5. Synthetic data",
    "### 2.6. Other sources of data",
    "## 3. Data processing aspects",
    "### 3.1. Respect of reservation of rights from text and data mining exception or limitation",
    "### 3.2. Removal of illegal content",
    "### 3.3. Other information",
)
"""Of the Commission's template."""


def summary(dataset, run_glit) -> str:
    done = run_glit("stats", dataset, "--summary")
    assert done.code == 0
    return done.output


def test_a_dataset_with_rights(tmp_path, run_glit):
    (tmp_path / "in").mkdir()
    for number in range(4):
        data = picture(seed=number)
        (tmp_path / f"in/{number}.jpg").write_bytes(data if number else noticed(data, NOTICES))
        (tmp_path / f"in/{number}.txt").write_text("A red circle. A blue square.")
    settings = ["rights.enabled=true", 'rights.drop=["mining_prohibited"]']
    overrides = ["caption.backend=sidecar", *settings]
    run_build(tmp_path / "in", tmp_path / "out", recipe="captions-only", overrides=overrides)
    said = summary(tmp_path / "out", run_glit)
    assert [line for line in said.splitlines() if line.startswith("##")] == list(SECTIONS)
    assert "was built by glit from 4 image files" in said and "(3 images)" in said
    assert "Left out were pictures that forbid data mining or training." in said.replace("\n", " ")
    assert "1 images were dropped (1 rights/mining_prohibited)" in said
    assert "glit wrote no text by a model." in said


def test_a_dataset_without(built, run_glit):
    assert "was not read; build with `rights.enabled = true`" in summary(built, run_glit)


def test_it_is_of_a_dataset_alone(built, run_glit):
    done = run_glit("stats", built, "--summary", "--json")
    assert done.code == 2 and "--summary: is of a dataset of glit" in done.errors


def row(**said):
    return {**dict.fromkeys(RIGHTS.names), "c2pa": "none", "sources": [], "unreadable": [], **said}


def test_counts_and_a_section():
    rows = [
        row(licence="CC BY", mining="prohibited"),
        row(licence="CC BY", copyright="© A"),
        row(licence="a | b `c`\n" + "d" * 200, ai_generated=True, c2pa="invalid"),
        row(ai_generated=False, mining="allowed"),
    ]
    found = count_rights(pa.array(rows, RIGHTS))
    assert (found["notice"], found["licence: CC BY"], found["ai_generated"]) == (3, 2, 1)
    said = rights_section(merged(found, found), 8)
    assert "| data mining or training prohibited | 2 | 25.0% |" in said
    assert "| licence: `CC BY` | 4 | 50.0% |" in said
    assert "| with a C2PA manifest, invalid | 2 | 25.0% |" in said
    (line,) = [line for line in said.splitlines() if "a / b 'c' d" in line]
    assert len(line) < 120 and line.endswith("… ` | 2 | 25.0% |".replace("… ", "…"))
    assert rights_section({}, 8) == ""


def test_many_licences_are_bounded():
    found = Counter({f"licence: {number}": 1 for number in range(1500)})
    both = merged(found, {"licence: 7": 2, "notice": 9})
    assert len(both) == 1002 and both["licence: 7"] == 3 and both["notice"] == 9
    assert sum(number for key, number in both.items() if key != "notice") == 1502
