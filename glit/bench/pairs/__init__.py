"""``glit bench pairs``: how often pairs are right, by rule, where the truth is known: scenes.

truth.py     which pairs of a dataset of scenes are right
measure.py   figures of a pairing over samples with their truth
run.py       scenes of several seeds and levels, built, paired by every rule, compared
"""
