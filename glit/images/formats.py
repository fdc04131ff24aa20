"""Formats of pictures, by the suffix of a file and by its first bytes."""

from __future__ import annotations

import os
import re

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".avif", ".jfif",
     ".mpo", ".pjpeg", ".pjp", ".apng", ".dib"}
)  # fmt: skip
"""Files that glit decodes."""
OTHER_IMAGE_SUFFIXES = frozenset(
    {".jp2", ".j2k", ".jpx", ".heic", ".heif", ".hif", ".heics", ".jxl", ".jxr", ".psd", ".svg",
     ".ico", ".tga", ".ppm", ".pgm", ".pbm", ".pnm", ".pcx", ".exr", ".hdr", ".dds", ".qoi", ".xcf",
     ".eps", ".bpg", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw",
     ".x3f", ".raw"}
)  # fmt: skip
"""Pictures that glit does not decode: they are listed and dropped."""
_NO_PICTURES = frozenset(
    {".txt", ".caption", ".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".xml", ".yaml", ".yml",
     ".toml", ".md", ".rst", ".html", ".htm", ".css", ".js", ".py", ".sh", ".log", ".ini", ".cfg",
     ".npy", ".npz", ".pt", ".pth", ".pkl", ".bin", ".safetensors", ".onnx", ".cls", ".lock",
     ".mp4", ".mov", ".avi", ".mkv", ".webm", ".mp3", ".wav", ".flac", ".zip", ".gz", ".tgz",
     ".zst", ".xz", ".bz2", ".7z", ".rar", ".pdf", ".parquet", ".arrow", ".tar", ".db", ".sqlite",
     ".sha256", ".md5"}
)  # fmt: skip
"""Files that are not looked into."""
HEAD_BYTES = 32
"""Bytes of a file by which its format is known."""
_DECODED = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|GIF8[79]a|RIFF....WEBP|II[*+]\0|MM\0[*+]|....ftypavi[fs]"
    rb"|BM.{4}\0{4}.{4}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0",
    re.DOTALL,
)
_OTHERS = {
    "HEIF": rb"....ftyp(?:hei[cfmsx]|hev[cmsx]|mif1|msf1)",
    "Canon RAW": rb"....ftypcrx |(?:II|MM).{6}CR\x02",
    "JPEG XL": rb"\xff\x0a|\0\0\0\x0cJXL ",
    "JPEG 2000": rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  ",
    "JPEG XR": rb"II\xbc",
    "Photoshop": rb"8BPS\0[\x01\x02]",
    "Netpbm": rb"P[1-7][ \t\r\n]",
    "OpenEXR": rb"\x76\x2f\x31\x01",
    "Radiance HDR": rb"#\?(?:RADIANCE|RGBE)",
    "DDS": rb"DDS \x7c\0\0\0",
    "QOI": rb"qoif",
    "GIMP": rb"gimp xcf",
    "BPG": rb"BPG\xfb",
    "SVG": rb"\s*<svg\b",
    "Fujifilm RAW": rb"FUJIFILMCCD-RAW",
    "Olympus RAW": rb"IIR[OS]|MMOR",
    "Panasonic RAW": rb"IIU\0",
}
_OTHER_FORMATS = {name: re.compile(pattern, re.DOTALL) for name, pattern in _OTHERS.items()}


def other_format(head: bytes) -> str:
    """The name of the format of a picture that glit does not decode; empty for anything else.

    >>> other_format(bytes(3) + b"\\x18ftypheic"), other_format(b"\\xff\\xd8\\xff\\xe0")
    ('HEIF', '')
    """
    found = (name for name, pattern in _OTHER_FORMATS.items() if pattern.match(head))
    return next(found, "")


def is_picture(head: bytes) -> bool:
    """Return whether a file that begins so is a picture, decoded or not."""
    return bool(_DECODED.match(head) or other_format(head))


def suffix_of(path: str) -> str:
    """The suffix in small letters; empty for a file without, and for one whose name is ``.png``."""
    return os.path.splitext(path)[1].lower()


def tells_nothing(path: str) -> bool:
    """Return whether the name of a file leaves open what it is, so that its first bytes have to
    tell.

    >>> [tells_nothing(each) for each in ("a", "a.jpg~", "a.jpg?w=100", "a.jpg", "a.heic", "a.md")]
    [True, True, True, False, False, False]
    """
    suffix = suffix_of(path)
    return suffix not in IMAGE_SUFFIXES | OTHER_IMAGE_SUFFIXES | _NO_PICTURES
