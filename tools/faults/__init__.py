"""Builds that are disturbed on purpose, and have to end as the undisturbed one did.

``python -m tools.faults OUT --runs 1000``: ``kinds`` lists the faults, ``tripwire`` sets them off
inside a build, ``damage`` changes files between two, ``run`` goes on until the dataset is there.
``writers`` kills the commands that write something else, and runs pairs of commands at once.
"""
