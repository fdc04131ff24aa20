"""The state of a build: read back as it was written; one of an earlier glit is refused."""

from __future__ import annotations

import json

import pytest
from building import data_bytes, quiet, run_build

from glit.errors import UserError
from glit.pipeline.add import add
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.status import status
from glit.pipeline.work.state import (
    BuildState,
    Published,
    Retry,
    SourceNames,
    TriedSettings,
    known_state,
    read_state,
    write_state,
)
from glit.storage.store import Store


def a_state() -> BuildState:
    return BuildState(
        images="/in", captions=None, recipe={"name": "mini"}, folders={"ingest": "ingest-0f"},
        source=SourceNames(pattern="", list_file=""), num_chunks=3, versions=(("glit", "1"),),
        published=(Published(images="a", content="b"),),
        retry=Retry(stage="caption", settings=("caption.prompt=x",)),
        retries=(TriedSettings(told={"settings": {}}, folders={"caption": "caption-0f"}),),
    )  # fmt: skip


def test_it_comes_back(tmp_path):
    state, store = a_state(), Store(tmp_path)
    write_state(store, state)
    assert read_state(store) == state == known_state(store)
    (tmp_path / "state.json").write_text("{")
    assert known_state(store) == state, "from its copy"


def test_a_flipped_bit_is_not_believed(tmp_path):
    """Wherever it is: a build goes on from the copy, the others say that it is damaged."""
    store = Store(tmp_path)
    write_state(store, a_state())
    whole, data = read_state(store), store.read("state.json")
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        (tmp_path / "state.json").write_bytes(flipped)
        assert known_state(store) == whole
        with pytest.raises(UserError, match=r"state.json: (damaged|not valid JSON).* glit build"):
            read_state(store)


@pytest.fixture
def of_an_earlier_glit(built_copy):
    """A work folder with the notes of version 1; a finished dataset of this recipe."""
    work = built_copy / "work"
    state = json.loads((work / "state.json").read_text())
    (work / "state.copy.json").unlink()
    for key in ("sha256", "version", "versions", "published", "retry", "retries"):
        del state[key]
    (work / "state.json").write_text(json.dumps(state))
    return built_copy


@pytest.mark.parametrize("command", ["build", "build --replace", "retry", "add", "status"])
def test_a_work_folder_of_an_earlier_glit_is_refused(of_an_earlier_glit, scenes, command):
    """It tells in other files what its dataset was made of, and by which settings."""
    before = data_bytes(of_an_earlier_glit)
    with pytest.raises(UserError, match=r"work: was made by another version of glit, whose notes"):
        if command.startswith("build"):
            arguments = {"captions": scenes / "captions.jsonl", "replace": "replace" in command}
            run_build(scenes / "images", of_an_earlier_glit, **arguments)
        elif command == "status":
            status(str(of_an_earlier_glit))
        else:
            {"retry": retry, "add": add}[command](str(of_an_earlier_glit), LocalExecutor(), quiet())
    assert data_bytes(of_an_earlier_glit) == before
