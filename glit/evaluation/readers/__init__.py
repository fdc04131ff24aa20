"""Readers of published benchmarks: questions with one right answer, and boxes."""
