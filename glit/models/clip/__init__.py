"""CLIP and its kin: one way to open, encode and fit for matching, training and measuring."""
