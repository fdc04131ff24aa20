"""Commands that repair faults."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from glit.inspection.findings import MOST_EXAMPLES, Example
from glit.inspection.pictures import LEAST_SIDE

_BY_IMPORT = frozenset(
    ("span-words", "text-outside", "box-outside", "box-empty", "stated-size", "stated-turned",
     "stated-shape", "picture-missing")
)  # fmt: skip
"""Faults that an import leaves out or mends: it cuts, scales and turns boxes."""
_BY_BUILD = frozenset(
    ("picture-damaged", "picture-format", "picture-small", "caption-empty", "caption-looping",
     "caption-refusal", "caption-language", "mining-prohibited", "picture-location")
)  # fmt: skip
_BY_VERIFY = frozenset(
    ("unreadable", "span-words", "token-span", "text-outside", "box-outside", "box-empty",
     "box-units", "box-corners", "stated-size", "stated-turned", "stated-shape", "picture-damaged")
)  # fmt: skip
"""Faults that break a promise of the data format: only another build mends them."""
_SETTINGS = {
    "picture-small": ["--set", f"ingest.min_side={LEAST_SIDE}"],
    "mining-prohibited": [
        "--set", "rights.enabled=true", "--set", 'rights.drop=["mining_prohibited"]',
    ],
}  # fmt: skip
_KEEP = {
    "picture-small": f"least(width, height) >= {LEAST_SIDE}",
    "caption-empty": "length(trim(caption)) > 0",
    "name-clash": "sample_id IN (SELECT min_by(sample_id, source_path) FROM samples "
    "GROUP BY lower(nfc_normalize(source_path)))",
    "caption-repeated": "sample_id IN (SELECT min(sample_id) FROM samples GROUP BY caption)",
}
"""Conditions of the samples to keep, in SQL."""


def repair(
    code: str,
    *,
    what: str,
    form: str,
    images: str,
    examples: Sequence[Example],
    at_fault: int,
    test_set: str = "",
) -> str:
    """The command that repairs a kind of fault; empty if there is none.

    Args:
        code: the kind.
        what: the dataset or file.
        form: its format.
        images: the folder of pictures, if the user named it.
        examples: of the fault.
        at_fault: how many there are.
        test_set: the list of a test set.
    """
    if form == "glit":
        where = _KEEP.get(code, "")
        if not where and code in _BY_VERIFY:
            return shlex.join(["glit", "verify", what])
        if not where and at_fault <= min(len(examples), MOST_EXAMPLES):
            names = ", ".join("'" + each.name.replace("'", "''") + "'" for each in examples)
            where = f"source_path NOT IN ({names})" if names else ""
        if where:
            return shlex.join(["glit", "select", what, "-o", "repaired", "--where", where])
        return shlex.join(["glit", "overlap", what, test_set]) if code == "in-test-set" else ""
    if form == "images":
        words = ["glit", "build", what, "-o", "dataset", "-r", "captions-only"]
        words += ["--set", "caption.backend=sidecar"]
        words += _SETTINGS.get(code, [])
        return shlex.join(words) if code in _BY_BUILD else ""
    if form in ("captions", "regions") or code not in _BY_IMPORT:
        return ""
    words = ["glit", "import", what, "--format", form, "-o", "imported.jsonl"]
    return shlex.join([*words, *(["--images", images] if images else [])])
