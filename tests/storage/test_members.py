"""Names that differ in Unicode's normal form alone."""

import unicodedata

import pytest

from glit.inputs.source import entries, find_source
from glit.inputs.user_tables import finder
from glit.storage.members import spelt_on_disk

NAMES = ("Müller.jpg", "Café – Zürich/が.jpg")


@pytest.mark.parametrize(("on_disk", "given"), [("NFD", "NFC"), ("NFC", "NFD"), ("NFC", "NFC")])
@pytest.mark.parametrize("name", NAMES)
def test_captions_and_lists_find_files_of_the_other_normal_form(tmp_path, on_disk, given, name):
    spelt = unicodedata.normalize(on_disk, name)
    (tmp_path / spelt).parent.mkdir(exist_ok=True)
    (tmp_path / spelt).write_bytes(b"x")
    asked = unicodedata.normalize(given, name)
    assert spelt_on_disk(tmp_path, asked) == spelt
    captions = tmp_path / "c.jsonl"
    for path in (asked, f"./{asked}", str(tmp_path / asked)):
        assert finder(captions, str(tmp_path), str(captions))(path) == spelt
    (tmp_path / "list.txt").write_text(asked, encoding="utf-8")
    found = list(entries(find_source(str(tmp_path / "list.txt"))))
    assert [(each.path, each.size) for each in found] == [(spelt, 1)]


def test_folder_and_file_may_be_of_different_forms(tmp_path):
    folder, file = unicodedata.normalize("NFD", "é"), unicodedata.normalize("NFC", "ü")
    (tmp_path / folder).mkdir()
    (tmp_path / folder / file).touch()
    assert spelt_on_disk(tmp_path, "é/ü") == f"{folder}/{file}"


def test_where_both_forms_are_there_each_is_itself(tmp_path):
    for form in ("NFC", "NFD"):
        (tmp_path / unicodedata.normalize(form, "é")).touch()
    for form in ("NFC", "NFD"):
        asked = unicodedata.normalize(form, "é")
        assert spelt_on_disk(tmp_path, asked) == asked
    assert spelt_on_disk(tmp_path, "ö") == "ö"
