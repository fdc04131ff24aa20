"""A dataset goes to a Hub and is read there."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
from building import tiny, tiny_clip
from PIL import Image
from small_hub import TOKEN, Repository

import glit
from glit.dataset import push as module
from glit.dataset.card import LICENCE_WARNING, shown_pictures
from glit.dataset.query import query
from glit.errors import InputError, StorageError, UserError
from glit.installation import install_command
from glit.storage.store import Store, to_json

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of its client
NAME, ADDRESS = "me/scenes", "hf://datasets/me/scenes"


@pytest.fixture
def licensed(built_copy) -> Path:
    """A dataset with a licence, and beside its files what is not to be uploaded."""
    card = built_copy / "README.md"
    card.write_text(card.read_text().replace("license: unknown", "license: cc-by-4.0"))
    (built_copy / "work").mkdir(exist_ok=True)
    for name in ("work/table", ".env", ".cache", "note.tmp-12345678"):
        (built_copy / name).write_text("private")
    return built_copy


def shipped(folder: Path) -> dict[str, bytes]:
    names = ["README.md", "croissant.json", "manifest.json"]
    names += json.loads((folder / "manifest.json").read_text())["files"]
    return {name: (folder / name).read_bytes() for name in names}


def without_attributes(found: Repository) -> dict[str, bytes]:
    return {name: data for name, data in found.files.items() if name != ".gitattributes"}


def take_pictures(there: dict[str, bytes]) -> list[bytes]:
    """Take away what the uploaded card has and the folder's has not."""
    pictures = [there.pop(f"pictures/{number}.jpg") for number in (1, 2, 3)]
    card = there["README.md"].decode()
    lines = shown_pictures(f"pictures/{number}.jpg" for number in (1, 2, 3))
    assert card.count(lines) == 1 and card.index(lines) < card.index("\n## ")
    there["README.md"] = card.replace(f"{lines}\n\n", "", 1).encode()
    croissant = json.loads(there["croissant.json"])
    assert croissant.pop("license") == "cc-by-4.0"
    there["croissant.json"] = to_json(croissant)
    return pictures


def test_the_hub_gets_the_folders_bytes_once(hub, licensed, run_glit):
    done = run_glit("push", licensed, NAME)
    assert (done.code, done.output) == (
        0,
        f"16 of 16 files uploaded: {hub.address}/datasets/{NAME} (public; glit reads {ADDRESS})\n",
    ), done.errors
    there = hub.repositories[NAME]
    files = without_attributes(there)
    for picture in take_pictures(files):
        assert Image.open(io.BytesIO(picture)).format == "JPEG"
    assert files == shipped(licensed)
    assert there.private is False and len(there.commits) == 1
    assert TOKEN not in done.output + done.errors
    again = run_glit("push", licensed, NAME, "--quiet")
    assert again.output.startswith("0 of 16 files uploaded") and not again.errors
    assert len(there.commits) == 1


def test_a_dataset_without_its_pictures_is_attached_from_the_hub(hub, licensed, scenes, tmp_path):
    pytest.importorskip("cv2")
    glit.push(licensed, NAME, images=False)
    there = hub.repositories[NAME].files
    assert "pictures.parquet" in there and b"license: cc-by-4.0" in there["README.md"]
    assert not any(b"\x89PNG\r\n" in data for data in there.values())
    assert glit.verify(ADDRESS) == []
    made = glit.attach(ADDRESS, [scenes / "images"], tmp_path / "whole")
    assert made.found == {"bytes": len(glit.open_dataset(licensed))}
    whole = glit.open_dataset(tmp_path / "whole").table().drop_columns(["attached"])
    assert whole.equals(glit.open_dataset(licensed).table())


@pytest.mark.slow
def test_a_dataset_is_read_on_the_hub(hub, licensed, run_glit, tmp_path):
    glit.push(licensed, NAME, private=True)
    assert hub.repositories[NAME].private is True
    here, there = glit.open_dataset(licensed), glit.open_dataset(ADDRESS)
    assert there.table().equals(here.table())
    assert there[3].image == here[3].image
    assert glit.verify(f"{ADDRESS}@main/") == []
    sql = "SELECT count(*), sum(width) FROM samples"
    assert query(ADDRESS, sql).fetchall() == query(str(licensed), sql).fetchall()
    assert glit.status(ADDRESS)["complete"] is True
    glit.export(ADDRESS, to="coco", output=tmp_path / "coco")
    assert any((tmp_path / "coco").iterdir())
    for words in (
        ("build", tmp_path, "-o", ADDRESS, "--recipe", "mini"),
        ("clean", ADDRESS),
        ("export", licensed, "--to", "coco", "-o", ADDRESS),
    ):
        done = run_glit(*words)
        assert done.code == 2 and done.errors.startswith(f"glit: {ADDRESS}: the Hub is only read")
        assert "glit push" in done.errors


