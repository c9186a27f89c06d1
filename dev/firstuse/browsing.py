"""Opens a page in a browser. Without Chromium the check is skipped with a message."""

import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from dev.firstuse.comparing import Difference

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT_MS = 20_000


def look_at(url: str, seen: Sequence[str]) -> None:
    if BROWSER is None or find_spec("playwright") is None:
        print(f"Not checked, because Chromium is not installed: {url}", file=sys.stderr)
        return
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.goto(url)
            for text in seen:
                page.get_by_text(text).first.wait_for(timeout=WAIT_MS)
        except Error as error:
            raise Difference(f"{url} does not show what the README says: {error.message}") from None
        finally:
            browser.close()
