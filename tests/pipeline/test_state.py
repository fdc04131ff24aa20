"""The state of a build: read back as it was written, and from the notes of an earlier glit."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from building import Counting, quiet, run_build

from glit.errors import UserError
from glit.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.state import BuildState, Published, Retry, known_state, read_state, write_state
from glit.storage.checksummed_parquet import write_sealed
from glit.storage.store import Store


def test_it_comes_back(tmp_path):
    state = BuildState(
        images="/in", captions=None, recipe={"name": "mini"}, folders={"ingest": "ingest-0f"},
        num_chunks=3, versions=(("glit", "1"),),
        published=(Published(images="a", content="b"),),
        retry=Retry(stage="caption", settings=("caption.prompt=x",)),
        retries=({"told": {"settings": {}}, "folders": {"caption": "caption-0f"}},),
    )  # fmt: skip
    store = Store(tmp_path)
    write_state(store, state)
    assert read_state(store) == state == known_state(store)
    (tmp_path / "state.json").write_text("{")
    assert known_state(store) == state, "from its copy"


@pytest.fixture
def of_an_earlier_glit(built_copy):
    """A work folder with the notes of version 1; a finished dataset of this recipe."""
    work = built_copy / "work"
    state = json.loads((work / "state.json").read_text())
    (work / "state.copy.json").unlink()
    new = ("version", "versions", "published", "retry", "retries")
    noted = {key: state.pop(key) for key in new}
    (work / "state.json").write_text(json.dumps(state))
    lines = [f"{each['images']} {each['content']}\n" for each in noted["published"]]
    (work / "published.sha256").write_text("".join(lines))
    told = {"settings": {"ingest": {"min_side": 8}}, "stage": None, "reason": None}
    kept = [{"told": told, "folders": {"ingest": state["folders"]["ingest"]}}]
    (work / "retries.json").write_text(json.dumps(kept))
    names, versions = zip(*[*noted["versions"], ["numpy", "1.0"]], strict=True)
    write_sealed(pa.table({"package": names, "version": versions}), work / "versions.parquet")
    return built_copy


def test_notes_of_an_earlier_glit_are_read(of_an_earlier_glit, scenes):
    executor = Counting()
    run_build(
        scenes / "images", of_an_earlier_glit, captions=scenes / "captions.jsonl", executor=executor
    )
    assert executor.done == {}, "it knows what the dataset was made of"
    manifest = retry(str(of_an_earlier_glit), executor, quiet())
    assert executor.done == {}
    assert manifest["packages_before"] == {"numpy": ["1.0"]}
    assert [each["settings"] for each in manifest["retries"]] == [{"ingest": {"min_side": 8}}]


def test_a_retry_of_an_earlier_glit_that_was_stopped_is_refused(of_an_earlier_glit):
    (of_an_earlier_glit / "work" / "in-place.retry").write_text("{}")
    with pytest.raises(UserError, match="a retry of an earlier glit was stopped here; finish it"):
        retry(str(of_an_earlier_glit), LocalExecutor(), quiet())


def test_damaged_notes_of_an_earlier_glit_are_one_line(of_an_earlier_glit):
    (of_an_earlier_glit / "work" / "retries.json").write_text("{")
    with pytest.raises(UserError, match="retries.json: damaged .*restore it"):
        retry(str(of_an_earlier_glit), LocalExecutor(), quiet())
