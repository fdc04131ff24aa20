"""``glit bench objectives``: every objective at its own learning rate, on datasets.

``world`` says what is trained and measured on, ``measure`` measures a model on it, ``job`` trains
once, ``run`` trains and resumes all, ``table`` compares.
"""

from __future__ import annotations
