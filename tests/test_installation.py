"""The command that installs extras names the distribution, or the checkout that glit runs from."""

from __future__ import annotations

import tomllib

from glit import installation
from glit.installation import DISTRIBUTION, install_command


def test_from_the_index(monkeypatch, tmp_path):
    monkeypatch.setattr(installation, "_ROOT", tmp_path)
    assert install_command("models", "ray", "models") == "pip install 'glit-datasets[models,ray]'"
    models = "pip install ./glit/mini (in a checkout of glit)"
    assert install_command("mini") == models
    assert install_command("models", "mini") == f"pip install 'glit-datasets[models]' && {models}"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "of-somebody-else"\n')
    assert install_command("ray") == "pip install 'glit-datasets[ray]'"


def test_from_a_checkout(monkeypatch, tmp_path):
    root = installation._ROOT
    assert tomllib.loads((root / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION
    monkeypatch.chdir(root)
    assert install_command("lora") == "pip install -e '.[lora]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("lora") == f"pip install -e '{root}[lora]'"
