"""An objective of training and a task of evaluation; they bring torch, so nothing is imported here
before it is wanted."""

import importlib.util


def register():
    """Add them where torch is installed."""
    if importlib.util.find_spec("torch") is None:
        return
    from glit import extend
    from glit_example import objective

    extend.add_objective("long+first", objective.LongAndFirst)
    extend.add_task("words", objective.words)
