"""Calls the local agent with one request. Every error becomes a failed task with a reason."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from parley_edge.json_values import Json, as_object, encoded, read_object
from parley_edge.net.http import LINES, BrokenOff, CannotConnect, Head, Http, HttpFault, TimedOut, TooLarge
from parley_edge.runtime import answers
from parley_edge.runtime.answers import Failed, Result

Note = Callable[[Json], None]

_HEADERS = {"Content-Type": "application/json", "Accept": f"application/json, {LINES};q=0.9"}
_CODES: dict[type[HttpFault], str] = {
    CannotConnect: "ADAPTER_UNREACHABLE",
    BrokenOff: "ADAPTER_BROKE_OFF",
    TimedOut: "ADAPTER_TIMEOUT",
    TooLarge: "ADAPTER_ANSWER_TOO_LARGE",
}


@dataclass(frozen=True, slots=True)
class LocalAgent:
    http: Http
    endpoint: str
    timeout_s: float

    async def run(self, payload: Json, note: Note) -> Result:
        """Call the agent; `note` gets the progress that it may report before its answer."""
        try:
            async with self.http.exchange(
                "POST", self.endpoint, headers=_HEADERS, body=encoded(payload), timeout_s=self.timeout_s
            ) as (head, chunks):
                return await _answer(head, chunks, note)
        except HttpFault as fault:
            return Failed(f"The call of the local agent failed. {fault}", _CODES[type(fault)])


async def _answer(head: Head, chunks: AsyncGenerator[bytes, None], note: Note) -> Result:
    if head.media_type == LINES and 200 <= head.status < 300:
        return await _last_line(head.status, chunks, note)
    return answers.read(head.status, b"".join([chunk async for chunk in chunks]))


async def _last_line(status: int, chunks: AsyncGenerator[bytes, None], note: Note) -> Result:
    """Read lines: progress is reported as it arrives; the last other line is the answer."""
    answer = rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            answer = _heard(line, note) or answer
    return answers.read(status, _heard(rest, note) or answer)


def _heard(line: bytes, note: Note) -> bytes:
    """Report a line of progress and return nothing; return any other line."""
    progress = _progress(line)
    if progress is None:
        return line.strip()
    note({name: progress[name] for name in ("text", "parts", "percent") if name in progress})
    return b""


def _progress(line: bytes) -> Json | None:
    """The content of `{"progress": {…}}`; None for any other line."""
    if not line.lstrip().startswith(b'{"progress"'):
        return None
    said = read_object(line)
    return as_object(said["progress"]) if said is not None and len(said) == 1 else None
