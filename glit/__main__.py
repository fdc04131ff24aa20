"""``python -m glit``."""

from __future__ import annotations

from glit.cli.main import main

if __name__ == "__main__":
    main()
