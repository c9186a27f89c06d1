"""A runtime in a few lines of plain HTTP: what any program may send, no more."""

import ssl
from typing import Any

import httpx2
from msgspec import Struct

Json = dict[str, Any]
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def web() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(verify=NO_TLS, timeout=40, limits=httpx2.Limits(max_connections=300))


class Work(Struct, frozen=True):
    """A task run that was pulled."""

    wire: Json

    @property
    def id(self) -> str:
        return self.wire["id"]

    @property
    def text(self) -> str:
        return self.wire["input_snapshot"]["text"]

    @property
    def lease(self) -> Json:
        return {"lease_id": self.wire["lease_id"]}

    @property
    def held(self) -> Json:
        return {"task_run_id": self.id, **self.lease}


class Raw:
    """Speaks for one runtime to one replica or another: `at` may be changed at any time."""

    def __init__(self, http: httpx2.AsyncClient, at: str, attached: Json) -> None:
        self.http = http
        self.at = at
        self.attached = attached
        self.agent: str = attached["agent_id"]
        self.token: str = attached["runtime_token"]
        self.instance: str | None = None

    async def post(self, path: str, body: Json | None = None, at: str | None = None) -> httpx2.Response:
        headers = {"X-Runtime-Token": self.token}
        if self.instance is not None:
            headers["X-Runtime-Instance"] = self.instance
        return await self.http.post((at or self.at) + path, json=body or {}, headers=headers)

    async def pull(self, wait_ms: int = 0, limit: int = 1, at: str | None = None) -> list[Work]:
        path = f"/agent-accounts/{self.agent}/task-runs/pull"
        reply = await self.post(path, {"limit": limit, "wait_ms": wait_ms}, at)
        assert reply.status_code == 200, reply.text
        return [Work(one) for one in reply.json()["task_runs"]]

    async def one(self, wait_ms: int = 10_000) -> Work:
        (work,) = await self.pull(wait_ms)
        return work

    async def about(self, work: Work, what: str, at: str | None = None, **body: Any) -> httpx2.Response:
        return await self.post(f"/task-runs/{work.id}/{what}", {**work.lease, **body}, at)

    async def complete(self, work: Work, at: str | None = None, **output: Any) -> Json:
        reply = await self.about(work, "complete", at, output=output)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def heartbeat(self, *works: Work, at: str | None = None) -> Json:
        reply = await self.post("/agent-runtimes/runtime/heartbeat", {"task_runs": [one.held for one in works]}, at)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def control(self, *works: Work, wait_ms: int = 0, at: str | None = None) -> Json:
        body = {"task_run_ids": [one.id for one in works], "wait_ms": wait_ms}
        reply = await self.post("/agent-runtimes/runtime/control", body, at)
        assert reply.status_code == 200, reply.text
        return reply.json()


async def code_for(http: httpx2.AsyncClient, at: str, agent: str) -> str:
    reply = await http.post(f"{at}/admin/agents/{agent}/pairing", json={})
    assert reply.status_code == 201, reply.text
    return reply.json()["pairing_token"]


async def attach(http: httpx2.AsyncClient, at: str, code: str) -> httpx2.Response:
    return await http.post(f"{at}/agent-runtimes/runtime/attach-via-pairing", json={"pairing_token": code})


async def paired(http: httpx2.AsyncClient, at: str, agent: str) -> Raw:
    reply = await attach(http, at, await code_for(http, at, agent))
    assert reply.status_code == 200, reply.text
    return Raw(http, at, reply.json())


def error_of(reply: httpx2.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]
