"""Reader of server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[tuple[int | None, str], None]:
    """Yield the number and the data of each event. The number is None if missing; events without data are skipped.

    Only line feeds end a line: other separators, such as U+2028, may occur inside JSON. An event ends with a blank
    line. The last one may lack it: some servers close the connection right after their data.
    """
    number: int | None = None
    data: list[bytes] = []
    rest: list[bytes] = []
    async for chunk in chunks:
        *lines, last = chunk.split(b"\n")
        for line in lines:
            if rest:
                line, rest = b"".join([*rest, line]), []
            line = line.removesuffix(b"\r")
            if line:
                number = _field(line, number, data)
                continue
            if data:
                yield number, b"\n".join(data).decode(errors="replace")
            number, data = None, []
        if last:
            rest.append(last)
    if rest:
        number = _field(b"".join(rest).removesuffix(b"\r"), number, data)
    if data:
        yield number, b"\n".join(data).decode(errors="replace")


def _field(line: bytes, number: int | None, data: list[bytes]) -> int | None:
    """Add the data of a line to that of its event. Return the event's number, which the line may change."""
    name, _, value = line.partition(b":")
    value = value.removeprefix(b" ")
    if name == b"data":
        data.append(value)
    return _number(value) if name == b"id" else number


def _number(digits: bytes) -> int | None:
    """Return the id of an event if it is a number, else None."""
    digits = digits.strip()
    return int(digits) if digits.isdigit() and len(digits) < 16 else None
