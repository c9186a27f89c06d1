"""AG-UI as bytes: requests, and the events of a stream with their ids."""

import json
import uuid
from typing import Any, NamedTuple

import httpx2

Json = dict[str, Any]


class Sent(NamedTuple):
    """One event of a stream."""

    id: str
    data: Json

    @property
    def type(self) -> str:
        return self.data["type"]


def events_in(text: str) -> list[Sent]:
    found: list[Sent] = []
    for frame in text.split("\n\n"):
        lines = [line.partition(": ") for line in frame.split("\n")]
        data = [value for name, _, value in lines if name == "data"]
        if data:
            found.append(Sent(next((value for name, _, value in lines if name == "id"), ""), json.loads(data[0])))
    return found


def run_input(text: str | None = None, **more: Any) -> Json:
    """The input of a run with one message of the user, or none."""
    messages = [{"id": str(uuid.uuid4()), "role": "user", "content": text}] if text is not None else []
    given: Json = {"threadId": str(uuid.uuid4()), "runId": str(uuid.uuid4()), "messages": messages}
    return {**given, "tools": [], "context": [], "state": {}, "forwardedProps": {}, "protocolVersion": "1.0", **more}


class Front:
    """A front end without a library."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def post(self, slug: str, given: Any, last: str | None = None, status: int = 200) -> list[Sent]:
        reply = await self.http.post(f"/agents/{slug}/agui", json=given, headers=_resuming(last))
        assert reply.status_code == status, reply.text
        return events_in(reply.text)

    async def get(self, slug: str, run: str, last: str | None = None, status: int = 200) -> list[Sent]:
        reply = await self.http.get(f"/agents/{slug}/agui/{run}", headers=_resuming(last))
        assert reply.status_code == status, reply.text
        return events_in(reply.text)

    async def refused(self, slug: str, given: Any, last: str | None = None) -> tuple[int, str]:
        reply = await self.http.post(f"/agents/{slug}/agui", json=given, headers=_resuming(last))
        return reply.status_code, reply.json()["error"]["message"]


def _resuming(last: str | None) -> dict[str, str]:
    return {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last is not None else {})}


def types(events: list[Sent]) -> list[str]:
    return [event.type for event in events]


def text(events: list[Sent]) -> str:
    return "".join(event.data["delta"] for event in events if event.type == "TEXT_MESSAGE_CONTENT")
