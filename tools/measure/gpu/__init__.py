"""How near to its limits glit comes on a GPU, in nine minutes: ``python -m tools.measure.gpu``.

Parts run one after the other, each in a process of its own with a time-out, and write what they
have after every figure: one that fails, hangs or kills its process costs only its own later
figures.
Models have random weights of full size, made on the device; nothing comes from a hub.
"""
