"""The version number, also available as ``glit.__version__``."""

from __future__ import annotations

__version__ = "0.1.0"
