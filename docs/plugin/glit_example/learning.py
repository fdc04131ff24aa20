"""An objective of training and a task of evaluation; they bring torch, so nothing is imported here
before it is wanted."""


def register():
    """Add them where torch is installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return
    from glit import extend
    from glit_example import objective

    extend.add_objective("long+first", objective.LongAndFirst)
    extend.add_task("words", objective.words)
