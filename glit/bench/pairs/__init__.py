"""``glit bench pairs``: how often pairs are right, by rule, where the truth is known: scenes.

scenes.py            scenes on disk, and figures with their spread over seeds
few_remarks.py       the same scenes with shorter captions
truth.py             which pairs of a dataset of scenes are right
measure.py           figures of a pairing over samples with their truth
run.py               scenes of several seeds and levels, built, paired by every rule, compared
support.py           how well support tells false sentences from true ones
captions.py          captions of several seeds and levels, checked
"""
