"""Decode image files to upright sRGB pixels, and encode them.

formats      suffixes, first bytes
decoding     files to pixels
jpeg         libjpeg-turbo, and which of its complaints mean damage
soundness    damage to other formats
zeros        pixels that stand for bytes that were lost
likeness     whether two pictures look the same
colour       modes, depths, transparency and colour profiles
"""

from glit.images.decoding import (
    MAX_PIXELS,
    NO_LIMIT,
    decode,
    encode_smaller,
    open_with_pillow,
    picture_frame,
    pixel_limit,
    upright_file,
)
from glit.images.errors import ImageError, Pixels
from glit.images.formats import IMAGE_SUFFIXES, OTHER_IMAGE_SUFFIXES

__all__ = [
    "IMAGE_SUFFIXES",
    "MAX_PIXELS",
    "NO_LIMIT",
    "OTHER_IMAGE_SUFFIXES",
    "ImageError",
    "Pixels",
    "decode",
    "encode_smaller",
    "open_with_pillow",
    "picture_frame",
    "pixel_limit",
    "upright_file",
]
