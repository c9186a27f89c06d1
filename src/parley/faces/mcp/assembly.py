"""Where the MCP face is found. It is loaded when somebody first asks for it: most servers are never asked."""

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.engine.exchange import Exchange
from parley.faces.http import Endpoint, Handler

PATHS = ("/mcp", "/mcp/")
MCP_HEADERS = ("Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name")
"""What a web page may send to it."""


def mcp_routes(exchange: Exchange, version: str, max_body: int) -> list[Route]:
    face: Handler | None = None

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal face
        if face is None:
            from parley.faces.mcp.face import Mcp

            face = Mcp(exchange, version, max_body)
        await face(scope, receive, send)

    return [Route(path, Endpoint(asked), methods=["POST", "GET", "DELETE"]) for path in PATHS]
