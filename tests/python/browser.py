"""A headless Chromium that tells what a page does. Chromium is the machine's: none is fetched."""

import shutil
from contextlib import contextmanager
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find():
    """Its path, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@contextmanager
def opened(page_file, dark: bool = False, width: int = 1240, height: int = 900):
    """The page, drawn; with `requests` (all but the page itself) and `complaints` (console errors,
    uncaught exceptions)."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Root has no sandbox.
        browser = driver.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        try:
            page: Any = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
            )
            address = page_file.resolve().as_uri()
            page.requests, page.complaints = [], []
            page.on("request", lambda request: request.url != address and page.requests.append(request.url))
            page.on("console", lambda said: said.type in ("error", "warning") and page.complaints.append(said.text))
            page.on("pageerror", lambda error: page.complaints.append(str(error)))
            page.goto(address)
            page.wait_for_selector("body[data-drawn]", state="attached", timeout=60_000)
            yield page
        finally:
            browser.close()
