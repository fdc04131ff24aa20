"""What is done for GPUs alone, each beside a plain way, chosen on the machine itself.

probe.py        decides once per process whether a way is right and faster here
halves.py       float32 products by three products of halves
masks.py        when SAM's masks are measured by the kernel
mask_kernel.py  that kernel, in Triton
copies.py       copies that are not waited for
"""
