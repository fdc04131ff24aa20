"""A dataset as a page that people look at: what is in it, how it came to be, every pair."""

from __future__ import annotations
