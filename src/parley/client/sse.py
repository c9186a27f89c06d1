"""Reader of server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[tuple[int | None, str], None]:
    """Yield the number and the data of each event. The number is None if missing; events without data are skipped.

    An event ends with a blank line. The last one may lack it: some servers close the connection right after their data.
    """
    number: int | None = None
    data: list[str] = []
    async for line in _lines(chunks):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            number = _number(value)
        elif name == "data":
            data.append(value)
        elif not line:
            if data:
                yield number, "\n".join(data)
            number, data = None, []
    if data:
        yield number, "\n".join(data)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """Yield lines. Only line feeds end a line: other separators, such as U+2028, may occur inside JSON."""
    rest: list[bytes] = []
    async for chunk in chunks:
        *lines, last = chunk.split(b"\n")
        for line in lines:
            yield b"".join([*rest, line]).removesuffix(b"\r").decode(errors="replace")
            rest = []
        rest.append(last)
    if any(rest):
        yield b"".join(rest).decode(errors="replace")


def _number(text: str) -> int | None:
    """Return the id of an event if it is a number, else None."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
