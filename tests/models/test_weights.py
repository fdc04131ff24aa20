import hashlib
import os
import re
import shutil
from types import SimpleNamespace

import httpx
import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import CLIPModel

from glit.cli.options import go_offline
from glit.errors import MissingModelError, RecipeError, WeightsError
from glit.models import weights
from glit.models.files import file_hash, weight_files, weights_hash
from glit.models.pretrained import load_whole
from glit.models.weights import LOCAL, Resolved, is_here, manifest, resolve, stated_licence
from glit.recipes.resources import mini_model
from glit.stages.caption import CaptionConfig

COMMIT = "0123456789abcdef0123456789abcdef01234567"


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
        assert entry.licence, name
        assert sum(map(bool, (entry.mini, entry.inside, entry.id))) == 1, name
        assert bool(entry.num_bytes) == (not entry.mini and not entry.inside), name
        assert re.fullmatch("([0-9a-f]{64})?", entry.sha256), name
        if entry.id:
            assert re.fullmatch("main|[0-9a-f]{40}", entry.revision), name


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


def test_an_unknown_name_is_not_sent_to_the_hub_but_mended():
    with pytest.raises(MissingModelError, match="did you mean 'mini-matcher'") as caught:
        resolve("mini-macher")
    assert caught.value.fetch == ""


def test_a_known_name_gets_its_command_and_no_suggestion_of_itself():
    for name in ("llava-next-7b", "llava-hf/llava-v1.6-mistral-7b-hf"):
        with pytest.raises(MissingModelError) as caught:
            resolve(name)
        assert "did you mean" not in str(caught.value)
        assert caught.value.fetch == (
            f"hf download llava-hf/llava-v1.6-mistral-7b-hf --revision {manifest()['llava-next-7b'].revision}"
        )


def test_a_hub_id_that_nobody_knows_gets_its_command():
    with pytest.raises(MissingModelError) as caught:
        resolve("somebody/some-clip", "v2")
    assert caught.value.fetch == "hf download somebody/some-clip --revision v2"


@pytest.mark.parametrize("name", ["weights/mine.pth", "/nowhere/model", "./model", "a/b/c"])
def test_what_was_meant_as_a_path_is_not_looked_for_on_the_hub(name):
    with pytest.raises(MissingModelError, match="no such file or folder$"):
        resolve(name)


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


def test_a_file_by_its_path_goes_by_its_content_not_by_where_it_lies(tmp_path):
    found = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.pth").write_bytes(b"own weights")
        found.append(resolve(str(tmp_path / folder / f"{folder}.pth")))
    assert found[0].sha256 == found[1].sha256 == hashlib.sha256(b"own weights").hexdigest()
    assert found[0].identity()["name"] == "a.pth"


# -- the hub's cache -------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """``hub(id, source)`` puts a folder into an empty Hugging Face cache as commit COMMIT."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(hub_id, source):
        repo = tmp_path / "hub" / f"models--{hub_id.replace('/', '--')}"
        snapshot = shutil.copytree(source, repo / "snapshots" / COMMIT)
        (repo / "refs").mkdir()
        (repo / "refs" / "main").write_text(COMMIT)
        return snapshot

    return put


def test_a_cached_model_is_known_by_its_commit(hub):
    snapshot = hub("somebody/detector", mini_model("proposer"))
    found = resolve("somebody/detector")
    assert (found.revision, found.path) == (COMMIT, snapshot)


def test_a_pin_takes_its_commit_and_no_other(hub):
    hub("hustvl/yolos-tiny", mini_model("proposer"))
    with pytest.raises(MissingModelError, match=manifest()["yolos-tiny"].revision):
        resolve("yolos-tiny")
    assert resolve("yolos-tiny", COMMIT).revision == COMMIT


def test_half_a_model_in_the_cache_is_no_missing_one(hub):
    snapshot = hub("somebody/detector", mini_model("proposer"))
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="has a config.json but no"):
        resolve("somebody/detector")


@pytest.fixture
def pickled(tmp_path):
    """The mini matcher as publishers without safetensors give it."""
    import torch
    from safetensors.torch import load_file

    folder = shutil.copytree(mini_model("matcher"), tmp_path / "pickled")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    os.remove(folder / "model.safetensors")
    return folder


