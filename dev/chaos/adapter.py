"""The local agent of the runtimes: it echoes its input after a delay."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        asked = json.loads(await reader.readexactly(length))
        await asyncio.sleep(0.1)
        said = json.dumps({"text": f"<{asked['input']['text']}>"}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(said), said))
        await writer.drain()
    writer.close()


@asynccontextmanager
async def adapting() -> AsyncGenerator[str, None]:
    """Run the local agent; yields its address."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/run-task"
    finally:
        server.close()
