"""Where tasks run: in this process, or on Ray. The only folder that imports Ray."""

from __future__ import annotations
