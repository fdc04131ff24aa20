"""Model folders: what they say of images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glit.clip.folder import CLIP_MEAN, Preprocessing, read_preprocessing

THIRD = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "do_center_crop": False}


def test_preprocessing_of_a_folder(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no preprocessor_config.json says how"):
        assert read_preprocessing(tmp_path) == Preprocessing()
    wanted = Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), fit="resize")
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": THIRD}))
    assert read_preprocessing(tmp_path) == wanted
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"do_center_crop": True}))
    assert read_preprocessing(tmp_path) == Preprocessing(mean=CLIP_MEAN, fit="centre-crop")
