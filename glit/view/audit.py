"""Write the page of an audit: a table of the faults, and examples with their pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glit.data.frames import XYXY
from glit.images.thumbnails import data_url, thumbnail
from glit.version import __version__
from glit.view.page_file import json_for_html, page_html
from glit.view.report import page_title, write_page

if TYPE_CHECKING:
    from glit.inspection.findings import AuditReport

_SIDE, _BYTES = 320, 16 << 10


def example_thumbnail(encoded: bytes, boxes: Sequence[XYXY] = ()) -> bytes:
    """The thumbnail of an example, with boxes in pixels of the upright picture.

    Raises:
        ImageError: the file is damaged.
    """
    return thumbnail(encoded, max_side=_SIDE, max_bytes=_BYTES, boxes=boxes)


def write_audit_page(output: Path, report: AuditReport) -> None:
    """Write the page.

    Args:
        output: the file; one that exists is replaced.
        report: the result of the audit.

    Raises:
        InputError: the file cannot be written.
    """
    findings = [
        {
            "code": each.code, "severity": each.severity, "sentence": each.sentence, "of": each.of,
            "looked_at": each.looked_at, "at_fault": each.at_fault, "share": each.share,
            "repair": each.repair,
            "examples": [
                {"name": e.name, "detail": e.detail,
                 "image": data_url(e.picture) if e.picture else ""}
                for e in each.examples
            ],
        }
        for each in report.findings
    ]  # fmt: skip
    data = {
        "title": page_title(report.what), "format": report.format, "images": report.images,
        "findings": findings, "clean": report.clean, "skipped": report.skipped,
        "licences": report.licences,
        "estimates": [
            {"of": e.of, "claim": e.claim, "method": e.method, "share": e.share,
             "at_least": e.at_least, "at_most": e.at_most} for e in report.estimates
        ],
        "glit": __version__,
    }  # fmt: skip
    html = page_html(
        json_for_html(data), images="data:", connect="'none'", further=("audit",),
        of_dataset=False,
    )  # fmt: skip
    write_page(output, html)
