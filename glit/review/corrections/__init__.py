"""Boxes, sentences and pairs that a person corrects: ``glit pairs correct``, ``glit pairs apply``.

server.py     shows samples to correct, on this machine only
page.html     the page on which that is done
journal.py    what was corrected, one line a step in a file
apply.py      a dataset with these corrections, written as a new one
row.py        one row of it
precision.py  the share of recommended pairs that people left as right
"""
