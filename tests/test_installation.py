"""The command that installs extras fits the way in which glit was installed."""

from __future__ import annotations

import importlib.util
import json
from importlib import metadata
from types import SimpleNamespace

import pytest

from glit import installation
from glit.cli import cli
from glit.errors import MissingExtraError, MissingPackage
from glit.installation import install_command, other_program

WHEEL = "glit_datasets-0.1.0-py3-none-any.whl"


@pytest.fixture
def installed(monkeypatch):
    """Pretends that these distributions are installed, and that glit runs from none of a checkout."""

    def pretend(*, url: str | None = None, program: str = "", **more) -> None:
        known = {"glit-datasets": distribution("0.1.0", "glit.cli.main:main", url, more)}
        if program:
            known["glit"] = distribution("0.21", program, None, {})

        def find(name):
            if name not in known:
                raise metadata.PackageNotFoundError(name)
            return known[name]

        monkeypatch.setattr(metadata, "distribution", find)
        monkeypatch.setattr(installation, "checkout", lambda: None)
        installation._distribution.cache_clear()

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    yield pretend
    installation._distribution.cache_clear()


def distribution(version, program, url, more):
    text = None if url is None else json.dumps({"url": url, **more})
    entry = SimpleNamespace(value=program)
    return SimpleNamespace(
        version=version, entry_points=[entry], requires=[], read_text=lambda name: text
    )


def test_from_the_index(installed):
    installed()
    assert install_command("models", "ray") == "pip install 'glit-datasets[models,ray]'"
    assert install_command() == "pip install glit-datasets"


def test_from_a_wheel_as_long_as_it_is_there(installed, tmp_path):
    wheel = tmp_path / WHEEL
    wheel.touch()
    installed(url=wheel.as_uri())
    assert install_command("ray") == f"pip install 'glit-datasets[ray] @ {wheel.as_uri()}'"
    wheel.unlink()
    assert install_command("ray") == "pip install 'glit-datasets[ray]'"


def test_from_a_repository(installed):
    installed(url="https://host/glit.git", vcs_info={"vcs": "git", "commit_id": "abc"})
    assert install_command("yolo") == (
        "pip install 'glit-datasets[yolo] @ git+https://host/glit.git@abc'"
    )


def test_from_a_checkout(monkeypatch, tmp_path):
    root = installation.checkout()
    assert root is not None and (root / "pyproject.toml").exists()
    monkeypatch.chdir(root)
    assert install_command("lora") == "pip install -e '.[lora]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("lora") == f"pip install -e '{root}[lora]'"


def test_an_environment_of_uv_has_no_pip(installed, monkeypatch):
    installed()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(installation.sys, "prefix", "/env")
    monkeypatch.setattr(installation.sys, "executable", "/env/bin/python")
    monkeypatch.setenv("VIRTUAL_ENV", "/env")
    assert install_command("ray") == "uv pip install 'glit-datasets[ray]'"
    monkeypatch.delenv("VIRTUAL_ENV")
    assert install_command("ray") == (
        "uv pip install --python /env/bin/python 'glit-datasets[ray]'"
    )


def test_another_program_of_the_name_is_told(installed):
    installed()
    assert other_program() == ""
    installed(program="glit.cli.main:main")  # an earlier copy of this one
    assert other_program() == ""
    installed(program="glit.cli:main")
    assert other_program() == (
        "glit 0.21, which is installed too, is another program and overwrites files of "
        "glit-datasets; run: pip uninstall glit && "
        "pip install --force-reinstall --no-deps glit-datasets"
    )
    with pytest.raises(SystemExit) as caught:
        cli()
    assert caught.value.code == f"glit: {other_program()}"
    missing = MissingPackage(package="ray", extra="ray", needed_for="--executor ray")
    assert other_program() in str(MissingExtraError(missing))
