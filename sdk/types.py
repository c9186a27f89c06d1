"""The types of the SDK, from the contract's document as a server shows it."""

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx2

from parley.testing.servers import serving
from sdk.package import HOME
from sdk.shapes import declarations

Json = Mapping[str, Any]

FILE = HOME / "src" / "types.ts"
DOCUMENT = "/api/agent2agent/openapi.json"
_HEAD = "/** Made from the contract's OpenAPI document by `make sdk`; what is changed here is lost. */\n"


async def current() -> Json:
    """The document of a server with everything that it can offer."""
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder), (), store="memory") as server, httpx2.AsyncClient() as http:
            return (await http.get(server.url + DOCUMENT)).raise_for_status().json()


def types_of(document: Json) -> str:
    parts = [_HEAD, declarations(document["components"]["schemas"]), _actions(document["x-actions"])]
    return "\n".join(parts)


def _actions(rows: Iterable[Json]) -> str:
    """What each action is asked with, and answered with."""
    lines = [f'  "{row["mode"]}.{row["action"]}": {_action(row)};\n' for row in rows]
    return (
        f"/** What each action is asked with, and answered with. */\nexport interface Actions {{\n{''.join(lines)}}}\n"
    )


def _action(row: Json) -> str:
    result = f"{row['result']} | null" if row["nullable"] else row["result"]
    return f"{{ request: {row['request']}; result: {result} }}"
