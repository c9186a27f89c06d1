"""Test for memory leaks in a server under load: `python -m dev.bench.memory`, a part of `make soak`.

Requests of every kind go to one server process, on SQLite; what it holds after the first tenth is compared with what
it holds at the end. The exit code is 1 when either figure has grown by more than a tenth.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import httpx2
import uvloop

from dev.bench import peers
from dev.bench.data import scratch
from dev.bench.servers import HERE, PARLEY

REQUESTS = 100_000
FIRST = 10_000
CLIENTS = 16
GROWTH = 1.1
UNKNOWN = "0199f9c4-2b7e-7cc5-9d0e-3f5a0f6f8a01"
RPC_1 = {"content-type": "application/json", "a2a-version": "1.0"}
RPC_03 = {"content-type": "application/json"}

Asked = tuple[str, str, dict[str, str], bytes, int, bytes]
"""Method, path, headers and body; the status and the word that the answer must have."""


def message(number: int) -> dict[str, Any]:
    return {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def old_message(number: int) -> dict[str, Any]:
    return {"kind": "message", "messageId": f"m{number}", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}


def rpc(method: str, params: object, headers: dict[str, str], word: bytes) -> Asked:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return "POST", "/agents/echo", headers, body, 200, word


def rest(method: str, path: str, body: object, status: int, word: bytes, version: str = "1.0") -> Asked:
    headers = {"content-type": "application/json", "a2a-version": version}
    return method, f"/agents/echo/{path}", headers, json.dumps(body).encode() if body else b"", status, word


DONE, OLD_DONE = b"TASK_STATE_COMPLETED", b'"completed"'
MIX: list[Callable[[int, str], Asked]] = [
    lambda n, _: rpc("SendMessage", {"message": message(n)}, RPC_1, DONE),
    lambda n, _: rpc("SendStreamingMessage", {"message": message(n)}, RPC_1, DONE),
    lambda _, task: rpc("GetTask", {"id": task}, RPC_1, DONE),
    lambda _, __: rpc("ListTasks", {"pageSize": 3}, RPC_1, b'"tasks"'),
    lambda _, __: rpc("CancelTask", {"id": UNKNOWN}, RPC_1, b"-32001"),
    lambda _, task: rpc("SubscribeToTask", {"id": task}, RPC_1, b'"error"'),
    lambda _, __: ("POST", "/agents/echo", RPC_1, b'{"jsonrpc":', 200, b"-32700"),
    lambda _, __: rpc("NoSuchMethod", {}, RPC_1, b"-32601"),
    lambda n, _: rpc(
        "message/send", {"message": old_message(n), "configuration": {"blocking": True}}, RPC_03, OLD_DONE
    ),
    lambda n, _: rpc("message/stream", {"message": old_message(n)}, RPC_03, OLD_DONE),
    lambda _, task: rpc("tasks/get", {"id": task}, RPC_03, OLD_DONE),
    lambda _, __: rpc("tasks/cancel", {"id": UNKNOWN}, RPC_03, b"-32001"),
    lambda n, _: rest("POST", "message:send", {"message": message(n)}, 200, DONE),
    lambda n, _: rest("POST", "message:stream", {"message": message(n)}, 200, DONE),
    lambda _, task: rest("GET", f"tasks/{task}", None, 200, DONE),
    lambda _, __: rest("GET", "tasks?pageSize=3", None, 200, b'"tasks"'),
    lambda _, __: rest("POST", f"tasks/{UNKNOWN}:cancel", {}, 404, b"error"),
    lambda _, __: rest("GET", "nothing/here", None, 404, b"error"),
    lambda _, task: rest("GET", f"v1/tasks/{task}", None, 200, b"COMPLETED", version="0.3"),
    lambda _, __: ("GET", "/.well-known/agent-card.json", {}, b"", 200, b'"name"'),
]


class Clients:
    """They ask for one thing after the other, over connections that stay open."""

    def __init__(self, url: str) -> None:
        limits = httpx2.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
        self._http = httpx2.AsyncClient(base_url=url, limits=limits, timeout=60, trust_env=False)
        self._numbers = itertools.count()

    async def ask(self, count: int) -> None:
        task = (await self._sent("echo"))["task"]["id"]
        upto = next(self._numbers) + count
        await asyncio.gather(*(self._ask_on(upto, task) for _ in range(CLIENTS)))

    async def census(self) -> dict[str, Any]:
        answered = await self._sent("census")
        counted: dict[str, Any] = json.loads(answered["task"]["artifacts"][0]["parts"][0]["text"])
        return counted

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask_on(self, upto: int, task: str) -> None:
        while (number := next(self._numbers)) <= upto:
            method, path, headers, body, status, word = MIX[number % len(MIX)](number, task)
            reply = await self._http.request(method, path, headers=headers, content=body)
            if reply.status_code != status or word not in reply.content:
                raise RuntimeError(f"{method} {path} {body!r}: {reply.status_code} {reply.text}")

    async def _sent(self, agent: str) -> dict[str, Any]:
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message(0)}}
        reply = await self._http.post(f"/agents/{agent}", json=request, headers={"a2a-version": "1.0"})
        result: dict[str, Any] = reply.json()["result"]
        return result


async def measure(url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    clients = Clients(url)
    await clients.ask(FIRST)
    before = await clients.census()
    show(FIRST, before)
    for done in range(FIRST, REQUESTS, FIRST):
        await clients.ask(FIRST)
        show(done + FIRST, await clients.census())
    after = await clients.census()
    await clients.close()
    return before, after


def show(requests: int, counted: dict[str, Any]) -> None:
    print(f"{requests:>8,} requests: {counted['resident'] / 1e6:6.1f} MB, {counted['objects']:,} objects", flush=True)


def report(before: dict[str, Any], after: dict[str, Any]) -> bool:
    grown = {key: after[key] / before[key] for key in ("resident", "objects")}
    for kind, count in after["types"].items():
        more = count - before["types"].get(kind, 0)
        if more > 0:
            print(f"  {more:+8,} {kind}")
    print(", ".join(f"{key} x {factor:.3f}" for key, factor in grown.items()), f"(at most {GROWTH})")
    return all(factor <= GROWTH for factor in grown.values())


def main() -> int:
    agents = str(HERE / "census_agent.py")
    with scratch() as directory, peers.start(PARLEY, "serve", agents, "--data-dir", str(directory)) as url:
        return 0 if report(*uvloop.run(measure(url))) else 1


if __name__ == "__main__":
    sys.exit(main())
