"""``glit pairs``: a person says which pairs are right; a calibration is fitted on what was said.

choose.py      which pairs are asked about
verdicts.py    what was said, one line a pair in a file
page.html      the page that asks
server.py      shows it, on this machine only
calibrate.py   the calibration of a rule, and how good it is
"""
