"""Conversations, and the plan and the deliverable beside them."""

import re

import httpx2
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.agents import png
from tests.console.conftest import Running, Visitor


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
    if not sheet(page, kind).count():
        page.locator("summary", has_text="Write a ").click()
    text_field = page.get_by_label(f"What the {kind} should contain")
    text_field.fill(text)
    text_field.press("Enter")
    expect(sheet(page, kind).locator("header")).to_contain_text(f"version {number}", timeout=15_000)


def test_a_conversation_is_begun_and_goes_on(server: Running, page: Page) -> None:
    begun(server, page, "A picnic")
    page.locator("#say").fill("And who brings bread?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".talk .entry")).to_have_count(4)
    page.goto(f"{server.console}/conversations")
    expect(page.locator("li", has_text="And who brings bread?")).to_be_visible()


def test_a_plan_and_a_deliverable_are_beside_the_chat_only_when_they_exist(server: Running, page: Page) -> None:
    begun(server, page, "Only words")
    expect(page.locator(".sheet-card")).to_have_count(0)
    written(page, "plan", "A picnic", 1)
    page.set_viewport_size({"width": 1440, "height": 900})
    chat, plan = page.locator(".talk").bounding_box(), sheet(page, "plan").bounding_box()
    assert chat is not None
    assert plan is not None
    assert plan["x"] >= chat["x"] + chat["width"]
    expect(sheet(page, "deliverable")).to_have_count(0)


def test_enter_sends_and_shift_enter_adds_a_line(server: Running, page: Page) -> None:
    begun(server, page, "Lines")
    page.locator("#say").press_sequentially("one")
    page.locator("#say").press("Shift+Enter")
    page.locator("#say").press_sequentially("two")
    page.locator("#say").press("Enter")
    expect(page.locator(".entry[data-kind=you]")).to_have_count(2)
    expect(page.locator(".entry[data-kind=you]").last).to_contain_text(re.compile("one\\s+two"))
    page.locator("#say").press("Enter")
    assert page.evaluate("document.querySelector('#say').validationMessage") != ""


def test_files_are_sent_with_a_preview_and_shown(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/conversations")
    page.get_by_label("Agent").select_option("describer")
    files = [
        {"name": "square.png", "mimeType": "image/png", "buffer": png()},
        {"name": "<b>n.txt", "mimeType": "text/plain", "buffer": b"plain text"},
        {"name": "gone.txt", "mimeType": "text/plain", "buffer": b"gone"},
    ]
    page.get_by_label("Attach files").set_input_files(files=files)  # pyright: ignore[reportArgumentType]
    expect(page.get_by_role("img", name="Preview of square.png")).to_be_visible()
    page.get_by_role("button", name="Remove gone.txt").click()
    expect(page.locator(".chosen li")).to_have_count(2)
    page.get_by_role("button", name="Start conversation").click()
    asked = page.locator(".entry[data-kind=you]")
    expect(page.locator(".entry[data-kind=agent]")).to_contain_text("square.png image/png")
    expect(asked.locator(".piece[data-kind=image] img")).to_be_visible()
    assert asked.locator("img").evaluate("image => image.naturalWidth") == 48
    expect(asked.locator(".piece").last).to_contain_text("<b>n.txt")


def test_text_is_formatted_while_it_streams_and_its_code_can_be_copied(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/conversations")
    page.get_by_label("Agent").select_option("lecturer")
    page.locator("#say").fill("go")
    page.locator("#say").press("Enter")
    expect(page.locator(".growing strong").first).to_have_text("bold", timeout=20_000)
    expect(page.locator(".growing pre")).to_have_count(1)
    page.get_by_role("button", name="Cancel run").click()
    expect(page.locator("#say")).to_be_visible()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy code").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").strip() == "print(1)"


def test_a_message_is_edited_and_sent_again(server: Running, page: Page) -> None:
    begun(server, page, "The first wording")
    first = page.locator(".entry[data-kind=you]").first
    first.get_by_text("Edit and resend").click()
    first.get_by_label("Edited message").fill("The second wording")
    first.get_by_role("button", name="Resend").click()
    expect(page.locator(".entry[data-kind=agent]")).to_have_count(2)
    expect(page.locator(".entry[data-kind=you]").last).to_contain_text("The second wording")
    expect(page.locator(".entry[data-kind=you]").first).to_contain_text("The first wording")
    page.locator(".entry[data-kind=you]").last.get_by_role("link", name="view run").click()
    expect(page.locator(".facts")).to_contain_text("Fork of")


def test_only_a_message_of_the_conversation_is_sent_again(server: Running, made: dict[str, str]) -> None:
    with Visitor(server) as visitor:
        visitor.get("/conversations")
        at = f"/conversations/{made['talk']}/resend"
        for message, status in (
            (f"{made['writer']}.2", 400), ("none.2", 404), ("", 404), (f"{made['writer']}.x", 400),
        ):  # fmt: skip
            assert visitor.post(at, {"message": message, "text": "again"}).status_code == status, message
        assert visitor.post(at, {"message": f"{made['writer']}.2", "text": " "}).status_code == 400


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
    expect(page.locator("#say")).to_be_visible()
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
    expect(form.locator("input")).not_to_have_count(0)
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
