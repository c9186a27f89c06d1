"""Every page, for the tests that look at all of them: size, accessibility, pictures."""

from collections.abc import Callable

from msgspec import Struct
from playwright.sync_api import Page

from tests.console.conftest import Running, Visitor, send


class Place(Struct, frozen=True):
    name: str
    path: Callable[[dict[str, str]], str]
    """Below `/console`, for what `demo` has made."""
    press: str = ""
    """A button that is pressed first."""

    def visit(self, page: Page, console: str, made: dict[str, str]) -> None:
        page.goto(f"{console}{self.path(made)}")
        if self.press:
            page.get_by_role("button", name=self.press).click()
            page.wait_for_load_state()


PAGES: list[Place] = [
    Place("inbox", lambda _: "/inbox"),
    Place("runs", lambda _: "/runs"),
    Place("run", lambda made: f"/runs/{made['writer']}"),
    Place("files", lambda made: f"/runs/{made['painter']}"),
    Place("tools", lambda made: f"/runs/{made['accounts']}"),
    Place("raw", lambda made: f"/runs/{made['writer']}/raw"),
    Place("agents", lambda _: "/agents"),
    Place("agent", lambda _: "/agents/writer"),
    Place("adding", lambda _: "/agents/new"),
    Place("pairing", lambda _: "/agents/laptop/pairing", "Make a code"),
    Place("nothing", lambda _: "/nothing"),
]


def demo(server: Running) -> dict[str, str]:
    """Runs of every kind, and an agent that can be paired; what the runs are called, by their agents."""
    asked = {
        "echo": "hello", "writer": "Lisbon", "relay": "pass it on", "painter": "go",
        "accounts": 'use books/supabase-query {"query": {"table": "financial_transactions", "limit": 2}}',
    }  # fmt: skip
    with Visitor(server) as visitor:
        visitor.post("/agents/new/pairing", {"name": "Laptop"})
    return {agent: send(server, agent, text) for agent, text in asked.items()}
