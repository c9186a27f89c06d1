"""Checks of every page, whichever server serves it: axe finds nothing serious, light or dark, on any screen size;
nothing is wider than the window; and all of it is small."""

from collections.abc import Callable
from itertools import product

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

MOST_BYTES = 150_000


def check(browser: Browser, name: str, visit: Callable[[Page], object]) -> None:
    for scheme, width in product(("light", "dark"), (390, 1440)):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True
        )  # fmt: skip
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        sizes: list[float] = []
        session.on("Network.loadingFinished", lambda told, sizes=sizes: sizes.append(told["encodedDataLength"]))
        visit(page)
        page.wait_for_timeout(100)
        assert 0 < sum(sizes) < MOST_BYTES, f"{name}: {sum(sizes):.0f} bytes"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} at {width}"
        assert serious(page) == [], f"{name}, {scheme}"
        context.close()


def serious(page: Page) -> list[tuple[str, list[str]]]:
    """Return the serious findings of axe on a page as it is now."""
    found = Axe().run(page).response["violations"]
    return [
        (one["id"], [node["html"][:120] for node in one["nodes"]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
