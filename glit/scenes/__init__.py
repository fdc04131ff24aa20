"""Procedural scenes with known ground truth: images, captions, boxes, masks, attributes."""

from __future__ import annotations

from glit.data.rle import decode_rle, encode_rle
from glit.scenes.captions import SceneCaption, SceneSentence, canonical_caption, write_caption
from glit.scenes.layout import SPLITS, Scene, SceneObject, draw_scene, split_of_seed
from glit.scenes.render import Rendering, render
from glit.scenes.write import TRUTH_SCHEMA, write_scenes

__all__ = [
    "SPLITS",
    "TRUTH_SCHEMA",
    "Rendering",
    "Scene",
    "SceneCaption",
    "SceneObject",
    "SceneSentence",
    "canonical_caption",
    "decode_rle",
    "draw_scene",
    "encode_rle",
    "render",
    "split_of_seed",
    "write_caption",
    "write_scenes",
]
