"""Recipes of builds, and the plan of one: models found, prompts read, fingerprints made."""
