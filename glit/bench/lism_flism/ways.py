"""Open a column's way of working, in the column's own process."""

from __future__ import annotations

from glit.bench.lism_flism.columns import Job, Way

PRELOADED = (
    "glit.bench.lism_flism.in_glit",
    "glit.bench.lism_flism.scripts",
    "segment_anything",
    "transformers.models.clip.modeling_clip",
    "transformers.models.yolos.modeling_yolos",
)
"""Modules that all columns need."""


def open_way(job: Job) -> Way:
    """Load the models of a column."""
    if job.column.in_glit:
        from glit.bench.lism_flism.in_glit import InGlit as kind
    else:
        from glit.bench.lism_flism.scripts import OneAtATime as kind
    return kind(job)
