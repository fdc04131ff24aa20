"""``glit bench objectives``: every objective at its own learning rate, on scenes.

``world`` draws what is trained and measured on and asks questions about it, ``measure`` puts them
to a model, ``job`` trains once, ``run`` trains and resumes all, ``table`` compares.
"""

from __future__ import annotations
