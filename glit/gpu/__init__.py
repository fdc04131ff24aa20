"""What is done for GPUs alone, each beside a plain way, chosen on the machine itself.

probe.py        decides once per process whether a way is right and faster here
halves.py       float32 products by three products of halves
copies.py       copies that are not waited for
convolutions.py float32 ones in float32, not in TF32
"""
