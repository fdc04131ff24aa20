"""What a person or a model says of a dataset: pairs judged, and boxes and sentences corrected."""
