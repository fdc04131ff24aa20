"""LISM against FLISM, the papers' scripts against glit: four columns over the same images.

job.py             what a column is told: images, models, device; the columns by name
inputs.py          photographs or scenes, with captions cut into sentences
models.py          where the models come from: mini, random of full size, or the manifest's
one_at_a_time.py   LISM and FLISM as the papers' scripts do them
in_glit.py         the same by glit's stages
column.py          one column in a process of its own
processes.py       the four processes, seen from outside
run.py             warm-up, repeats in turn, quality
operations.py      counted operations and the floor they give
report.py          medians, ratios, parameters, projection
show.py, plot.py   Markdown, terminal, picture
"""

from __future__ import annotations
