"""The agents' pages: what they show, and how agents are added, paired and removed."""

import re

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Running, send


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


def test_the_agent_remembers_what_was_said_while_it_is_tried(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/agents/author")
    box, out = page.get_by_label("Message to Author"), page.locator(".try-out")
    talks: list[str | None] = []
    for number in (1, 2):
        box.fill(f"Message {number}")
        box.press("Enter")
        expect(out.locator("run-timeline")).to_have_count(number)
        expect(out.locator("run-timeline").last).to_contain_text("A picnic by the river")
        talks.append(out.locator("run-timeline").last.get_attribute("data-conversation"))
    page.get_by_role("button", name="Start a new one").click()
    expect(out).to_be_hidden()
    box.fill("Another")
    box.press("Enter")
    expect(out).to_contain_text("A picnic by the river")
    assert talks[0] == talks[1] != out.locator("run-timeline").get_attribute("data-conversation")
    page.goto(f"{server.console}/conversations/{talks[0]}")
    expect(page.locator(".entry[data-kind=you]")).to_have_count(2)


def test_agents_are_searched(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/agents")
    rows = page.locator(".agent-table tbody tr")
    known = rows.count()
    page.get_by_label("Search agents").fill("counts SLOWLY")
    page.get_by_label("Search agents").press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("Slow")
    expect(rows).to_contain_text("function")
    expect(rows).to_contain_text(re.compile(r"agents\.py:\d+"))
    assert known > 10
    page.goto(f"{server.console}/agents?q=nothing-like-that")
    expect(page.get_by_text("No agent matches")).to_be_visible()


def test_an_agents_figures_are_those_of_its_stored_runs(server: Running, page: Page) -> None:
    for text in ("fail for the figures", "one", "two", "three"):
        send(server, "fussy", text)
    page.goto(f"{server.console}/agents/fussy")
    plots = page.locator(".agent-plot")
    expect(plots).to_have_count(3)
    expect(plots.first).to_contain_text(re.compile(r"\d+\.\d %"))
    expect(page.locator("#figures")).to_contain_text(re.compile(r"Latest \d+ runs"))
    expect(page.get_by_role("link", name="agent_error", exact=True)).to_be_visible()
    expect(page.locator("aside .facts")).to_contain_text("agents.py:")
    page.get_by_role("link", name="agent_error", exact=True).click()
    expect(page.get_by_text("fail for the figures")).to_be_visible()


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
