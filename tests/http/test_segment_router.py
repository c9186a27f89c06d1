"""Routes are found by their first segment, as if all had been tried in their order."""

import pytest
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from parley.http.requests import Endpoint
from parley.http.table import SegmentRouter


def _route(path: str, *methods: str) -> Route:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "found", "path": path, "methods": sorted(methods), **scope["path_params"]})

    return Route(path, Endpoint(handler), methods=list(methods))


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "nothing"})


ROUTES = [
    _route("/", "GET"),
    _route("/runs/{id}", "GET"),
    _route("/{any}/special", "GET"),
    _route("/runs/{id}", "POST"),
    _route("/runs/{rest:path}", "GET"),
    _route("/admin/keys", "GET"),
    _route("/{rest:path}", "DELETE"),
]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("root", ["", "/mounted"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/runs/1",
        "/runs/special",
        "/runs/1/2",
        "/admin/keys",
        "/admin/special",
        "/other/special",
        "/other",
        "//runs",
    ],
)
async def test_the_same_route_answers(path: str, root: str, method: str) -> None:
    answers: list[list[Message]] = []
    for router in (SegmentRouter(ROUTES, _nothing), Router(ROUTES, redirect_slashes=False, default=_nothing)):
        sent: list[Message] = []

        async def send(message: Message, sent: list[Message] = sent) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "http.request", "body": b""}

        scope = {"type": "http", "method": method, "path": root + path, "root_path": root, "headers": []}
        await router(scope, receive, send)
        answers.append(sent)
    assert answers[0] == answers[1]
    assert answers[0]
