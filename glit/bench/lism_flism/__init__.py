"""LISM against FLISM, the papers' scripts against glit: four columns over the same images.

job.py             what a column is told, and what it answers; the columns by name
inputs.py          photographs or scenes, with captions cut into sentences
models.py          where the models come from: mini, random of full size, or the manifest's
candidates.py      SAM's masks or YOLOS' boxes of one image, the scripts' way
one_at_a_time.py   LISM and FLISM as the papers' scripts do them
in_glit.py         the same by glit's stages
fixed.py           regions handed on in the place of what random weights propose
clock.py           seconds by part, decoding in threads, kernels on a GPU
column.py          one column in a process of its own
processes.py       the four processes, seen from outside
run.py             warm-up, repeats in turn
quality.py         choices against the truth
operations.py      counted operations and the matrix rate, which give the floor
report.py          medians, ratios, parameters, projection
machine.py         hardware and versions
show.py, plot.py   Markdown and terminal; the picture
files.py           the output folder
"""

from __future__ import annotations
