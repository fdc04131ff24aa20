"""``glit pairs``: a person judges pairs, and a calibration is fitted to the verdicts.

judge.py           asks a vision-language model instead, and keeps its opinions apart
judging_model.py   opens that model as a recipe's [caption] table names it
choose.py          which pairs to judge
audit_server.py    asks for the verdicts of an audit (glit.verdicts) in the order of its plan
verdicts.py        what was said, one line a pair in a file
page.html          the page that asks
server.py          shows it, on this machine only
calibrate.py       the calibration of a rule, and how good it is
"""
