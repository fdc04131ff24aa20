"""Captions as text: sentences, character and token spans, noun phrases."""
