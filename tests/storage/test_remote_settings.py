"""Settings of object stores' clients: glit's, and before them the user's."""

from __future__ import annotations

import json
import logging

import pytest
from fsspec import config

from glit.storage import remote_settings
from glit.storage.remote import open_remote
from glit.storage.remote_settings import SILENT_S, set_by_program, set_here, settings


def test_a_user_who_sets_one_thing_keeps_the_rest(monkeypatch):
    before = settings("s3")
    monkeypatch.setitem(config.conf, "s3", {"config_kwargs": {"read_timeout": 5}, "anon": True})
    now = settings("s3")
    assert now.pop("anon") is True
    assert now["config_kwargs"].pop("read_timeout") == 5
    assert before["config_kwargs"].pop("read_timeout") == SILENT_S
    assert now == before and now["config_kwargs"]["retries"]["total_max_attempts"] == 4
    assert settings("s3")["config_kwargs"]["read_timeout"] == 5


def test_the_number_of_attempts_that_a_user_sets_is_the_one_that_counts(monkeypatch):
    mine = {"config_kwargs": {"retries": {"max_attempts": 9}}}
    monkeypatch.setitem(config.conf, "s3", mine)
    assert settings("s3")["config_kwargs"]["retries"] == {"mode": "standard", "max_attempts": 9}


def test_the_number_of_attempts_in_the_environment_is_the_one_that_counts(monkeypatch, s3):
    monkeypatch.setitem(config.conf, "s3", {})
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    fs, _ = open_remote(s3.url("x"))
    fs.connect()
    assert fs.s3.meta.config.retries == {"mode": "standard", "total_max_attempts": 7}


@pytest.mark.parametrize(("set_for", "asked_for"), [("gcs", "gs"), ("abfs", "az"), ("s3a", "s3")])
def test_other_names_of_a_store_count_too(monkeypatch, set_for, asked_for):
    monkeypatch.setitem(config.conf, set_for, {"version_aware": True})
    assert settings(asked_for)["version_aware"] is True
    monkeypatch.setitem(config.conf, asked_for, {"version_aware": False})
    assert settings(asked_for)["version_aware"] is False


def test_what_is_set_reaches_the_client(monkeypatch, s3):
    monkeypatch.setitem(config.conf, "s3", {"config_kwargs": {"read_timeout": 7}})
    fs, _ = open_remote(s3.url("x"))
    fs.connect()
    found = fs.s3.meta.config
    assert (found.read_timeout, found.connect_timeout) == (7, remote_settings.CONNECT_S)
    assert found.retries["total_max_attempts"] == 4


def test_no_answer_is_waited_for_for_ever():
    timeout = settings("gcs")["requests_timeout"]
    assert (timeout.total, timeout.sock_read) == (None, SILENT_S)


def test_only_what_a_program_set_travels(monkeypatch, tmp_path):
    """Files and environment every machine reads for itself, and they may be others there."""
    file = {"s3": {"key": "of the file", "anon": False}, "gs": {"token": "/here.json"}}
    (tmp_path / "conf.json").write_text(json.dumps(file))
    monkeypatch.setattr(config, "conf_dir", str(tmp_path))
    monkeypatch.setenv("FSSPEC_S3_PROFILE", "me")
    known = {"s3": {**file["s3"], "profile": "me"}, "gs": file["gs"]}
    monkeypatch.setattr(config, "conf", known)
    assert set_by_program() == {}
    known["s3"]["key"] = "of the program"
    known["az"] = {"anon": True}
    changed = {"s3": {"key": "of the program"}, "az": {"anon": True}}
    assert set_by_program() == changed
    there = {"s3": {"profile": "you"}}
    monkeypatch.setattr(config, "conf", there)
    set_here(changed)
    assert there == {"s3": {"profile": "you", "key": "of the program"}, "az": {"anon": True}}


def test_what_clients_log_reaches_handlers_but_not_standard_error(s3, capsys, caplog):
    open_remote(s3.url("x"))
    logging.getLogger("gcsfs").error("out of retries")
    assert [record.message for record in caplog.records] == ["out of retries"]
    caplog.clear()
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        logging.getLogger("gcsfs").error("out of retries")
    finally:
        root.handlers = before
    assert capsys.readouterr().err == ""
