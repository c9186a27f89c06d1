"""Every page, for the tests that look at all of them: size, accessibility, pictures."""

from collections.abc import Callable

from msgspec import Struct

from tests.console.conftest import Running, send


class Place(Struct, frozen=True):
    name: str
    path: Callable[[dict[str, str]], str]
    """Below `/console`, for what `demo` has made."""


PAGES: list[Place] = [
    Place("inbox", lambda _: "/inbox"),
    Place("runs", lambda _: "/runs"),
    Place("run", lambda made: f"/runs/{made['writer']}"),
    Place("raw", lambda made: f"/runs/{made['writer']}/raw"),
    Place("agents", lambda _: "/agents"),
    Place("agent", lambda _: "/agents/writer"),
    Place("nothing", lambda _: "/nothing"),
]


def demo(server: Running) -> dict[str, str]:
    """Runs of every kind; what they are called."""
    return {
        "echo": send(server, "echo", "hello"),
        "writer": send(server, "writer", "Lisbon"),
        "relay": send(server, "relay", "pass it on"),
    }
