"""The picture of a report in the README: scenes, a dataset, its page, what Chromium shows of it.

python -m tools.picture     writes docs/report.webp
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

TARGET = Path(__file__).resolve().parent.parent / "docs" / "report.webp"
NUM_SCENES = 60
SEED = 2_000_400  # of the test scenes: the mini models have never seen them
WIDTH, HEIGHT = 1280, 860
_BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


def main() -> None:
    """Make it by the commands that a user would type."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _glit(here, "scenes", "-o", "scenes", "-n", NUM_SCENES, "--seed", SEED, "--size", 256)
        _glit(here, "build", "scenes/images", "-o", "scenes-dataset", "-r", "glit-mini",
              "--executor", "local")  # fmt: skip
        _glit(here, "view", "scenes-dataset", "-o", "report.html")
        png = _screenshot((here / "report.html").as_uri())
    Image.open(io.BytesIO(png)).convert("RGB").save(TARGET, "WEBP", quality=82, method=6)
    print(f"{TARGET}: {TARGET.stat().st_size / 1000:.0f} kB")


def _glit(folder: Path, *words: object) -> None:
    subprocess.run([sys.executable, "-m", "glit", *map(str, words)], cwd=folder, check=True)


def _screenshot(address: str) -> bytes:
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        sys.exit("no Chromium on this machine: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1.5
        )
        page.goto(address)
        page.wait_for_selector(".cards .card")
        png = page.screenshot()
        browser.close()
    return png


if __name__ == "__main__":
    main()
