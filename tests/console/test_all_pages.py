"""Every page is small, is accessible, and looks the same while it loads."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Running
from tests.console.fitness import check
from tests.console.places import PAGES, Place


@pytest.mark.slow
@pytest.mark.parametrize("place", PAGES, ids=lambda place: place.name)
def test_a_page_can_be_used_by_everybody(
    place: Place, server: Running, made: dict[str, str], browser: Browser
) -> None:  # fmt: skip
    check(browser, place.name, lambda page: place.visit(page, server.console, made))


def test_the_keyboard_reaches_everything(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/runs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
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


def test_shortcuts_lead_to_pages_and_rows_and_can_be_switched_off(
    server: Running, made: dict[str, str], page: Page
) -> None:  # fmt: skip
    page.goto(f"{server.console}/inbox")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url(f"{server.console}/runs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    rows = page.locator("tr.run-row th a")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(rows.first).to_be_focused()
    first = str(rows.first.get_attribute("href"))
    page.keyboard.press("Enter")
    page.wait_for_url(f"{server.url}{first}")
    page.goto(f"{server.console}/conversations/{made['talk']}")
    page.keyboard.press("/")
    expect(page.locator("#say")).to_be_focused()
    page.keyboard.type("g?")
    expect(page.locator("#say")).to_have_value("g?")
    page.goto(f"{server.console}/agents")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(keys).to_be_visible()
    keys.get_by_label("Use shortcuts in this browser").uncheck()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    page.reload()
    page.keyboard.press("?")
    expect(keys).to_be_hidden()
    page.get_by_role("button", name="Shortcuts").click()
    keys.get_by_label("Use shortcuts in this browser").check()
    keys.get_by_role("button", name="Close").click()
    expect(keys).to_be_hidden()


def test_words_of_the_domain_are_explained(server: Running, made: dict[str, str], page: Page) -> None:
    for path, word, text in (
        ("/organisation", "PACE", "Primary, alternate, contingent, emergency"),
        ("/organisation", "SALUTE", "Size, activity, location, unit, time, equipment"),
        ("/operations", "replicas and leases", "Each renews its lease"),
        ("/agents/slow", "Driver", "How the agent does its work"),
        (f"/orchestrations/{made['large']}", "Critical path", "depends on"),
    ):
        page.goto(f"{server.console}{path}")
        about = page.locator(".help", has=page.locator(f"summary[aria-label='About {word}']"))
        expect(about.locator(".help-text")).to_be_hidden()
        about.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(about.locator(".help-text")).to_contain_text(text)


def test_colours_follow_the_machine_until_somebody_chooses(server: Running, page: Page) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    page.emulate_media(color_scheme="light")
    page.goto(f"{server.console}/runs")
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    page.get_by_role("button", name="Automatic theme; switch").click()
    page.get_by_role("button", name="Dark theme; switch").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate(ground) == light
    page.get_by_role("button", name="Light theme; switch").click()
    assert page.evaluate(ground) == dark


def test_nothing_is_asked_of_anybody_else(server: Running, made: dict[str, str], page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for place in PAGES:
        place.visit(page, server.console, made)
    assert [url for url in asked if not url.startswith(server.url)] == []
