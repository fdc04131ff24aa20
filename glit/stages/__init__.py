"""The stages of the flow, one file each, in the order a sample meets them."""

from __future__ import annotations
