"""New datasets out of finished ones: rows selected, datasets merged, pairs made again."""
