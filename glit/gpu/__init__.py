"""Faster ways for GPUs, each beside a plain one, chosen on the machine itself.

probe.py        decides once per process whether a way is right and faster here
halves.py       float32 products by three products of halves
copies.py       copies that are not waited for
convolutions.py float32 ones in float32, not in TF32
"""
