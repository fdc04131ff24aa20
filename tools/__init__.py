"""Programs for whoever works on glit."""
