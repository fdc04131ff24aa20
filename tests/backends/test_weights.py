import shutil

import pytest

from glit.backends.weights import is_here, manifest, resolve, weights_hash
from glit.errors import WeightsError
from glit.resources import mini_model


def test_the_mini_pack_resolves_with_a_hash_and_no_path_in_its_identity():
    found = resolve("mini-matcher")
    assert len(found.sha256) == 64 and found.licence == "Apache-2.0"
    assert found.identity() == {
        "name": "mini-matcher", "revision": found.revision,
        "sha256": found.sha256, "licence": "Apache-2.0",
    }  # fmt: skip
    assert is_here("mini-matcher") and not is_here("llava-next-7b")


def test_every_manifest_entry_says_where_and_under_which_licence():
    for name, entry in manifest().items():
        assert {"licence", "revision"} <= entry.keys(), name
        assert ("id" in entry) != ("mini" in entry), name


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(mini_model("proposer"), tmp_path / "model")


def test_a_folder_resolves_and_its_hash_follows_the_weights(copy):
    before = resolve(str(copy)).sha256
    assert before == weights_hash(mini_model("proposer"))
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    assert resolve(str(copy)).sha256 != before


def test_half_a_download_is_refused(copy):
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(WeightsError, match="damaged or half downloaded"):
        resolve(str(copy))


def test_missing_shards_are_counted(copy):
    (copy / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}'
    )
    with pytest.raises(WeightsError, match="1 of 2 weight files are missing"):
        resolve(str(copy))


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors"])
def test_a_folder_without_its_parts(copy, gone):
    (copy / gone).unlink()
    with pytest.raises(WeightsError, match="download"):
        resolve(str(copy))


def test_an_unknown_name_says_what_to_do():
    with pytest.raises(
        WeightsError, match="did you mean 'mini-matcher'.*download it on a connected"
    ):
        resolve("mini-macher")


def test_the_hash_follows_the_tokenizer_and_the_preprocessor(tmp_path):
    copy = shutil.copytree(mini_model("matcher"), tmp_path / "model")
    seen = {weights_hash(copy)}
    for name in ("tokenizer.json", "preprocessor_config.json"):
        with (copy / name).open("a") as file:
            file.write(" ")
        seen.add(weights_hash(copy))
    assert len(seen) == 3


def test_a_half_downloaded_index(copy):
    (copy / "model.safetensors.index.json").write_text('{"weight_map": {"a"')
    with pytest.raises(WeightsError, match="damaged or half downloaded"):
        resolve(str(copy))
