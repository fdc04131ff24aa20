"""Measurements of glit that no user calls: docs/experiments.md has their results."""
