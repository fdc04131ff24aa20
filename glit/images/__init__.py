"""Decode image files to upright sRGB pixels, and encode them.

formats      suffixes, first bytes
decoding     files to pixels
encoding     pixels to files: smaller, upright, or of another format
notices      what such a file keeps: copyright, licence, provenance
packets      metadata in an encoded file: EXIF, XMP, IPTC-IIM, C2PA
location     where a picture was taken, and files without it
tiff_tags    tags of TIFF and EXIF
iim          texts of IPTC-IIM
jpeg         libjpeg-turbo, and which of its complaints mean damage
soundness    damage to other formats
zeros        pixels that stand for bytes that were lost
likeness     whether two pictures look the same
thumbnails   WebP files that are small enough for hundreds in one page
colour       modes, depths, transparency and colour profiles
"""

from glit.images.decoding import (
    MAX_PIXELS,
    NO_LIMIT,
    decode,
    open_with_pillow,
    picture_frame,
    pixel_limit,
)
from glit.images.encoding import encode_png, encode_smaller, upright_file
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
    "encode_png",
    "encode_smaller",
    "open_with_pillow",
    "picture_frame",
    "pixel_limit",
    "upright_file",
]
