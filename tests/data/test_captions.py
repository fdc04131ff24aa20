"""Captions of the user: what is taken."""

import json

from glit.data.captions import with_provided
from glit.data.limits import CAPTION_CHARS
from glit.data.records import Sample
from glit.inputs.user_captions import read_captions

SAMPLE = Sample(sample_id="0" * 64, source_path="a.png", width=9, height=9, num_bytes=9)


def test_a_caption_of_megabytes_is_a_drop(tmp_path):
    (tmp_path / "c.jsonl").write_text(json.dumps({"path": "a.png", "caption": "word " * 240_000}))
    [(_, caption, _, _)] = read_captions(tmp_path / "c.jsonl", str(tmp_path))
    assert caption is not None
    assert len(caption) == CAPTION_CHARS + 1  # no more of it is kept
    assert with_provided(SAMPLE, caption, name="c").reason == "too_long"
    assert (
        with_provided(SAMPLE, {"long": "A cat.", "short": caption}, name="c").reason == "too_long"
    )
    assert with_provided(SAMPLE, "a" * CAPTION_CHARS, name="c").caption.text == "a" * CAPTION_CHARS
