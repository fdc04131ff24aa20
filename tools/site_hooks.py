"""What mkdocs calls for every page: the changelog, and tables that can be read aloud."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"
EMPTY_HEADING = re.compile(r"<th([^>]*)></th>")
PLACE = re.compile(r"^\[All changes\]\(\.\./CHANGELOG\.md\)\.$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the changelog in the place of a page's link to it."""
    return PLACE.sub(lambda _: _changes(), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Make a table's corner without text a cell: a heading needs text."""
    return EMPTY_HEADING.sub(r"<td\1></td>", html)


def _changes() -> str:
    """The changelog without its title, its links as a page of docs/ has them."""
    text = CHANGELOG.read_text(encoding="utf-8").partition("\n## ")[2]
    return re.sub(r"\]\(docs/", "](", f"### {text}".replace("\n### ", "\n#### "))