def test_a_pickle_counts_only_where_the_manifest_names_it(hub, pickled, tmp_path, monkeypatch):
    with pytest.raises(WeightsError, match="pickles are not loaded from folders"):
        resolve(str(pickled))
    hub("somebody/clip", pickled)
    with pytest.raises(WeightsError, match="pickles are not loaded from folders"):
        resolve("somebody/clip")
    listed = tmp_path / "weights.toml"
    monkeypatch.setattr(weights, "weights_manifest", lambda: listed)
    digest = hashlib.sha256((pickled / "pytorch_model.bin").read_bytes()).hexdigest()
    entry = f'[some-clip]\nid = "somebody/clip"\nlicence = "MIT"\nrevision = "{COMMIT}"\n'
    listed.write_text(entry + f'sha256 = "{digest}"\n')
    for name in ("some-clip", "somebody/clip"):
        found = resolve(name)
        assert [file.name for file in weight_files(found.path)] == ["pytorch_model.bin"]
        assert found.licence == "MIT"
    listed.write_text(entry + f'sha256 = "{"0" * 64}"\n')
    with pytest.raises(WeightsError, match="pytorch_model.bin is not the published file"):
        resolve("some-clip")


def test_a_pickled_clip_embeds_as_its_safetensors_do(pickled):
    import numpy as np
    import torch

    from glit.models.backends.matchers import MATCHERS
    from glit.models.clip.kinds import open_model
    from glit.models.weights import Resolved
    from glit.stages.score import ScoreConfig

    found = [
        MATCHERS["clip"]
        .make(ScoreConfig(device="cpu"), Resolved(name="m", path=path, revision="", sha256=""))
        .embed_sentences(["A red square."])
        for path in (pickled, mini_model("matcher"))
    ]
    np.testing.assert_array_equal(*found)
    ours, theirs = (open_model(path).state_dict() for path in (pickled, mini_model("matcher")))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch, tmp_path):
    asked = []

    def nobody(address, **options):
        asked.append((address, options["timeout"]))
        raise httpx.ConnectError("no route")

    weights._answers.cache_clear()
    monkeypatch.setattr(httpx, "head", nobody)
    _go_online(monkeypatch)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _not_in_the_cache)
    for name in ("org/one", "org/two"):
        with pytest.raises(MissingModelError, match="hub did not answer.*hf download org/"):
            resolve(name)
    weights._answers.cache_clear()
    assert asked == [(huggingface_hub.constants.ENDPOINT, 2.0)]


