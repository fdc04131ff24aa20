"""F-CAST's encoders: superpixels grouped into coarser segments, captions read in chunks."""

from __future__ import annotations
