"""From a recipe to a plan: models found, prompts read, fingerprints made."""
