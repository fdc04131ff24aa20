"""``glit bench objectives``: every objective at its own learning rate, on datasets.

``datasets`` are what is trained and measured on, ``measure`` measures a model on them, ``job``
trains once, ``run`` trains and resumes all, ``table`` compares.
"""

from __future__ import annotations