def _go_online(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_offline_the_error_names_the_command_and_nobody_is_asked(monkeypatch):
    _go_online(monkeypatch)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    go_offline(True)
    monkeypatch.setattr(weights, "_answers", lambda address: pytest.fail("asked the hub"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _not_in_the_cache)
    with pytest.raises(MissingModelError) as caught:
        resolve("yolos-tiny")
    said = str(caught.value)
    assert "HF_HUB_OFFLINE forbids a download; get it on a connected machine with: hf d" in said


@pytest.mark.parametrize(
    ("name", "size"), [("yolos-tiny", "about 26 MB"), ("org/other", "about 3 MB")]
)
def test_before_a_download_its_name_and_size_are_said(monkeypatch, capfd, tmp_path, name, size):
    _go_online(monkeypatch)
    files = {"model.safetensors": 2_900_000, "config.json": 100_000, "pytorch_model.bin": 9**9}
    siblings = [SimpleNamespace(rfilename=each, size=files[each]) for each in files]
    info = SimpleNamespace(model_info=lambda *words, **how: SimpleNamespace(siblings=siblings))

    def download(hub_id, **how):
        if how.get("local_files_only"):
            raise huggingface_hub.errors.LocalEntryNotFoundError("not here")
        said = capfd.readouterr().err
        assert said.startswith(f"glit: downloading {hub_id} ({size}) from the Hugging Face Hub;")
        return str(shutil.copytree(mini_model("proposer"), tmp_path / "got"))

    monkeypatch.setattr(weights, "_answers", lambda address: True)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve(name).path == tmp_path / "got"


def _not_in_the_cache(*words, local_files_only=False, **options):
    assert local_files_only, "asked a hub that does not answer"
    raise huggingface_hub.errors.LocalEntryNotFoundError("not here")


@pytest.mark.parametrize("name", ["nosuchmodel", "runs/clip"])
def test_a_mistyped_model_is_not_to_be_fetched(monkeypatch, tmp_path, name):
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _not_in_the_cache)
    monkeypatch.setattr(weights, "_answers", lambda address: False)
    _go_online(monkeypatch)
    with pytest.raises(MissingModelError, match="no such folder, and no model") as said:
        resolve(name)
    assert "hf download" not in str(said.value)
    with pytest.raises(MissingModelError, match="has best and last in it") as said:
        resolve("gone/best")
    assert "hf download" not in str(said.value)


def test_the_licence_that_a_checkpoint_or_a_card_states_is_described_and_no_identity(tmp_path):
    checkpoint, folder = tmp_path / "own.pt", tmp_path / "model"
    torch.save({"license": "AGPL-3.0 License (https://ultralytics.com/license)"}, checkpoint)
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\ntags: [x]\n---\n# A model\n")
    assert stated_licence(checkpoint) == "AGPL-3.0"
    assert stated_licence(folder) == "cc-by-4.0"
    assert stated_licence(tmp_path) == stated_licence(tmp_path / "none.pt") == ""
    found = Resolved(name="own.pt", path=checkpoint, revision=LOCAL, sha256="0")
    assert found.identity()["licence"] == ""
    assert found.described()["licence"] == "AGPL-3.0"


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_no_mini_model(name):
    with pytest.raises(WeightsError, match="a model's name is empty; is a variable"):
        resolve(name)
    assert not weights.is_mini(name)
    with pytest.raises(RecipeError, match=r"\[caption\] model: is empty; is a variable"):
        CaptionConfig(model=name)


@pytest.mark.parametrize("kept", ["", "0" * 63, "x" * 64, "\ufffd"])
def test_a_remembered_hash_that_is_none_is_not_believed(tmp_path, monkeypatch, kept):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "w.bin"
    file.write_bytes(b"weights")
    wanted = hashlib.sha256(b"weights").hexdigest()
    assert file_hash(file) == wanted
    (remembered,) = (tmp_path / "cache" / "glit" / "sha256").iterdir()
    remembered.write_text(kept, encoding="utf-8")
    assert (file_hash(file), remembered.read_text()) == (wanted, wanted)


def test_further_chat_templates_are_part_of_a_model(copy):
    before = resolve(str(copy)).sha256
    (copy / "additional_chat_templates").mkdir()
    template = copy / "additional_chat_templates" / "default.jinja"
    found = [before]
    for text in ("one", "two"):
        template.write_text(text)
        found.append(resolve(str(copy)).sha256)
    assert len({*found}) == 3


def test_an_adapter_is_named_and_a_wrapped_model_is_found(tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "org/clip"}')
    with pytest.raises(WeightsError, match="is a PEFT adapter of org/clip, no whole model"):
        resolve(str(adapter))
    wrapped = tmp_path / "wrapped"
    shutil.copytree(mini_model("matcher"), wrapped / "0_CLIPModel")
    (wrapped / "modules.json").write_text("[]")
    found = resolve(str(wrapped))
    assert (found.path.name, found.sha256) == ("0_CLIPModel", resolve("mini-matcher").sha256)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_scale_that_is_a_list_of_one_is_read(tmp_path, capfd, shape):
    folder = shutil.copytree(mini_model("matcher"), tmp_path / "m")
    values = load_file(folder / "model.safetensors")
    scale = values["logit_scale"]
    save_file({**values, "logit_scale": scale.reshape(shape)}, folder / "model.safetensors")
    model = load_whole(CLIPModel, folder)
    assert model.logit_scale.shape == () and model.logit_scale.item() == scale.item()
    assert "MISMATCH" not in "".join(capfd.readouterr())
    save_file({**values, "logit_scale": torch.ones(2)}, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"logit_scale has the shape \[2\], a CLIPModel"):
        load_whole(CLIPModel, folder)
