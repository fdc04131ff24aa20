"""F-CAST's encoders: superpixels grouped to ever coarser segments, captions read in chunks."""

from __future__ import annotations
