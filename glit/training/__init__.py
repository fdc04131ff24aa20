"""Fine-tune CLIP on a glit dataset.

The way of a batch: ``order`` says which rows, ``loader`` and ``sample`` read and decode them,
``batch`` puts them together, ``model`` encodes them to ``features``, and one of ``objectives``
computes the loss. ``setup`` loads and checks what a run starts from; ``loop``, ``step``,
``checkpoint`` and ``run_file`` are the run. Importing this package loads no model library.
"""

from __future__ import annotations
