"""What is particular to GPUs.

copies.py       copies that are not waited for
convolutions.py float32 ones in float32, not in TF32
"""
