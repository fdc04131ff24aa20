"""Adds one part of most kinds to glit; each is a few lines."""

from glit import extend
from glit.models.backends.base import Backend
from glit_example import learning, parts

extend.add_stage(parts.Light, before="caption")
extend.add_captioner("brightness", parts.describe)
extend.add_proposer("stripes", parts.stripes)
extend.add_matcher("colours", Backend(make=parts.Colours, needs_model=False))
extend.add_rule("lead", parts.Lead)
extend.add_exporter("csv", parts.write_csv)
extend.add_reader("captions-txt", parts.read_captions_txt)
learning.register()
