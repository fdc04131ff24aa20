"""Report pages about datasets, comparisons and training runs."""

from __future__ import annotations
