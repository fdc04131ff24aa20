"""``glit bench objectives``: every objective at its own learning rate, on scenes.

``world`` draws what is trained and measured on, ``questions`` makes two-way choices of it,
``measure`` puts them to a model, ``run`` trains and resumes, ``table`` and ``curves`` compare.
"""

from __future__ import annotations
