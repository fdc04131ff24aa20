"""``python -m glit.bench.gpu -o OUT``: the same as ``glit bench gpu``."""

from __future__ import annotations

import sys

from glit.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "gpu"]
    main()
