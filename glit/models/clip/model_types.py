"""The kinds of models that are matched, trained or measured, by the files of their folders.

Importing this module loads no model library.
"""

from __future__ import annotations

from pathlib import Path

from glit.models.files import model_type

KINDS = {
    "clip": "CLIPModel",
    "metaclip_2": "MetaClip2Model",
    "siglip": "SiglipModel",
    "siglip2": "Siglip2Model",
}
"""By ``model_type`` of a checkpoint's config.json, the class of transformers."""


def is_siglip(folder: Path) -> bool:
    """Return whether a folder holds a SigLIP of either class, by its config.json."""
    return model_type(folder) in ("siglip", "siglip2")


def is_naflex(folder: Path) -> bool:
    """Return whether a folder holds a ``Siglip2Model``, whose images keep their aspect ratio."""
    return model_type(folder) == "siglip2"


def wants_lower_case(path: Path) -> bool:
    """Return whether texts have to be lower-cased before the folder's own tokenizer reads them.

    SigLIP 2 was trained on lower-case texts, and is published with Gemma's tokenizer, which keeps
    capitals.
    """
    said = path / "tokenizer_config.json"
    kind = said.read_text(encoding="utf-8") if said.is_file() else ""
    return '"GemmaTokenizer' in kind
