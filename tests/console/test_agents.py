"""The agents' pages: what they show, and how agents are added, paired and removed."""

import re

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Running


def test_an_agents_card_is_shown_as_people_read_it(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/agents")
    page.get_by_role("link", name="Sleeper").click()
    expect(page.get_by_role("heading", level=1, name="Sleeper")).to_be_visible()
    facts = page.locator("aside .facts")
    expect(facts).to_contain_text(re.compile(r"Working now\s*\d of 2"))
    expect(facts).to_contain_text(re.compile(r"Queued\s*0 of 5"))
    expect(facts).to_contain_text("3600 s")
    expect(facts).to_contain_text(f"{server.url}/agents/sleeper")


def test_an_agent_is_tried_without_leaving_the_page(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/agents/writer")
    page.get_by_label("Message to Writer").fill("Tomar")
    page.get_by_label("Message to Writer").press("Enter")
    out = page.locator(".try-out")
    expect(out).to_contain_text("Greetings from Tomar!")
    out.get_by_label("Your answer").fill("Dora")
    out.get_by_label("Your answer").press("Enter")
    expect(out).to_contain_text("The postcard to Dora is ready.")


def test_an_agent_is_added_by_the_address_of_its_card(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/agents/new")
    form = page.locator("section", has=page.get_by_role("heading", name="From a card"))
    form.get_by_label("URL", exact=True).fill(f"{server.url}/agents/nobody")
    form.get_by_role("button", name="Add agent").click()
    expect(page.get_by_role("alert")).to_contain_text("answered 404")
    form.get_by_label("URL", exact=True).fill(f"{server.url}/agents/echo")
    form.get_by_label("Slug").fill("faraway")
    form.get_by_role("button", name="Add agent").click()
    page.wait_for_url(f"{server.console}/agents/faraway")
    page.get_by_role("textbox").fill("from afar")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".try-out .entry[data-kind=agent]")).to_contain_text("from afar")
    page.get_by_role("button", name="Remove agent").click()
    expect(page).to_have_url(f"{server.console}/agents")
    expect(page.get_by_role("link", name="Faraway")).to_have_count(0)


def test_an_agent_is_added_by_a_definition_from_a_file(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/agents/new")
    page.get_by_label("Load from file").set_input_files(
        files=[{"name": "a.yaml", "mimeType": "text/yaml", "buffer": b"slug: noted\nname: Noted\ndrivr: llm\n"}]
    )
    text = page.get_by_role("textbox", name="Definition")
    expect(text).to_have_value(re.compile("drivr"))
    page.locator("section.wide").get_by_role("button", name="Add agent").click()
    expect(page.get_by_role("alert")).to_contain_text("did you mean driver?")
    text.fill("slug: noted\nname: Noted\ndriver: llm\nmodel: offline\n")
    page.locator("section.wide").get_by_role("button", name="Add agent").click()
    expect(page.get_by_role("heading", level=1, name="Noted")).to_be_visible()


@pytest.mark.slow
def test_the_page_turns_green_when_the_runtime_attaches(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/agents/new")
    form = page.locator("section", has=page.get_by_role("heading", name="On another computer"))
    form.get_by_label("Name").fill("My Laptop!")
    form.get_by_role("button", name="Add and pair").click()
    page.wait_for_url(f"{server.console}/agents/my-laptop/pairing")
    page.get_by_role("button", name="Create code").click()
    words = page.locator(".instruction pre").inner_text()
    assert 'my agent "My Laptop!"' in words
    left = page.locator(".left")
    expect(left).to_have_text(re.compile(r"^\d+:\d\d$"))
    before = left.inner_text()
    expect(left).not_to_have_text(before)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy instruction").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == words
    code = re.search(r"--code (\S+)", words)
    assert code is not None
    attach = {"pairing_token": code[1], "runtime_name": "laptop", "runtime_version": "1.2.3"}
    httpx2.post(f"{server.url}/agent-runtimes/runtime/attach-via-pairing", json=attach).raise_for_status()
    expect(page.locator("pair-watch.attached .runtime[data-kind=good]")).to_contain_text("laptop is attached")
    expect(page.locator(".code-card")).to_be_hidden()
    page.reload()
    page.get_by_role("button", name="Revoke runtime").click()
    expect(page.locator(".runtime")).to_contain_text("No runtime attached")


def test_an_agent_that_works_here_cannot_be_paired(server: Running, page: Page) -> None:
    reply = page.goto(f"{server.console}/agents/echo/pairing")
    assert reply is not None
    assert reply.status == 409
    expect(page.get_by_text("runs on this server")).to_be_visible()
