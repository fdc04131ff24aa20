"""A real Chromium without a window, for the tests of pages."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's browser; the test is skipped on a machine that has none."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def serving(dataset: Any, **options: Any) -> Iterator[Any]:
    """The page of a whole dataset, served meanwhile."""
    from glit.view.server import PageServer

    with PageServer(dataset, port=0, **options) as server:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()


class Page:
    """A page that remembers what went wrong on it."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(**options)
        self.page.on("console", lambda said: self.faults.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    @property
    def from_network(self) -> list[str]:
        return [url for url in self.asked if not url.startswith(("file:", "data:", "blob:"))]


def names(page: Page) -> list[str]:
    """Names of the samples that the gallery shows, once it has settled."""
    page.wait_for_timeout(400)
    return page.locator(".cards .card h3").all_text_contents()


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong for people who use the page by other means."""
    from axe_playwright_python.sync_playwright import Axe

    # the page's policy keeps the test's own script out as it would an attacker's
    found = Axe().run(page.page).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:120]} ({each['help']})" for each in found]
