"""An objective of training and a task of evaluation. They import torch, so this module imports them
only if torch is installed."""

import importlib.util


def register():
    """Add them if torch is installed."""
    if importlib.util.find_spec("torch") is None:
        return
    from glit import extend
    from glit_example import objective

    extend.add_objective("long+first", objective.LongAndFirst)
    extend.add_task("words", objective.words, about="mean cosine of captions and first words")
