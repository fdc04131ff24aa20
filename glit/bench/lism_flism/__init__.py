"""LISM against FLISM, the papers' scripts against glit: four columns over the same images.

columns.py     what a column is told, what its process does, its clock
inputs.py      photographs or scenes, with captions cut into sentences
models.py      where the models come from: mini, random of full size, or the manifest's
scripts.py     LISM and FLISM as the papers' scripts do them, one image after the other
in_glit.py     the same by glit's stages
fixed.py       regions handed on in the place of what random weights propose
run.py         warm-up, repeats in turn
report.py      medians, ratios, choices against the truth; the page
plot.py        the picture
"""
