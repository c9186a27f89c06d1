"""An agent that says what pages are made of changes nothing but its own text."""

import re
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.agents import EVIL
from tests.console.conftest import Running, Visitor, open_menu, send, visitor_context


@pytest.fixture(scope="module")
def run(server: Running) -> str:
    return send(server, "evil", "<script>alert('asked')</script>")


@pytest.fixture
def wary(browser: Browser) -> Iterator[Page]:
    """A page that notes every dialog, every request that our pages do not make, and every frame."""
    context = visitor_context(browser)
    page = context.new_page()
    page.set_default_timeout(10_000)
    seen: list[str] = []
    page.on("dialog", lambda dialog: (seen.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda asked: seen.append(asked.url) if "evil-" in asked.url else None)
    page.on("frameattached", lambda frame: seen.append(f"frame {frame.url}"))
    yield page
    page.wait_for_timeout(200)
    assert seen == []
    assert page.evaluate("window.pwned") is None
    context.close()


def test_a_run_shows_it_as_text(server: Running, run: str, wary: Page) -> None:
    wary.goto(f"{server.console}/runs/{run}")
    expect(wary.get_by_role("heading", level=1)).to_contain_text("<b>Evil</b>")
    expect(wary.locator(".entries")).to_contain_text("<script>window.pwned = 1")
    assert wary.locator("main").count() == 1
    assert (
        wary.locator("main#content script, main#content iframe, main#content style, main#content [onerror]").count()
        == 0
    )
    links = [str(link.get_attribute("href")) for link in wary.locator(".entries a").all()]
    assert [href for href in links if not re.match(r"/console/|https?:|mailto:", href)] == []
    expect(wary.locator(".panel")).to_be_visible()
    # What is too long is cut, and no line is wider than the page.
    assert wary.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert len(wary.content()) < 1_000_000
    assert "\u2400" in wary.locator(".entries").inner_text(), "a control character is made visible"
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", wary.locator(".entries").inner_text())


@pytest.mark.parametrize(
    "path",
    [
        "/inbox", "/runs", "/agents", "/agents/evil", "/runs?agent=evil", "/usage", "/operations",
        "/runs/{run}/raw", "/runs/{run}/compare?other={run}",
        "/agents?q=%3Cimg+src%3Dx+onerror%3Dalert(9)%3E%22%3E%3Cscript%3E",
        "/runs?q=%3Cimg+src%3Dx+onerror%3Dalert(9)%3E",
    ],
)  # fmt: skip
def test_every_other_page_does_too(path: str, server: Running, run: str, wary: Page) -> None:
    wary.goto(f"{server.console}{path.format(run=run)}")
    open_menu(wary)
    expect(wary.get_by_role("navigation", name="Sections")).to_be_visible()
    assert wary.locator("main").count() == 1
    assert wary.locator("main script, main iframe, main style, main [onerror]").count() == 0
    assert wary.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_live_stream_brings_it_as_text(server: Running, wary: Page) -> None:
    wary.goto(f"{server.console}/agents/evil")
    wary.get_by_role("textbox").fill("go")
    wary.get_by_role("button", name="Send").click()
    expect(wary.locator(".try-out .entry[data-kind=question]")).to_contain_text("<script>", timeout=20_000)
    assert wary.locator(".try-out script, .try-out iframe, .try-out style, .try-out [onerror]").count() == 0


def test_no_file_of_an_agent_is_a_page_of_ours(server: Running, run: str, wary: Page) -> None:
    wary.goto(f"{server.console}/runs/{run}")
    files = [str(link.get_attribute("href")) for link in wary.locator(".piece a[download]").all()]
    assert len(files) == 4
    for path in files:
        for query in ("", "?look=1"):
            reply = httpx2.get(f"{server.url}{path}{query}")
            assert reply.headers["content-disposition"].startswith("attachment")
            assert "sandbox" in reply.headers["content-security-policy"]


def test_conversations_and_documents_show_it_as_text(server: Running, wary: Page) -> None:
    with Visitor(server) as visitor:
        said = {"text": "<script>alert('asked')</script>"}
        evil = visitor.post("/conversations", {"agent": "evil", **said}).headers["location"].rpartition("/")[2]
        begun = visitor.post("/conversations", {"agent": "author", **said})
        talk = begun.headers["location"].rpartition("/")[2]
        visitor.post(f"/conversations/{talk}/create", {"kind": "plan", "text": "<img src=x onerror=alert(1)>"})
        wary.goto(f"{server.console}/conversations/{talk}")
        plan = wary.locator(".sheet-card[data-kind=plan]")
        expect(plan.locator("header")).to_contain_text("version 1")
        visitor.post(f"/conversations/{talk}/edit", {"kind": "plan", "content": "</textarea><script>pwned=1</script>"})
    wary.reload()
    expect(plan.locator(".page-of")).to_contain_text("<script>pwned=1</script>")
    plan.get_by_role("button", name="Compare").click()
    expect(wary.locator(".difference")).to_contain_text("</textarea><script>pwned=1</script>")
    for path in (f"/conversations/{talk}", f"/conversations/{evil}", "/conversations"):
        wary.goto(f"{server.console}{path}")
        assert wary.locator("main#content script, main#content iframe, main#content [onerror]").count() == 0
        assert wary.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_chat_shows_hostile_messages_files_and_streams_as_text(server: Running, wary: Page) -> None:
    wary.goto(f"{server.console}/conversations")
    wary.get_by_label("Agent").select_option("describer")
    code = "```\n</code></pre><script>window.pwned=1</script>\n```"
    text = f"{EVIL}\n\n{code}\n👩‍👧\u202e \x1b[31m {'wide ' * 3000}{'x' * 20000}"
    wary.locator("#say").fill(text)
    name = "\u202egnp.<img src=x onerror=alert(1)>.png"
    files = [
        {"name": name, "mimeType": "image/png", "buffer": b"<svg onload=alert(1)>"},
        {"name": "page.txt", "mimeType": "text/plain", "buffer": b"<script>alert(1)</script>"},
    ]
    wary.get_by_label("Attach files").set_input_files(files=files)  # pyright: ignore[reportArgumentType]
    expect(wary.locator(".chosen li")).to_have_count(2)
    for width in (390, 1440):
        wary.set_viewport_size({"width": width, "height": 900})
        assert wary.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wary.get_by_role("button", name="Start conversation").click()
    expect(wary.locator(".entry[data-kind=agent]")).to_contain_text("page.txt", timeout=20_000)
    for width in (390, 1440):
        wary.set_viewport_size({"width": width, "height": 900})
        assert wary.evaluate("document.documentElement.scrollWidth <= innerWidth")
    inside = (
        "main#content script, main#content iframe, main#content style, main#content [onerror], main#content svg[onload]"
    )
    assert wary.locator(inside).count() == 0
    assert wary.locator("main").count() == 1
    wary.get_by_text("Edit and resend").click()
    wary.get_by_label("Edited message").fill("<img src=/console/evil-edit onerror=alert(1)>")
    wary.get_by_role("button", name="Resend").click()
    expect(wary.locator(".entry[data-kind=you]").last).to_contain_text("evil-edit")
    assert wary.locator(inside).count() == 0


def test_an_orchestration_shows_it_as_text(server: Running, wary: Page) -> None:
    with Visitor(server) as visitor:
        begun = visitor.post("/orchestrations", {"agent": "trip", "text": EVIL})
    wary.goto(f"{server.url}{begun.headers['location']}")
    expect(wary.locator(".graph .node")).to_have_count(4)
    wary.get_by_label("Search steps").fill("<script>")
    assert wary.locator("main#content script, main#content iframe, main#content [onerror]").count() == 0
    assert wary.evaluate("document.documentElement.scrollWidth <= innerWidth")
