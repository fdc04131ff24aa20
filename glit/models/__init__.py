"""Models by name: their files, where they are found, their tokenizers, and where they run."""
