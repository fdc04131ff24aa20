"""The verbs of a dataset: build, add, retry, publish, status."""
