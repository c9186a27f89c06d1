"""Routes of the MCP face. The face is imported at its first call, because most servers never need it."""

from typing import ClassVar

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.http.face import Method, Operation, Proof
from parley.http.requests import Endpoint, Handler
from parley.runs.service import Exchange

PATHS = ("/mcp", "/mcp/")
METHODS: tuple[Method, ...] = ("POST", "GET", "DELETE")
MCP_HEADERS = ("Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name")
"""Headers that a web page may send to the face."""


class McpMount:
    proof: ClassVar[Proof] = "caller"

    def __init__(self, exchange: Exchange, version: str, max_body: int) -> None:
        self._exchange = exchange
        self._version = version
        self._max_body = max_body
        self._face: Handler | None = None

    def operations(self) -> tuple[Operation, ...]:
        return tuple(Operation(method, path) for path in PATHS for method in METHODS)

    def routes(self) -> list[Route]:
        return [Route(path, Endpoint(self._call), methods=list(METHODS)) for path in PATHS]

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._face is None:
            from parley.faces.mcp.face import Mcp

            self._face = Mcp(self._exchange, self._version, self._max_body)
        await self._face(scope, receive, send)
