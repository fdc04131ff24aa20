"""``glit bench pairs``: how often pairs are right, by rule, where the truth is known: scenes.

measure.py           which pairs of a dataset of scenes are right; figures of a pairing over them
run.py               scenes of several seeds and levels, built, paired by every rule, compared
support.py           how well support tells false sentences from true ones, over seeds and levels
"""
