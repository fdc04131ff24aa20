"""Models behind the protocols of ``protocols.py``; no backend imports a stage."""

from __future__ import annotations
