"""The version, for what writes it down; ``glit.__version__`` is the same."""

from __future__ import annotations

__version__ = "0.1.0"
