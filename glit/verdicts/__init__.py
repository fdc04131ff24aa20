"""Audits: prove from verdicts on some items that at most a share of all of them is wrong.

draw.py         the order in which items are judged, and their chances
bets.py         wealth that grows as long as fewer items are wrong than a claim says
claims.py       tests a claim, bounds the share, finds the largest part, counts needed verdicts
agreement.py    Cohen's kappa of two people
record.py       the file of an audit: its plan and people's verdicts
judged.py       the file of a model's opinions
lines.py        what both files have in common
"""
