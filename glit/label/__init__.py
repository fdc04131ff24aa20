"""``glit pairs``: a person judges pairs, and a calibration is fitted to the verdicts.

choose.py      which pairs to judge
verdicts.py    what was said, one line a pair in a file
page.html      the page that asks
server.py      shows it, on this machine only
calibrate.py   the calibration of a rule, and how good it is
"""
