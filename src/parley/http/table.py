"""Operations of all faces of a server, for code that runs before a request is routed."""

from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar, Protocol

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.errors import ParleyError
from parley.http.face import Face, Operation, Proof, Request, match
from parley.http.problems import refuse
from parley.http.requests import Headers, answer


class Tabulated(Protocol):
    """A face, or an object that lists operations like a face."""

    proof: ClassVar[Proof]

    def operations(self) -> tuple[Operation, ...]: ...

    def routes(self) -> list[Route]: ...


class OperationTable:
    """Operations of all faces. `others` are operations that are routed without a face."""

    def __init__(self, faces: Sequence[Tabulated] = (), others: Sequence[Operation] = ()) -> None:
        self.operations = (*(row for face in faces for row in face.operations()), *others)
        self._open = [row for row in self.operations if row.open and row.method == "GET"]
        self._proofs: dict[str, Proof] = {}
        for face in faces:
            for area in _areas(face):
                if self._proofs.setdefault(area, face.proof) != face.proof:
                    raise ValueError(f"Two faces require different credentials below /{area}.")
        own: list[Face[Any]] = [face for face in faces if isinstance(face, Face) and face.prefix]
        # A face that requires another proof refuses callers itself.
        self._formats = [face for face in own if face.proof == "caller"]

    def proof(self, path: str) -> Proof:
        """Return the proof that a path requires. It is the same for all operations below a prefix, or else with the
        same first path segment."""
        first, second = (*path.split("/", 3), "", "")[1:3]
        return self._proofs.get(first) or self._proofs.get(f"{first}/{second}", "caller")

    def is_open(self, method: str, path: str) -> bool:
        """Return True if the operation requires no credential."""
        return method in ("GET", "HEAD") and any(match(row, path) is not None for row in self._open)

    def template(self, method: str, path: str) -> str | None:
        """Return the path template of the operation that a request is for; None if there is none."""
        found = (row for row in self.operations if row.method == method and match(row, path) is not None)
        return next((row.template for row in found), None)

    async def refuse(self, scope: Scope, send: Send, error: ParleyError, headers: Headers) -> None:
        """Refuse a request before it is routed, in the format of the face that the path belongs to."""
        face = self._format(scope["path"])
        if face is None:
            return await refuse(send, error, headers)
        reply = face.refuse(Request(scope, _nothing), error)
        return await answer(send, reply.status, reply.content, [*headers, *reply.headers], reply.media)

    def has_format(self, path: str) -> bool:
        """Return True if the face of a path has an error format of its own."""
        return self._format(path) is not None

    def _format(self, path: str) -> Face[Any] | None:
        return next((face for face in self._formats if path.startswith(f"{face.prefix}/")), None)


class SegmentRouter:
    """Router that tries only the routes whose first segment can match, in their order: a server has hundreds."""

    def __init__(self, routes: Sequence[Route], default: ASGIApp) -> None:
        self.routes = routes
        firsts = {_first(route.path) for route in routes}
        self._routers = {
            first: Router(
                [route for route in routes if _first(route.path) in (first, None)],
                redirect_slashes=False,
                default=default,
            )
            for first in (*firsts, None)
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path: str = scope["path"].removeprefix(scope.get("root_path", "")) if scope["type"] == "http" else ""
        router = self._routers.get(path[1:].partition("/")[0]) or self._routers[None]
        return router(scope, receive, send)


def _first(path: str) -> str | None:
    """Return the first segment of a route's path; None if it is a parameter."""
    first = path[1:].partition("/")[0]
    return None if "{" in first else first


async def _nothing() -> Any:
    raise AssertionError("The body of a request that is refused before it is routed is not read.")


def _areas(face: Tabulated) -> set[str]:
    """Return the first segments of the paths that only this face, or one with the same proof, answers."""
    if isinstance(face, Face) and face.prefix:
        return {face.prefix[1:]}
    return {row.path.split("/", 2)[1] for row in face.operations()} - {""}
