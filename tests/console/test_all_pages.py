"""What holds for every page: it is small, it can be used by everybody, and it looks the same while it loads."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Running
from tests.console.places import PAGES, Place

MOST_BYTES = 150_000


@pytest.mark.slow
@pytest.mark.parametrize("place", PAGES, ids=lambda place: place.name)
def test_a_page_can_be_used_by_everybody(
    place: Place, server: Running, made: dict[str, str], browser: Browser
) -> None:  # fmt: skip
    """axe finds nothing serious, light or dark, on a phone or a large screen; and all of it is small."""
    for scheme, width in (("light", 390), ("dark", 1280)):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True
        )  # fmt: skip
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        sizes: list[float] = []
        session.on("Network.loadingFinished", lambda told, sizes=sizes: sizes.append(told["encodedDataLength"]))
        place.visit(page, server.console, made)
        page.wait_for_timeout(100)
        assert 0 < sum(sizes) < MOST_BYTES, f"{place.name}: {sum(sizes):.0f} bytes"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{place.name} at {width}"
        found = Axe().run(page).response["violations"]
        serious = [
            (one["id"], [node["html"][:120] for node in one["nodes"]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], f"{place.name}, {scheme}"
        context.close()


def test_the_keyboard_reaches_everything(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/runs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.set_viewport_size({"width": 390, "height": 844})
    menu = page.get_by_role("button", name="Menu")
    menu.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Agents")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Agents")).to_be_hidden()
    expect(menu).to_be_focused()


def test_colours_follow_the_machine_until_somebody_chooses(server: Running, page: Page) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    page.emulate_media(color_scheme="light")
    page.goto(f"{server.console}/runs")
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    page.get_by_role("button", name="Automatic colours; change").click()
    page.get_by_role("button", name="Dark colours; change").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate(ground) == light
    page.get_by_role("button", name="Light colours; change").click()
    assert page.evaluate(ground) == dark


def test_nothing_is_asked_of_anybody_else(server: Running, made: dict[str, str], page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for place in PAGES:
        place.visit(page, server.console, made)
    assert [url for url in asked if not url.startswith(server.url)] == []
