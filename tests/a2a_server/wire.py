"""A client that speaks the contract's own wire: JSON-RPC of A2A 0.3, with parts that have no `kind`."""

import json
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import httpx2

from parley.testing.processes import until

Json = dict[str, Any]
ENDED = ("completed", "failed", "canceled", "rejected")


class Wire:
    """One caller of an organisation's server."""

    def __init__(self, url: str, **headers: str) -> None:
        self.url = url
        self.http = httpx2.AsyncClient(timeout=30, headers=headers)

    async def __aenter__(self) -> "Wire":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def card(self) -> Json:
        """As anybody finds it: no credentials, the contract's path."""
        async with httpx2.AsyncClient() as anybody:
            reply = await anybody.get(f"{self.url}/.well-known/agent.json")
        assert reply.status_code == 200
        return reply.json()

    async def call(self, method: str, params: Json) -> Json:
        """The whole answer: a result or an error, never anything else."""
        reply = await self.http.post(self.url, json=_request(method, params))
        found = reply.json()
        assert found["jsonrpc"] == "2.0"
        assert ("result" in found) != ("error" in found)
        return found

    async def send(self, text: str, *, task: str | None = None, blocking: bool | None = None) -> Json:
        params: Json = {"message": _message(text, task)}
        if blocking is not None:
            params["configuration"] = {"blocking": blocking}
        return (await self.call("message/send", params))["result"]

    async def begin(self, text: str) -> Json:
        return await self.send(text, blocking=False)

    async def stream(self, text: str, *, task: str | None = None) -> AsyncGenerator[Json, None]:
        """Each event's result: every one is a JSON-RPC answer."""
        body = _request("message/stream", {"message": _message(text, task)})
        async with self.http.stream("POST", self.url, json=body) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            async for line in reply.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))["result"]

    async def get(self, task: str) -> Json:
        return (await self.call("tasks/get", {"id": task}))["result"]

    async def cancel(self, task: str) -> Json:
        return (await self.call("tasks/cancel", {"id": task}))["result"]

    async def reaches(self, task: str, *states: str) -> Json:
        async def there() -> bool:
            return state(await self.get(task)) in (states or ENDED)

        await until(there, 20.0)
        return await self.get(task)


def _request(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}


def _message(text: str, task: str | None) -> Json:
    found: Json = {"role": "user", "messageId": str(uuid.uuid4()), "parts": [{"text": text}]}
    return {**found, "taskId": task} if task else found


def state(task: Json) -> str:
    return task["status"]["state"]


def words(task: Json) -> str:
    """The text of the status."""
    return "".join(part.get("text", "") for part in task["status"].get("message", {}).get("parts", ()))


def told(task: Json) -> list[str]:
    """Every status message of a task so far."""
    before = [one for one in task.get("history", []) if one["role"] == "agent"]
    return ["".join(part.get("text", "") for part in one["parts"]) for one in before] + [words(task)]


def texts(task: Json) -> dict[str, str]:
    made = task.get("artifacts", [])
    return {
        one.get("name") or one["artifactId"]: "".join(part.get("text", "") for part in one["parts"]) for one in made
    }
