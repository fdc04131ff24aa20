"""Helpers for long work: prefetching, progress, cores, devices, local servers."""
