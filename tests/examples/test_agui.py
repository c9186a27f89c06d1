"""The page of `examples/agui`, built and used in a browser."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from examples.agui.build import build
from tests.examples.test_web import BROWSER, free_port, hosted, page, parley

__all__ = ["page"]

AGENTS = Path(__file__).parent.parent / "faces" / "agui" / "agents.py"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no browser; make browser installs one")]
expect.set_options(timeout=20_000)


@pytest.fixture
def origin() -> Iterator[str]:
    with hosted(build()) as url:
        yield url


def messages(page: Page) -> list[str]:
    return page.locator("#messages li").all_inner_texts()


def test_an_answer_goes_on_in_another_tab_and_after_the_server_was_killed(
    tmp_path: Path, origin: str, page: Page
) -> None:
    port = free_port()
    with parley(tmp_path, origin, port, AGENTS) as server:
        page.goto(f"{origin}/?server={server}&agent=gated")
        page.get_by_label("Message").fill("Begin")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#messages li")).to_have_text(["Begin", "First, "])
        page.goto("about:blank")
        page.goto(f"{origin}/?server={server}&agent=gated")
        expect(page.locator("#messages li")).to_have_text(["Begin", "First, "])
    (tmp_path / "gate").touch()
    with parley(tmp_path, origin, port, AGENTS):
        expect(page.locator("#messages li").last).to_have_text("First, then.")
        assert messages(page)[0] == "Begin"
        assert page.locator("#trouble").inner_text() == ""


def test_a_question_is_answered_with_a_button_or_elsewhere(tmp_path: Path, origin: str, page: Page) -> None:
    with parley(tmp_path, origin, free_port(), AGENTS) as server:
        page.goto(f"{origin}/?server={server}&agent=poet")
        page.get_by_label("Message").fill("A poem")
        page.get_by_role("button", name="Send").click()
        page.get_by_role("button", name="blue").click()
        expect(page.locator("#messages li").last).to_have_text("Bye.")
        assert messages(page) == ["A poem", "Roses are", "Which colour?", "blue", "blue.", "Bye."]
        expect(page.locator("#artifacts li")).to_have_text('Result: [{"data":{"colour":"blue"}}]')
        page.get_by_label("Message").fill("Another")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("button", name="red")).to_be_visible()
        assert page.context.browser is not None
        console = page.context.browser.new_page()
        task = json.loads(page.evaluate("localStorage.getItem('poet')"))["task"]
        console.goto(f"{server}/console/runs/{task}")
        console.get_by_role("button", name="red").click()
        expect(page.locator("#messages li").last).to_have_text("Bye.")
        assert messages(page)[-3:] == ["red", "red.", "Bye."]
        assert page.locator("#trouble").inner_text() == ""
