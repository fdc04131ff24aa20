"""``glit bench``: measurements that a user may want to repeat."""

from __future__ import annotations
