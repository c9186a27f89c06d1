"""The contract's OpenAPI document as it was: `python -m tests.faces.control.snapshot` takes over what was added."""

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

from parley.client.control import Json, RuntimeClient
from parley.testing.openapi_changes import taken_away
from parley.testing.servers import serving
from tests.faces.control.wire import SECRET

FILE = Path(__file__).with_name("openapi.json")


def kept(file: Path = FILE) -> Json:
    return msgspec.json.decode(file.read_bytes())


async def current() -> Json:
    """As a server shows it."""
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder), (), store="memory") as server, RuntimeClient(server.url, SECRET) as client:
            return await client.openapi()


def refresh(document: Json, file: Path = FILE) -> list[str]:
    """Keep the document, unless it takes something away; then say what."""
    problems = taken_away(kept(file), document) if file.exists() else []
    if not problems:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    return problems


def main() -> int:
    problems = refresh(asyncio.run(current()))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
