"""Segment-anything: the models, and automatic masks made for throughput."""
