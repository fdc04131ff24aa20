"""Programs that train, measure and export the mini models on procedural scenes."""
