"""Code that runs on a GPU alone.

copies.py       asynchronous copies from the GPU, into pinned memory
convolutions.py convolutions of float32 in float32, not in TF32
"""
