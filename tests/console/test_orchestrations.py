"""Orchestrations, drawn and steered."""

import re

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Running, Visitor


def begun(server: Running, page: Page, text: str) -> None:
    page.goto(f"{server.console}/orchestrations")
    page.get_by_label("Agent").select_option("trip")
    page.get_by_label("Goal").fill(text)
    page.get_by_role("button", name="Start orchestration").click()
    expect(page.locator(".graph .node")).to_have_count(4)


def status(page: Page, number: int, is_: str) -> None:
    expect(page.locator(f"#node-{number}")).to_have_attribute("data-status", is_)


@pytest.mark.slow
def test_a_plan_takes_on_the_colours_of_what_happens_and_is_paused_and_resumed(server: Running, page: Page) -> None:
    begun(server, page, "Porto slowly")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".panel")).to_contain_text("paused")
    status(page, 3, "completed")
    status(page, 4, "pending")
    page.get_by_role("button", name="Resume").click()
    status(page, 4, "completed")
    expect(page.locator(".panel")).to_contain_text("4 of 4 steps completed")
    page.goto(f"{server.console}/orchestrations")
    expect(page.locator("li", has_text="Porto slowly")).to_contain_text("completed")


def test_a_failed_step_is_tried_again(server: Running, page: Page) -> None:
    begun(server, page, "fail in Faro")
    status(page, 3, "failed")
    page.get_by_role("button", name="Retry").click()
    status(page, 4, "completed")
    expect(page.locator(".panel")).to_contain_text("completed")


def test_a_copy_runs_again_from_a_step(server: Running, page: Page) -> None:
    begun(server, page, "Tavira")
    status(page, 4, "completed")
    before = page.url
    page.locator("#step-3").get_by_role("button", name="Run again from here").click()
    page.wait_for_url(lambda url: url != before)
    status(page, 4, "completed")
    expect(page.locator(".critical-path")).to_contain_text("→ 4")
    with Visitor(server) as visitor:
        visitor.get("/runs")
        at = f"{before.removeprefix(server.console)}/rerun"
        assert visitor.post(at, {"step": "none"}).status_code == 400


def test_a_large_plan_is_searched_zoomed_and_jumped_in(server: Running, page: Page) -> None:
    with Visitor(server) as visitor:
        reply = visitor.post("/orchestrations", {"agent": "large", "text": "Everything"})
        page.goto(f"{server.console}{reply.headers['location'].removeprefix('/console')}")
    expect(page.locator(".graph .node")).to_have_count(200)
    expect(page.locator(".panel")).to_contain_text("200 of 200 steps")
    box = page.locator(".graph-box")
    page.get_by_role("button", name="Fit").click()
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight")
    before = page.locator(".zoom").inner_text()
    page.get_by_role("button", name="Zoom in").click()
    expect(page.locator(".zoom")).not_to_have_text(before)
    box.press("0")
    expect(page.locator(".zoom")).to_have_text(before)
    page.get_by_label("Search steps").fill("part 137")
    expect(page.locator(".step-row:visible")).to_have_count(1)
    expect(page.locator(".found")).to_have_text("1 found")
    page.get_by_label("Search steps").fill("")
    page.locator(".critical-path a").last.click()
    expect(page.locator("#step-200")).to_be_in_viewport()
    expect(page.locator("#node-200")).to_have_class(re.compile("chosen"))


def test_a_failed_step_is_one_click_away(server: Running, page: Page) -> None:
    begun(server, page, "fail in Lagos")
    status(page, 3, "failed")
    page.locator(".jump", has_text="Failed").get_by_role("link").click()
    expect(page).to_have_url(re.compile("#step-3$"))
    expect(page.locator("#step-3 .step-bar")).to_be_visible()


def test_one_is_canceled_and_its_steps_with_it(server: Running, page: Page) -> None:
    begun(server, page, "Sines slowly")
    status(page, 3, "running")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".panel")).to_contain_text("cancelled")
    status(page, 4, "cancelled")


def test_the_stream_goes_on_after_the_last_event_that_was_seen(server: Running, page: Page) -> None:
    begun(server, page, "Evora")
    status(page, 4, "completed")
    source = page.locator("live-orchestration").get_attribute("data-src")
    whole = httpx2.get(f"{server.url}{source}").text
    seen = [line.removeprefix("id: ") for line in whole.splitlines() if line.startswith("id: ")]
    rest = httpx2.get(f"{server.url}{source}", headers={"Last-Event-ID": seen[0]}).text
    assert [line for line in rest.splitlines() if line.startswith("id: ")] == [f"id: {one}" for one in seen[1:]]
    assert rest.endswith("event: end\ndata: {}\n\n")


def test_what_is_no_orchestration_is_not_found(server: Running) -> None:
    assert httpx2.get(f"{server.console}/orchestrations/none-such").status_code == 404
