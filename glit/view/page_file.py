"""Assemble one self-contained HTML file from templates, styles, scripts and data.

Everything that is not glit's own goes in as JSON, in which no character is left that HTML reads,
and the scripts put it on the page as text. The page's policy lets run only the script that was
hashed here, and loads nothing from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parent / "page"
_STYLES = ("page.css", "card.css", "learning.css", "print.css")
_SCRIPTS = (
    "dom.js", "story.js", "charts.js", "heatmap.js", "maps.js", "card.js", "embedding.js",
    "tags.js", "where.js", "gallery.js", "compare.js", "explain.js", "learning.js", "main.js",
)  # fmt: skip
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def report_html(data: dict[str, Any]) -> str:
    """Assemble the complete page.

    Args:
        data: what the scripts show; see :func:`glit.view.report.report_data`.
    """
    further = ("quality",) if "quality" in data else ()
    return page_html(json_for_html(data), images="data:", connect="'none'", further=further)


def page_html(
    data: str,
    *,
    images: str,
    connect: str,
    further: Sequence[str] = (),
    of_dataset: bool = True,
) -> str:
    """The page with its content security policy.

    Args:
        data: safe JSON.
        images: where images may come from.
        connect: what the script may ask.
        further: styles and scripts that only this page has, by the name of both files.
        of_dataset: with all that pages of datasets and runs share; else with the least of it.
    """
    styles, scripts = (_STYLES, _SCRIPTS) if of_dataset else (_STYLES[:1], _SCRIPTS[:1])
    style = "\n".join(_read(name) for name in (*styles, *(f"{each}.css" for each in further)))
    scripts = "\n".join(_read(name) for name in (*scripts, *(f"{each}.js" for each in further)))
    script = f"(() => {{\n'use strict';\n{scripts}\n}})();"
    policy = (
        f"default-src 'none'; img-src {images}; connect-src {connect}; "
        f"style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    html = _read("page.html")
    for mark, text in (("POLICY", policy), ("STYLE", style), ("SCRIPT", script), ("DATA", data)):
        before, found, after = html.partition(f"{{{{{mark}}}}}")
        assert found, mark
        html = before + text + after
    return html


def json_for_html(data: Any) -> str:
    """JSON that can stand inside a script element: no ``<``, ``>``, ``&`` or line separator.

    >>> json_for_html({"a": "</script>"})
    '{"a":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_UNSAFE).encode("utf-8", "replace").decode()


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").rstrip("\n")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
