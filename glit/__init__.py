"""glit: region-grounded long-caption datasets, built, measured and learned from.

Importing the package loads no model library: torch, ray and vllm are imported by the
backends and executors that need them, when they need them.
"""

from __future__ import annotations

__version__ = "0.1.0"
