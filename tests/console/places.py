"""Every page, for the tests that look at all of them: size, accessibility, pictures."""

import html
import re
import time
from collections.abc import Callable

from msgspec import Struct
from playwright.sync_api import Page

from tests.console.conftest import Running, Visitor, send
from tests.console.fleet import Family


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
    Place("question", lambda made: f"/runs/{made['booking']}"),
    Place("failed", lambda made: f"/runs/{made['fussy']}"),
    Place("compare", lambda made: f"/runs/{made['writer']}/compare?other={made['echo']}"),
    Place("raw", lambda made: f"/runs/{made['writer']}/raw"),
    Place("agents", lambda _: "/agents"),
    Place("agent", lambda _: "/agents/fussy"),
    Place("adding", lambda _: "/agents/new"),
    Place("pairing", lambda _: "/agents/laptop/pairing", "Create code"),
    Place("conversations", lambda _: "/conversations"),
    Place("conversation", lambda made: f"/conversations/{made['talk']}"),
    Place("difference", lambda made: f"/conversations/{made['talk']}/difference?{made['versions']}"),
    Place("orchestrations", lambda _: "/orchestrations"),
    Place("orchestration", lambda made: f"/orchestrations/{made['trip']}"),
    Place("steps", lambda made: f"/orchestrations/{made['large']}"),
    Place("organisation", lambda _: "/organisation"),
    Place("topology", lambda _: "/topology"),
    Place("usage", lambda _: "/usage"),
    Place("limits", lambda _: "/limits"),
    Place("operations", lambda _: "/operations"),
    Place("dead", lambda _: "/operations/dead"),
    Place("keys", lambda _: "/operations/keys"),
    Place("settings", lambda _: "/operations/settings"),
    Place("api", lambda _: "/docs"),
    Place("actions", lambda _: "/docs/actions"),
    Place("runtime", lambda _: "/docs/runtime"),
    Place("nothing", lambda _: "/nothing"),
]


def demo(server: Running) -> dict[str, str]:
    """Runs of every kind, and an agent that can be paired; what the runs are called, by their agents."""
    asked = {
        "echo": "hello", "writer": "Lisbon", "relay": "pass it on", "painter": "go", "booking": "Lisbon, with details",
        "fussy": "please fail",
        "accounts": 'use books/supabase-query {"query": {"table": "financial_transactions", "limit": 2}}',
    }  # fmt: skip
    family = Family(server)
    family.online(family.top)
    family.online(family.left)
    with Visitor(server) as visitor:
        visitor.post("/agents/new/pairing", {"name": "Laptop"})
        visitor.post("/operations/keys", {"name": "ci", "role": "user", "groups": "build"})
        visitor.post("/limits", {"kind": "group", "name": "build", "cost_day": "5", "tree_depth": "4"})
        visitor.post("/stops", {"kind": "principal", "name": "user:mallory", "reason": "a loop"})
        more = {"large": _large(visitor), **_talk(server, visitor), "trip": _trip(visitor)}
    send(server, "house", "Fix the bug in app.py")
    return {agent: send(server, agent, text) for agent, text in asked.items()} | more


def _talk(server: Running, visitor: Visitor) -> dict[str, str]:
    """A conversation with a plan of three versions, and a deliverable."""
    begun = visitor.post("/conversations", {"agent": "author", "text": "A picnic by the river for six"})
    talk = begun.headers["location"].rpartition("/")[2]
    for kind in ("plan", "deliverable"):
        visitor.post(f"/conversations/{talk}/create", {"kind": kind, "text": "A picnic with friends"})
    shown = _until(lambda: visitor.get(f"/conversations/{talk}").text, lambda text: text.count("version 1") == 2)
    edited = html.unescape(re.findall(r'<textarea id="edit-plan"[^>]*>(.*?)</textarea>', shown, re.DOTALL)[0])
    changed = edited.replace("Ask who comes", "Ask who comes, and when").replace("in the shade", "in the sun")
    visitor.post(f"/conversations/{talk}/edit", {"kind": "plan", "content": changed})
    shown = visitor.get(f"/conversations/{talk}").text
    new, old = re.findall(r"\?plan=([\w-]+)", shown)[:2]
    return {"talk": talk, "versions": f"kind=plan&from={old}&to={new}"}


def _trip(visitor: Visitor) -> str:
    """One that has failed halfway."""
    begun = visitor.post("/orchestrations", {"agent": "trip", "text": "fail on the way to Coimbra"})
    trip = begun.headers["location"].rpartition("/")[2]
    _until(lambda: visitor.get(f"/orchestrations/{trip}").text, lambda text: "Retry" in text)
    return trip


def _large(visitor: Visitor) -> str:
    begun = visitor.post("/orchestrations", {"agent": "large", "text": "the archive"})
    large = begun.headers["location"].rpartition("/")[2]
    _until(lambda: visitor.get(f"/orchestrations/{large}").text, lambda text: "200 of 200 steps" in text)
    return large


def _until(look: Callable[[], str], holds: Callable[[str], bool]) -> str:
    deadline = time.monotonic() + 20
    while not holds(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found
