"""glit: build region-grounded long-caption datasets, inspect them, and train CLIP on them.

Importing the package loads nothing heavy: Arrow, torch, ray and vllm are imported by what needs
them, when it needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from glit import api
from glit.version import __version__ as __version__

if TYPE_CHECKING:
    from glit.data.records import Box as Box
    from glit.data.records import Caption as Caption
    from glit.data.records import Pair as Pair
    from glit.data.records import Region as Region
    from glit.data.records import Sentence as Sentence
    from glit.dataset.reader import Dataset as Dataset
    from glit.dataset.row import Row as Row
    from glit.errors import GlitError as GlitError
    from glit.pipeline.planning.recipe import load_recipe as load_recipe

add = api.add
apply_corrections = api.apply_corrections
attach = api.attach
audit = api.audit
build = api.build
certify = api.certify
clean = api.clean
diff = api.diff
evaluate = api.evaluate
export = api.export
judge = api.judge
merge = api.merge
open_dataset = api.open_dataset
overlap = api.overlap
pair = api.pair
push = api.push
references = api.references
retry = api.retry
select = api.select
split = api.split
estimate = api.estimate
status = api.status
train = api.train
verify = api.verify

_LATER = {
    "Dataset": "glit.dataset.reader",
    "Row": "glit.dataset.row",
    "GlitError": "glit.errors",
    "load_recipe": "glit.pipeline.planning.recipe",
    "Box": "glit.data.records",
    "Caption": "glit.data.records",
    "Pair": "glit.data.records",
    "Region": "glit.data.records",
    "Sentence": "glit.data.records",
}
"""Names that are imported when they are first asked for."""

__all__ = [
    "Box",
    "Caption",
    "Dataset",
    "GlitError",
    "Pair",
    "Region",
    "Row",
    "Sentence",
    "add",
    "apply_corrections",
    "attach",
    "audit",
    "build",
    "certify",
    "clean",
    "diff",
    "estimate",
    "evaluate",
    "export",
    "judge",
    "load_recipe",
    "merge",
    "open_dataset",
    "overlap",
    "pair",
    "push",
    "references",
    "retry",
    "select",
    "split",
    "status",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'glit' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
