"""The command line: a thin shell over the library. Nothing imports it."""

from __future__ import annotations
