"""Damaged and odd inputs by the hundred thousand: each is taken or refused, in time, by name.

``python -m tools.fuzz OUT --cases 10000``: ``mutate`` makes odd bytes of good ones, ``targets``
are what reads them, ``hunt`` looks for what neither takes nor refuses them.
"""