def test_a_build_reads_images_and_captions_on_the_hub(hub, scenes, tmp_path):
    files = {f"images/{n:06d}.png": scenes / "images" / f"{n:06d}.png" for n in range(4)}
    files["captions.jsonl"] = scenes / "captions.jsonl"
    hub.repositories["me/photos"] = Repository(False, {n: p.read_bytes() for n, p in files.items()})
    for output, root in (
        (tmp_path / "there", "hf://datasets/me/photos"),
        (tmp_path / "here", scenes),
    ):
        glit.build(
            f"{root}/images", output, recipe="mini", captions=f"{root}/captions.jsonl",
            settings=tiny(), executor="local", quiet=True, limit=4,
        )  # fmt: skip
    here, there = glit.open_dataset(tmp_path / "here"), glit.open_dataset(tmp_path / "there")
    assert len(here) == 4 and there.table().equals(here.table())


def test_training_reads_the_hub(hub, licensed, tmp_path):
    glit.push(licensed, NAME)
    settings = [f"train.model={tiny_clip()}", "train.epochs=1", "train.batch_size=12"]
    runs = {}
    for name, dataset in (("here", licensed), ("there", ADDRESS)):
        glit.train(dataset, tmp_path / name, recipe="clip", settings=settings)
        runs[name] = (tmp_path / name / "last" / "model.safetensors").read_bytes()
    assert runs["here"] == runs["there"]
    assert not any(TOKEN.encode() in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


def test_images_are_listed_on_the_hub(hub):
    hub.repositories["me/photos"] = Repository(
        False, {"train/a/1.png": b"one", "train/2.png": b"two!", "README.md": b"-"}
    )
    images = Store("hf://datasets/me/photos/train")
    assert {(each.path, each.size) for each in images.walk()} == {("a/1.png", 3), ("2.png", 4)}
    assert all(each.stamp for each in images.walk())
    assert images.read("a/1.png") == b"one" and images.read_range("2.png", 1, 3) == b"wo"
    asked = [each for each in hub.requests if "/resolve/" in each]
    assert len(asked) == 2
    hub.repositories["me/photos"].files["train/3.png"] = b"new"
    assert "3.png" in Store("hf://datasets/me/photos/train").names()


def test_a_cut_upload_goes_on_where_it_was(hub, licensed, run_glit):
    hub.uploads_left = 1
    done = run_glit("push", licensed, NAME, "--quiet")
    assert (done.code, done.errors.count("\n")) == (1, 1)
    assert done.errors.startswith(f"glit: {ADDRESS}: the connection to the Hub failed (")
    assert done.errors.endswith("when that is fixed, run it again\n")
    assert len(hub.uploads) == 1 and "manifest.json" not in hub.repositories[NAME].files
    with pytest.raises(UserError, match="no dataset here"):
        glit.open_dataset(ADDRESS)
    hub.uploads_left = None
    assert run_glit("push", licensed, NAME).code == 0
    files = without_attributes(hub.repositories[NAME])
    take_pictures(files)
    assert files == shipped(licensed)
    assert len(hub.uploads) == len(set(hub.uploads)) > 10


def test_a_later_state_replaces_the_earlier(hub, licensed, monkeypatch):
    monkeypatch.setattr(module, "_FILES_A_COMMIT", 2)
    glit.push(licensed, NAME)
    repository = hub.repositories[NAME]
    assert len(repository.commits) == 8
    manifest = json.loads(repository.files["manifest.json"])
    stale = "data/train-a0001-00000-of-00001.parquet"
    repository.files[stale] = b"of an addition"
    done = glit.push(licensed, NAME)
    assert done.num_uploaded == 0 and stale not in repository.files
    assert json.loads(repository.files["manifest.json"]) == manifest
    for number in range(3):  # more than a commit holds, none of them the manifest
        (licensed / f"page-{number}.html").write_text("new")
    commits = len(repository.commits)
    assert glit.push(licensed, NAME).num_uploaded == 4
    assert len(repository.commits) == commits + 2
    assert json.loads(repository.files["manifest.json"]) == manifest
    repository.files["data/others.parquet"] = b"others"
    with pytest.raises(UserError, match=r"holds files of another dataset \(data/others.parquet\)"):
        glit.push(licensed, NAME)


def test_a_linked_data_folder_is_uploaded_whole(hub, licensed, tmp_path):
    elsewhere = (licensed / "data").rename(tmp_path / "disk")
    (licensed / "data").symlink_to(elsewhere)
    glit.push(licensed, NAME)
    assert glit.push(licensed, NAME).num_uploaded == 0
    there = hub.repositories[NAME].files
    assert {name for name in there if name.startswith("data/")} == {
        name for name in shipped(licensed) if name.startswith("data/")
    }
    assert glit.verify(ADDRESS) == []


def test_nothing_goes_before_the_rest_is_there(hub, licensed, monkeypatch):
    monkeypatch.setattr(module, "_FILES_A_COMMIT", 2)
    stale = "data/train-a0001-00000-of-00001.parquet"
    hub.repositories[NAME] = Repository(False, {stale: b"earlier", "manifest.json": b"{}"})
    hub.uploads_left = 3
    with pytest.raises(StorageError):
        glit.push(licensed, NAME)
    assert set(hub.repositories[NAME].files) == {stale, "manifest.json"}
    hub.uploads_left = None
    glit.push(licensed, NAME)
    assert stale not in hub.repositories[NAME].files


def test_files_of_others_with_the_same_names_stay(hub, licensed):
    name = "data/train-00000-of-00008.parquet"
    hub.repositories[NAME] = Repository(False, {name: b"theirs", "README.md": b"theirs"})
    with pytest.raises(UserError, match=f"holds files of another dataset .{name}"):
        glit.push(licensed, NAME)
    assert hub.repositories[NAME].files == {name: b"theirs", "README.md": b"theirs"}


def test_links_out_of_the_folder_are_not_followed(hub, licensed, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (licensed / "notes.txt").symlink_to(tmp_path / "secret")
    glit.push(licensed, NAME)
    assert "notes.txt" not in hub.repositories[NAME].files
    card = (licensed / "README.md").rename(tmp_path / "card")
    (licensed / "README.md").symlink_to(card)
    with pytest.raises(InputError, match="a link out of the dataset"):
        glit.push(licensed, NAME)


def test_the_uploaded_card_names_the_licence(hub, built_copy, run_glit):
    before = (built_copy / "README.md").read_text()
    done = run_glit("push", built_copy, NAME)
    assert done.code == 2 and "names no licence" in done.errors and "--license" in done.errors
    assert not hub.requests
    for wrong in ("unknown", "CC BY", ""):
        assert run_glit("push", built_copy, NAME, "--license", wrong).code == 2
    assert run_glit("push", built_copy, NAME, "--license", "cc-by-4.0").code == 0
    card = hub.repositories[NAME].files["README.md"].decode()
    assert card.startswith("---\nlicense: cc-by-4.0\npretty_name:")
    assert card.count("license:") == 1 and LICENCE_WARNING not in card
    assert (built_copy / "README.md").read_text() == before
    lines = shown_pictures(f"pictures/{number}.jpg" for number in (1, 2, 3))
    assert card.partition("\n---\n")[2].replace(f"{lines}\n\n", "") in before.replace(
        LICENCE_WARNING + "\n\n", ""
    )


@pytest.mark.slow
def test_no_picture_of_a_dataset_that_keeps_its_images_to_itself(hub, scenes, tmp_path):
    glit.build(
        scenes / "images", tmp_path / "out", recipe="mini", executor="local", quiet=True, limit=2,
        captions=scenes / "captions.jsonl", settings=["pack.image_store=path"],
    )  # fmt: skip
    glit.push(tmp_path / "out", NAME, licence="mit")
    files = hub.repositories[NAME].files
    assert not [name for name in files if name.startswith("pictures/")]
    assert b"pictures/" not in files["README.md"]


def test_a_licence_of_ones_own_has_a_name_and_a_link(tmp_path):
    card = tmp_path / "README.md"
    card.write_text("---\nlicense: other\n---\nHere.\n")
    for licence in ("", "other"):
        with pytest.raises((InputError, UserError), match="license_name and license_link"):
            module._card(card, licence)
    card.write_text(
        "---\nlicense: other\nlicense_name: our-own\nlicense_link: LICENSE\n---\nHere.\n"
    )
    text, named = module._card(card, "")
    assert "our-own" in text and named == "LICENSE"


def test_a_card_with_several_licences_or_none_to_change(tmp_path):
    card = tmp_path / "README.md"
    card.write_text("---\nlicense:\n- mit\n- unknown\ntags: []\n---\nlicense: here\n")
    assert module._card(card, "")[0].startswith("---\nlicense:\n- mit")
    assert module._card(card, "mit")[0] == "---\nlicense: mit\ntags: []\n---\nlicense: here\n"
    card.write_text("no header\n")
    for licence in ("", "mit"):
        with pytest.raises(InputError, match=str(card)):
            module._card(card, licence)


@pytest.mark.parametrize(
    ("token", "name", "said"),
    [
        ("", NAME, "no access token"),
        ("hf_wrongtoken", NAME, "the Hub does not accept the access token"),
        ("hf_readonly", NAME, "does not have the right to this"),
        (TOKEN, "others/scenes", "does not have the right to this"),
        (TOKEN, "scenes", "want OWNER/NAME"),
        (TOKEN, "a/b/c", "want OWNER/NAME"),
        (TOKEN, "me/not good", "want OWNER/NAME"),
    ],
)
def test_who_may_not_upload_is_told_in_one_line(
    hub, licensed, run_glit, monkeypatch, token, name, said
):
    hub.tokens["hf_readonly"] = "read"
    hub.repositories["others/scenes"] = Repository(False, {})
    monkeypatch.setenv("HF_TOKEN", token)
    done = run_glit("push", licensed, name, "--quiet")
    assert done.code in (1, 2) and done.errors.count("\n") == 1 and said in done.errors
    assert not token or token not in done.output + done.errors
    assert not any(each.files for each in hub.repositories.values())


def test_the_extra_is_named(licensed, run_glit, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    done = run_glit("push", licensed, NAME)
    assert done.code == 2 and done.errors.endswith(f"{install_command('models')}\n")


def test_offline_or_without_a_hub(hub, licensed, run_glit, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    done = run_glit("push", licensed, NAME, "--quiet")
    assert done.code == 1 and "the connection to the Hub failed (ConnectError)" in done.errors
    with pytest.raises(StorageError, match="the connection to the Hub failed"):
        glit.open_dataset(ADDRESS)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set" in run_glit("push", licensed, NAME).errors


def test_what_cannot_be_read_is_told_in_one_line(hub, run_glit, monkeypatch):
    with pytest.raises(UserError, match="no such repository or revision"):
        glit.open_dataset(ADDRESS)
    hub.repositories[NAME] = Repository(True, {"README.md": b"-"})
    with pytest.raises(UserError, match="no such repository or revision"):
        glit.open_dataset(f"{ADDRESS}@v2")
    with pytest.raises(UserError, match="want hf://datasets/OWNER/NAME"):
        glit.open_dataset("hf://datasets")
    monkeypatch.setenv("HF_TOKEN", "hf_wrongtoken")
    done = run_glit("verify", ADDRESS)
    assert done.code == 1 and "the Hub does not accept the access token" in done.errors
    assert done.errors.count("\n") == 1 and "hf_wrong" not in done.errors


def test_only_a_whole_and_finished_dataset_is_uploaded(hub, licensed, run_glit, tmp_path):
    (tmp_path / "unfinished" / "work").mkdir(parents=True)
    assert "the build is not finished" in run_glit("push", tmp_path / "unfinished", NAME).errors
    assert "want the folder" in run_glit("push", "s3://bucket/x", NAME).errors
    data = next((licensed / "data").glob("*.parquet"))
    whole = data.read_bytes()
    data.write_bytes(whole[:-1] + b"x")
    done = run_glit("push", licensed, NAME, "--quiet")
    assert done.code == 1 and "not uploaded, as it is damaged: data/" in done.errors
    data.write_bytes(whole)
    shutil.copy(data, data.with_name("train-a0001-00000-of-00001.parquet"))
    assert "not in the manifest" in run_glit("push", licensed, NAME, "--quiet").errors
    assert not hub.requests


def test_a_public_repository_does_not_take_what_is_private(hub, licensed, run_glit):
    hub.repositories[NAME] = Repository(False, {})
    done = run_glit("push", licensed, NAME, "--private", "--quiet")
    assert done.code == 2 and "exists and is public; nothing was uploaded" in done.errors
    assert not hub.uploads and not hub.repositories[NAME].files
