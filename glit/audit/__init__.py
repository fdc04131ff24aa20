"""How many of a finite number of items are wrong, told from judging some of them: pure NumPy.

draw.py         which items are judged, in which order and with which chances
bets.py         wealth that grows as long as fewer items are wrong than a claim says
claims.py       a claim, bounds, the largest part for which a claim holds, how many verdicts
agreement.py    Cohen's kappa of two people
"""
