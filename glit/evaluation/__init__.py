"""Measure a CLIP model: retrieval, joint retrieval, localisation, robustness, caption quality.

``recall``, ``precision`` and ``localisation`` are pure functions of arrays; ``readers`` know the
annotation files of public datasets; ``encode`` turns images and texts into embeddings;
``scorers`` compare the two; ``tasks`` puts them together and ``report`` writes tables. Importing
this package loads no model library.
"""

from __future__ import annotations
