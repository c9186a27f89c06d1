"""The last hop: one request to the local agent. Every way it can go wrong is a failure of the task with its reason."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from parley_edge import answers
from parley_edge.answers import Failed, Result
from parley_edge.http import BrokenOff, CannotConnect, Head, Http, HttpFault, TimedOut, TooLarge
from parley_edge.shapes import Json, as_object, encoded, read_object

Note = Callable[[Json], None]

LINES = "application/x-ndjson"
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
        """Ask; `note` gets the progress that an agent may tell before its answer."""
        try:
            async with self.http.exchange(
                "POST", self.endpoint, headers=_HEADERS, body=encoded(payload), timeout_s=self.timeout_s
            ) as (head, chunks):
                return await _answer(head, chunks, note)
        except HttpFault as fault:
            return Failed(f"The local agent could not be asked. {fault}", _CODES[type(fault)])


async def _answer(head: Head, chunks: AsyncGenerator[bytes, None], note: Note) -> Result:
    if head.media_type == LINES and 200 <= head.status < 300:
        return await _last_line(head.status, chunks, note)
    return answers.read(head.status, b"".join([chunk async for chunk in chunks]))


async def _last_line(status: int, chunks: AsyncGenerator[bytes, None], note: Note) -> Result:
    """Lines of progress, told as they come, and a line that is what a plain answer's body would be."""
    answer = rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            answer = _heard(line, note) or answer
    return answers.read(status, _heard(rest, note) or answer)


def _heard(line: bytes, note: Note) -> bytes:
    """The line, unless it is empty or progress, which is told."""
    progress = _progress(line)
    if progress is None:
        return line.strip()
    note({name: progress[name] for name in ("text", "parts", "percent") if name in progress})
    return b""


def _progress(line: bytes) -> Json | None:
    """What stands in `{"progress": {…}}`, an object with nothing else in it."""
    if not line.lstrip().startswith(b'{"progress"'):
        return None
    said = read_object(line)
    return as_object(said["progress"]) if said is not None and len(said) == 1 else None
