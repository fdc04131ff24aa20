"""Pixels of every mode of Pillow's as sRGB: depths, transparency, colour profiles.

A picture whose ICC profile is another than sRGB is converted; one that says sRGB, or nothing, keeps
its pixels as they are.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms, ImageFile

from glit.images.errors import ImageError, Pixels

STRIP_PIXELS = 4_000_000
"""Pixels converted to RGB at once, so that the copies in between stay small."""
_SPACES = {"RGB": "RGB ", "L": "GRAY", "CMYK": "CMYK"}
"""Colour spaces as a profile states them, by the pixels' mode."""
_LEAST_DIFFERENCE = 3
"""Least difference of colours, of 255: a profile that changes all by less is called sRGB."""
_MOST_PROFILE_BYTES = 4 << 20
_BITS_PER_SAMPLE, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_DEPTHS = (16, 24, 31, 32)
"""Bits of grey values that are kept in 32."""


def mend_transparency(image: ImageFile.ImageFile) -> None:
    """State the transparent colour of a PNG that is not loaded yet as its 8-bit pixels have it."""
    found, rawmode = image.info.get("transparency"), image.tile[0][3] if image.tile else ""
    if image.format != "PNG" or found is None:
        return
    if rawmode in ("L;2", "L;4"):
        image.info["transparency"] = found * {"L;2": 85, "L;4": 17}[rawmode]
    elif rawmode == "RGB;16B":
        image.info["transparency"] = tuple(value >> 8 for value in found)


def to_srgb(image: Image.Image) -> Pixels:
    """The pixels of a loaded image: sRGB, over white where they are transparent.

    Raises:
        ImageError: ``unsupported_mode``.
    """
    if image.mode in ("F", "LAB"):
        raise ImageError("unsupported_mode", f"mode {image.mode} has no defined conversion to RGB")
    is_bmp = image.format in ("BMP", "DIB") and image.mode == "RGBA"
    if is_bmp and not np.asarray(image.getchannel("A")).any():
        image = image.convert("RGB")  # four bytes a pixel, of which Windows leaves the last unused
    values = np.asarray(image) if image.mode.startswith("I") else None
    most = 0 if values is None else _white(values, image)
    profile = image.info.get("icc_profile")
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top, bottom in strips(image.width, image.height):
        if values is not None:
            strip = Image.fromarray(_in_eight_bits(values[top:bottom], most, image))
        else:
            strip = image.crop((0, top, image.width, bottom))
        pixels[top:bottom] = _over_white(strip, profile)
    if values is not None and isinstance(hole := image.info.get("transparency"), int):
        pixels[values == hole] = 255
    return pixels


def with_profile(pixels: Pixels, image: Image.Image) -> None:
    """Turn the pixels of an image into sRGB, in place, if its profile says that they are not."""
    profile = image.info.get("icc_profile")
    transform = _transform(profile, image.mode) if profile else None
    if transform is None:
        return
    for top, bottom in strips(pixels.shape[1], pixels.shape[0]):
        strip = pixels[top:bottom, :, 0] if image.mode == "L" else pixels[top:bottom]
        shown = _applied(transform, Image.fromarray(np.ascontiguousarray(strip)))
        pixels[top:bottom] = np.asarray(shown)


def strips(width: int, height: int) -> Iterator[tuple[int, int]]:
    """Rows ``[top, bottom)`` of about ``STRIP_PIXELS``."""
    rows = max(1, STRIP_PIXELS // width)
    return ((top, min(height, top + rows)) for top in range(0, height, rows))


def _over_white(strip: Image.Image, profile: bytes | None) -> np.ndarray:
    alpha = None
    if strip.mode == "LA":
        strip, alpha = strip.getchannel("L"), strip.getchannel("A")
    elif strip.has_transparency_data:
        whole = strip.convert("RGBA")
        strip, alpha = whole.convert("RGB"), whole.getchannel("A")
    elif strip.mode not in _SPACES:
        strip = strip.convert("RGB")
    transform = _transform(profile, strip.mode) if profile else None
    shown = strip.convert("RGB") if transform is None else _applied(transform, strip)
    if alpha is not None:
        shown.putalpha(alpha)
        white = Image.new("RGBA", shown.size, (255, 255, 255, 255))
        shown = Image.alpha_composite(white, shown).convert("RGB")
    return np.asarray(shown)


def _applied(transform: ImageCms.ImageCmsTransform, image: Image.Image) -> Image.Image:
    shown = ImageCms.applyTransform(image, transform)
    assert shown is not None  # only in place there is none
    return shown


@lru_cache(maxsize=64)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform from colours of a profile to sRGB; None where the profile is damaged, of
    other colours than the pixels', or changes next to nothing."""
    if len(profile) > _MOST_PROFILE_BYTES:
        return None
    try:
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if getattr(opened.profile, "xcolor_space", "") != _SPACES[mode]:
            return None
        made = ImageCms.buildTransform(opened, _srgb(), mode, "RGB")
        if mode == "CMYK":
            return made
        steps = np.arange(0, 256, 17, dtype=np.uint8)
        colours = steps[:, None] if mode == "L" else np.stack(np.meshgrid(*[steps] * 3), axis=-1)
        asked = Image.fromarray(colours if mode == "L" else colours.reshape(-1, 16, 3))
        answer = np.asarray(_applied(made, asked), np.int16)
        difference = np.abs(answer - np.asarray(asked.convert("RGB"), np.int16)).max()
    except (ImageCms.PyCMSError, OSError, TypeError, ValueError):
        return None
    return made if difference >= _LEAST_DIFFERENCE else None


@lru_cache(maxsize=1)
def _srgb() -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))


def _tag(image: Image.Image, tag: int, otherwise: int) -> int:
    """The first value of a TIFF's tag."""
    found = getattr(image, "tag_v2", {}).get(tag, otherwise)
    return int(found[0]) if isinstance(found, tuple) else int(found)


def _white(values: np.ndarray, image: Image.Image) -> int:
    """The grey value that is white: the largest of the depth that the file states, or of the least
    depth that all its values fit in.

    Raises:
        ImageError: there are negative values.
    """
    is_signed = _tag(image, _SAMPLE_FORMAT, 1) == 2
    bits = _tag(image, _BITS_PER_SAMPLE, 16)
    if bits == 32 and not is_signed and values.dtype == np.int32:
        values = values.view(np.uint32)
    if int(values.min()) < 0:
        raise ImageError(
            "unsupported_mode", f"grey values down to {values.min()}, want none below 0"
        )
    if bits < 16:
        return 2**bits - 1
    if bits == 16:
        return 2**15 - 1 if is_signed else 2**16 - 1
    most = int(values.max())
    return next(2**depth - 1 for depth in _DEPTHS if most < 2**depth)


def _in_eight_bits(values: np.ndarray, most: int, image: Image.Image) -> np.ndarray:
    """Grey values 0 to ``most`` as 0 to 255, rounded; of a TIFF whose 0 is white, inverted."""
    if most == 2**32 - 1:
        values = values.view(np.uint32)
    grey = np.clip(values.astype(np.int64), 0, most)
    grey = ((grey * 255 + most // 2) // most).astype(np.uint8)
    is_inverted = image.format == "TIFF" and _tag(image, _PHOTOMETRIC, 1) == 0
    return 255 - grey if is_inverted else grey
