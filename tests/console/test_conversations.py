"""Conversations, and the plan and the deliverable beside them."""

import re

import httpx2
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Running


def begun(server: Running, page: Page, text: str) -> None:
    page.goto(f"{server.console}/conversations")
    page.get_by_label("Agent").select_option("author")
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Start conversation").click()
    expect(page.locator(".talk .entry[data-kind=agent]").first).to_contain_text("A picnic by the river")
    expect(page.locator("#say")).to_be_visible()


def sheet(page: Page, kind: str) -> Locator:
    return page.locator(f".sheet-card[data-kind={kind}]")


def written(page: Page, kind: str, text: str, number: int) -> None:
    form = sheet(page, kind).locator("form.answer")
    form.get_by_role("textbox").fill(text)
    form.get_by_role("button").click()
    expect(sheet(page, kind).locator("header")).to_contain_text(f"version {number}", timeout=15_000)


def test_a_conversation_is_begun_and_goes_on(server: Running, page: Page) -> None:
    begun(server, page, "A picnic")
    page.locator("#say").fill("And who brings bread?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".talk .entry")).to_have_count(4)
    page.goto(f"{server.console}/conversations")
    expect(page.locator("li", has_text="And who brings bread?")).to_be_visible()


@pytest.mark.slow
def test_a_plan_is_written_edited_compared_merged_copied_and_taken_back(server: Running, page: Page) -> None:
    begun(server, page, "Something to plan")
    written(page, "plan", "A picnic", 1)
    plan = sheet(page, "plan")
    plan.get_by_text("Edit", exact=True).click()
    editor = plan.get_by_label("Content of the plan")
    editor.fill(editor.input_value().replace("Ask who comes", "Ask who comes, and when"))
    plan.get_by_role("button", name="Save as new version").click()
    expect(plan.locator("header")).to_contain_text("version 2")
    expect(plan).to_contain_text("Ask who comes, and when")

    plan.get_by_role("button", name="Compare").click()
    expect(page.locator("[data-kind=come] mark")).to_have_text(", and when")
    expect(page.locator(".difference-sum")).to_have_text("1 added, 1 removed")
    page.go_back()

    plan.get_by_text("Merge", exact=True).first.click()
    for box in plan.get_by_role("checkbox").all():
        box.check()
    plan.get_by_role("button", name="Merge").click()
    expect(plan.locator("header")).to_contain_text("version 3", timeout=15_000)

    plan.get_by_role("link", name="Version 1").click()
    expect(plan.locator("header")).to_contain_text("not current")
    plan.get_by_role("button", name="Copy version").click()
    expect(plan.get_by_role("link", name="Version 4")).to_be_visible()
    plan.get_by_role("link", name="Version 2").click()
    plan.get_by_role("button", name="Make current").click()
    expect(plan.locator("header")).to_contain_text("version 2")
    plan.get_by_role("link", name="Version 3").click()
    plan.get_by_role("button", name="Delete version").click()
    expect(plan.get_by_role("link", name="Version 3")).to_have_count(0)


def test_a_deliverable_is_made_again_and_the_whole_is_exported(server: Running, page: Page) -> None:
    begun(server, page, "Something to deliver")
    written(page, "deliverable", "A page", 1)
    sheet(page, "deliverable").get_by_role("button", name="Regenerate").click()
    expect(sheet(page, "deliverable").locator("header")).to_contain_text("version 2", timeout=15_000)
    page.locator("summary", has_text="Export").click()
    page.get_by_label("Format").select_option("markdown")
    page.get_by_role("button", name="Export").click()
    link = page.get_by_role("link", name=re.compile(r"\.md$"))
    expect(link).to_be_visible()
    exported = httpx2.get(str(link.get_attribute("href")))
    assert exported.status_code == 200
    assert "Something to deliver" in exported.text


def test_the_same_form_sent_twice_makes_one_version(server: Running, page: Page) -> None:
    begun(server, page, "Twice")
    written(page, "plan", "A picnic", 1)
    form = sheet(page, "plan").locator("form", has=page.get_by_role("button", name="Copy version"))
    fields = {one.get_attribute("name") or "": one.input_value() for one in form.locator("input").all()}
    address = f"{server.url}{form.get_attribute('action')}"
    for _ in range(2):
        assert page.request.post(address, form=fields, max_redirects=0).status == 303
    page.reload()
    expect(sheet(page, "plan").locator(".versions > li")).to_have_count(2)


def test_what_is_not_there_is_said(server: Running) -> None:
    for path, status in (
        ("/conversations/none-such", 404), ("/conversations/none-such?owner=user:eve", 404),
        ("/conversations?after=nonsense", 400), ("/conversations/none-such/difference?kind=plan&from=a&to=b", 404),
        ("/conversations/none-such/difference?kind=nothing", 400),
    ):  # fmt: skip
        assert httpx2.get(f"{server.console}{path}").status_code == status, path
