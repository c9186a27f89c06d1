"""`make screenshots`: every page at three widths in both colour schemes, and those that the documentation shows."""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from tests.console.conftest import BROWSER, send, start
from tests.console.places import PAGES, demo

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "build" / "screenshots"
DOCS = ROOT / "docs" / "pictures"
SIZES = ((390, 844), (1024, 768), (1600, 1000))
SHOWN = (
    "inbox-390-dark",
    "run-1600-light",
    "files-1024-dark",
    "agent-1600-dark",
    "runs-1024-light",
    "pairing-1024-light",
    "conversation-1600-light",
    "orchestration-1024-dark",
    "organisation-1600-light",
    "topology-1024-light",
    "operations-1600-dark",
)
"""Pictures in the documentation."""


def main() -> int:
    if BROWSER is None:
        print("There is no Chromium: make browser installs it.", file=sys.stderr)
        return 1
    BUILD.mkdir(parents=True, exist_ok=True)
    DOCS.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        server = start(Path(folder) / "data", 8200)
        try:
            for number in range(24):
                send(server, "fussy", f"A room{', if possible; please fail' if number % 7 == 3 else ''} {number}")
            made = demo(server)
            _take(server.console, made)
        finally:
            server.stop()
    for name in SHOWN:
        shutil.copy(BUILD / f"{name}.png", DOCS / f"{name}.png")
    print(f"{len(PAGES) * len(SIZES) * 2} pictures are in {BUILD.relative_to(ROOT)}")
    return 0


def _take(console: str, made: dict[str, str]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for width, height in SIZES:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                for place in PAGES:
                    place.visit(page, console, made)
                    page.wait_for_timeout(150)
                    page.screenshot(path=BUILD / f"{place.name}-{width}-{scheme}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
