"""An MCP server over streamable HTTP with one tool, `obsidian-search`: searches a folder of Markdown files.

    python markdown_search.py FOLDER [--port 8931] [--token-from VARIABLE]

It prints its address. With a token, clients must send it as `Authorization: Bearer …`.
"""

import argparse
import asyncio
import hmac
import os
import re
import socket
from pathlib import Path
from typing import Annotated

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import TypedDict

EXCERPT = 160
MOST_BYTES = 1024 * 1024


class Search(BaseModel):
    query: str = Field(min_length=1)
    path: str | None = Field(None, description="Only below this folder.")
    limit: Annotated[int, Field(ge=1, le=100)] = 10


class File(TypedDict):
    path: str
    excerpt: str
    score: float


class Found(TypedDict):
    files: list[File]
    count: int


def notes(folder: Path, asked: Search) -> Found:
    """Files that contain the words, best match first. Nothing outside the folder is read."""
    root = folder.resolve()
    below = (root / (asked.path or ".")).resolve()
    if not below.is_relative_to(root):
        raise ToolError("The path leads out of the folder.")
    words = [word.casefold() for word in re.findall(r"\w+", asked.query)]
    scored = [_scored(root, path, words) for path in sorted(below.rglob("*.md")) if path.resolve().is_relative_to(root)]
    found = sorted((one for one in scored if one["score"] > 0), key=lambda one: (-one["score"], one["path"]))
    return Found(files=found[: asked.limit], count=len(found[: asked.limit]))


def _scored(root: Path, path: Path, words: list[str]) -> File:
    text = path.read_bytes()[:MOST_BYTES].decode(errors="replace")
    plain = f"{path.stem}\n{text}".casefold()
    counts = [plain.count(word) for word in words]
    # Each word that is there counts more than one that is there often.
    score = sum(1 + min(count, 10) / 10 for count in counts if count) / max(len(words), 1)
    at = min((place for word in words if (place := text.casefold().find(word)) >= 0), default=0)
    excerpt = " ".join(text[max(0, at - EXCERPT // 2) : at + EXCERPT].split())
    return File(path=path.relative_to(root).as_posix(), excerpt=excerpt, score=round(score, 3))


class Guarded:
    """Refuses requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", [])).get(b"authorization", b"")
        if scope["type"] == "http" and not hmac.compare_digest(given, self._wanted):
            await PlainTextResponse("Who are you?", 401)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def application(folder: Path, token: str | None) -> ASGIApp:
    server = MCPServer("obsidian-mcp")

    @server.tool("obsidian-search", annotations=ToolAnnotations(read_only_hint=True))
    async def find(search: Search) -> Found:
        """Find notes by their words."""
        return await asyncio.to_thread(notes, folder, search)

    app = server.streamable_http_app()
    return Guarded(app, token) if token else app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8931)
    parser.add_argument("--token-from", metavar="VARIABLE")
    given = parser.parse_args()
    token = os.environ[given.token_from] if given.token_from else None
    with socket.create_server(("127.0.0.1", given.port)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        config = uvicorn.Config(application(given.folder, token), log_level="warning")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
