"""Models behind the protocols of :mod:`glit.backends.protocols`; no backend imports a stage."""

from __future__ import annotations
