"""From a folder of images to a dataset: listing, plan, tables, units of work, publishing."""

from __future__ import annotations
