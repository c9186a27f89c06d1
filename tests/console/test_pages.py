"""The frame, and every page in it."""

import httpx2
from playwright.sync_api import Page, expect

from tests.console.conftest import Running, Visitor, open_menu, send


def test_the_console_begins_with_the_inbox(server: Running, page: Page) -> None:
    page.goto(server.console)
    assert page.url == f"{server.console}/inbox"
    open_menu(page)
    expect(page.get_by_role("navigation", name="Sections").get_by_role("link", name="Inbox")).to_be_visible()
    expect(page.locator("#connection")).to_contain_text("Connected")


def test_a_question_is_answered_in_the_inbox(server: Running, page: Page) -> None:
    run = send(server, "writer", "Braga")
    page.goto(f"{server.console}/inbox")
    card = page.locator("article", has_text="Braga")
    card.get_by_role("textbox").fill("Ann")
    card.get_by_role("textbox").press("Enter")
    expect(card.locator(".outcome")).to_contain_text("completed")
    expect(card.locator(".outcome")).to_contain_text("The postcard to Ann is ready.")
    page.goto(f"{server.console}/runs/{run}")
    expect(page.get_by_text("The postcard to Ann is ready.")).to_be_visible()


def test_an_approval_shows_the_exact_input_and_is_given_with_a_button(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/inbox")
    before = page.locator(".count")
    count = int(before.inner_text().split()[0]) if before.count() else 0
    send(server, "careful", "delete the archive")
    card = page.locator("article", has_text="delete the archive")
    expect(card.get_by_role("heading")).to_contain_text("asks for approval")
    expect(card.locator("pre")).to_contain_text('"path": "/archive/2019"')
    expect(page.locator(".count")).to_contain_text(str(count + 1))
    card.get_by_role("button", name="Approve").click()
    expect(card.locator(".outcome")).to_contain_text("You said yes.")
    expect(page.get_by_text("Answer sent.")).to_be_visible()


def test_a_checkpoint_shows_the_output_of_its_step(server: Running, page: Page) -> None:
    with Visitor(server) as visitor:
        visitor.post("/orchestrations", {"agent": "review", "text": "a picnic at the lake"})
    page.goto(f"{server.console}/inbox")
    card = page.locator("article", has_text="a picnic at the lake")
    expect(card.get_by_role("heading").first).to_contain_text("asks after step Draft")
    expect(card).to_contain_text("Find a place in the shade")
    expect(card.get_by_role("button", name="Retry step")).to_be_visible()
    card.get_by_role("button", name="Abort").click()
    expect(card.locator(".outcome")).to_contain_text("aborted")


def test_every_answer_forbids_scripts_that_are_not_ours(server: Running) -> None:
    for path in ("/inbox", "/nothing", "/runs", "/login"):
        reply = httpx2.get(f"{server.console}{path}", headers={"Accept": "text/html"})
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_a_form_without_its_token_changes_nothing(server: Running) -> None:
    run = send(server, "writer", "Evora")
    with httpx2.Client(base_url=server.url) as http:
        http.get("/console/inbox")
        for form in ({"text": "Eve"}, {"text": "Eve", "csrf": "0" * 64}):
            reply = http.post(f"/console/runs/{run}/answer", data=form)
            assert reply.status_code == 403
            assert "forged_request" in reply.text
        foreign = http.post("/console/theme", data={"theme": "dark"}, headers={"Origin": "https://elsewhere.example"})
        assert foreign.status_code == 403
        assert http.get(f"/agents/writer/tasks/{run}", headers={"A2A-Version": "1.0"}).json()["status"]["state"] == (
            "TASK_STATE_INPUT_REQUIRED"
        )


def test_what_is_not_there_has_a_page_that_says_so(server: Running, page: Page) -> None:
    reply = page.goto(f"{server.console}/runs/nothing-like-it")
    assert reply is not None
    assert reply.status == 404
    expect(page.get_by_role("heading", name="Task not found.")).to_be_visible()
