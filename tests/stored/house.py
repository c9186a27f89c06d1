"""A server on the stored database, its definitions, and the wires by which it is used: all in plain JSON."""

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from parley.client.control import Owner, RuntimeClient
from parley.testing.processes import ServerProcess
from parley.testing.receivers import Receiver
from tests.models.vendors import OpenAi, Vendor
from tests.models.vendors import vendor as vending

Json = dict[str, Any]

HERE = Path(__file__).parent
TOOLS = HERE.parent / "tools" / "mcp" / "hostile.py"
"""A server of tools that speaks MCP over stdio."""
HOOK_PORT = 29_471
"""Stored hooks name this port, so the receiver has to be there."""
SIGNING_SECRET = "the-secret-of-the-control-plane"
KEY_ID = "v1"
USER = 42
THREAD = "thread-stored"
ACTIONS = "/api/agent2agent"
CARD: Json = {"name": "Card", "skills": [], "version": "1.0", "exact": 1.50}
MCP_HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}

DEFINITIONS = {
    "writer": "model: offline\nllm: {}\n",
    "caller": "driver: function\nfunction: {call: CALLER}\nmcp: [{name: wild, run: [PYTHON, TOOLS]}]\n",
    "chat": (
        "model: MODEL\nllm: {base_url: VENDOR, key_from: PARLEY_STORED_KEY, retries: 0, approve: ['*']}\n"
        "mcp: [{name: wild, run: [PYTHON, TOOLS]}]\n"
    ),
    "far": "driver: edge\n",
    "mirror": "driver: remote\nremote: {url: SELF/agents/asker, token_from: PARLEY_STORED_TOKEN}\n",
    "org": "driver: org\norg: {work: WORK}\n",
    "two": (
        "workflow:\n  retries: 1\n  retry_delay_s: 0.01\n  steps:\n"
        "    - {id: a, agent: worker, name: First, input: '{{message}} a'}\n"
        "    - {id: b, agent: echo, input: '{{message}} b', depends_on: [a], artifact: {name: b.txt}}\n"
    ),
    "quick": (
        "workflow:\n  steps:\n"
        "    - {id: a, agent: echo, input: '{{message}} a', checkpoint: 'Go on?'}\n"
        "    - {id: b, agent: caller, mode: tool, action: execute, depends_on: [a],"
        " input: {toolName: wild/echo, input: {said: '{{steps.a.answer}}'}}}\n"
    ),
    "failing": "workflow:\n  steps:\n    - {id: a, agent: breaker, input: '{{message}}'}\n",
}
"""By slug: definitions, in which words in capitals stand for what differs from place to place."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def write_definitions(folder: Path, port: int, vendor: str) -> list[Path]:
    """The files that a server is started with."""
    filled = {
        "CALLER": f"{HERE / 'caller.py'}:caller",
        "PYTHON": sys.executable,
        "TOOLS": str(TOOLS),
        "MODEL": OpenAi.name,
        "VENDOR": vendor,
        "SELF": f"http://127.0.0.1:{port}",
        "WORK": str(folder / "work"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for slug, text in DEFINITIONS.items():
        text = re.sub("|".join(filled), lambda found: filled[found[0]], text)
        (folder / f"{slug}.yaml").write_text(f"slug: {slug}\ndescription: The agent {slug}.\n{text}")
    return [HERE / "agents.py", folder]


class Place:
    """Where a database lies and how a server of it is started; a database of PostgreSQL, where there is a `url`."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.data = folder / "data"
        self.open = folder / "open"
        """While it is missing, some agents do not come to an end."""
        self.postgres_url = url

    @classmethod
    def made(cls, folder: Path, url: str = "") -> "Place":
        folder.mkdir(parents=True)
        return cls(folder, url)

    @property
    def env(self) -> dict[str, str]:
        shared = {"PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": self.postgres_url} if self.postgres_url else {}
        return {
            "PARLEY_DATA_DIR": str(self.data),
            "PARLEY_BLOBS": str(self.data / "blobs"),
            "PARLEY_GRPC_PORT": "-1",
            "PARLEY_AUTH": "required",
            "PARLEY_LEASE_S": "1",
            "PARLEY_ALLOW_HOSTS": '["127.0.0.1"]',
            "PARLEY_RUNTIME_KEYS": json.dumps({KEY_ID: SIGNING_SECRET}),
            "PARLEY_SIGNING_ROTATE_DAYS": "0",
            "PARLEY_NODE_TTL_S": "1e9",
            "PARLEY_NODE_EVENTS_DAYS": "1e5",
            "PARLEY_STORED_OPEN": str(self.open),
            "PARLEY_STORED_KEY": "sk-stored",
            **shared,
        }

    async def parley(self, *arguments: str) -> Any:
        """JSON output of a command."""
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "parley",
            *arguments,
            "--json",
            cwd=self.folder,
            env={**os.environ, **self.env},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await program.communicate()
        assert program.returncode == 0, out.decode()
        return json.loads(out)

    @asynccontextmanager
    async def serving(
        self, tokens: dict[str, str], *, kill: bool = False, vendor: Vendor | None = None, **env: str
    ) -> AsyncIterator["House"]:
        """A server until the block ends, by `kill` as a crash would end it."""
        async with AsyncExitStack() as stack:
            vendor = vendor or await stack.enter_async_context(vending())
            port = free_port()
            files = write_definitions(self.folder / "definitions", port, vendor.url)
            env = {**self.env, "PARLEY_STORED_TOKEN": tokens["ann"], **env}
            server = await ServerProcess.start(files, self.data, port=port, env=env, cwd=self.folder)
            try:
                async with httpx2.AsyncClient(base_url=server.url, timeout=20) as http:
                    yield House(http, tokens, vendor)
            finally:
                await (server.kill() if kill else server.stop())


class House:
    """Speaks to the server as the holder of a key (`who`), or as a user of the control plane."""

    def __init__(self, http: httpx2.AsyncClient, tokens: dict[str, str], vendor: Vendor) -> None:
        self.http = http
        self.tokens = tokens
        self.vendor = vendor

    @property
    def url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    def control(self) -> RuntimeClient:
        return RuntimeClient(self.url, SIGNING_SECRET, owner=Owner(USER), key_id=KEY_ID)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        who: str = "admin",
        headers: dict[str, str] | None = None,
        form: dict[str, str] | None = None,
    ) -> httpx2.Response:
        sent = {"A2A-Version": "1.0", "x-request-id": "always-this", **(headers or {})}
        if who and "Authorization" not in sent:
            sent["Authorization"] = f"Bearer {self.tokens[who]}"
        return await self.http.request(method, path, json=body, data=form, headers=sent)

    async def get(self, path: str, who: str = "admin", headers: dict[str, str] | None = None) -> Any:
        reply = await self.ask("GET", path, who=who, headers=headers)
        assert reply.status_code == 200, (path, reply.status_code, reply.text[:500])
        return reply.json()

    async def post(self, path: str, body: object, who: str = "admin", headers: dict[str, str] | None = None) -> Any:
        reply = await self.ask("POST", path, body, who, headers)
        assert reply.status_code < 300, (path, reply.status_code, reply.text[:500])
        return reply.json() if reply.content else None

    async def rpc(self, slug: str, method: str, params: Json, who: str = "ann", version: str = "1.0") -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.post(f"/agents/{slug}", body, who, {"A2A-Version": version})
        assert "result" in answer, (slug, method, answer)
        return answer["result"]

    async def send(
        self, slug: str, text: str, who: str = "ann", *, task: str = "", wait: bool = True, **more: Any
    ) -> Json:
        """The task that a message makes or goes on with."""
        message = {"messageId": f"m-{slug}-{text[:20]}", "role": "ROLE_USER", "parts": [{"text": text}]}
        message |= {"taskId": task} if task else {}
        message |= more.pop("message", {})
        params = {"message": message, "configuration": {"returnImmediately": not wait, **more}}
        return (await self.rpc(slug, "SendMessage", params, who)).get("task", {})

    async def state(self, slug: str, task: str) -> str:
        found = await self.rpc(slug, "GetTask", {"id": task}, "admin")
        return found["status"]["state"].removeprefix("TASK_STATE_").lower()

    async def reached(self, slug: str, task: str, *states: str) -> None:
        found = ""
        for _ in range(700):
            if (found := await self.state(slug, task)) in states:
                return
            await asyncio.sleep(0.03)
        raise TimeoutError(f"The task {task} of {slug} is {found}, and not {' or '.join(states)}.")

    async def act(
        self, conversation: str, mode: str, action: str, agent: str, *, wait: bool = True, **params: Any
    ) -> Json:
        """The envelope of an action (contract 002)."""
        body = {"mode": mode, "action": action, "agentSlug": agent, **params}
        headers = {} if wait else {"Prefer": "respond-async"}
        path = f"{ACTIONS}/conversations/{conversation}/tasks"
        return (await self.ask("POST", path, body, "ann", headers)).json()

    async def did(self, conversation: str, mode: str, action: str, agent: str, **params: Any) -> Json:
        """An action that succeeds."""
        envelope = await self.act(conversation, mode, action, agent, **params)
        assert "error" not in envelope, envelope
        return envelope

    async def enter(self) -> tuple[dict[str, str], str]:
        """Log in to the console: the cookie as a header, and the token of its forms."""
        page = await self.ask("GET", "/console/login", who="")
        csrf = re.search(r'name="csrf" content="([0-9a-f]+)"', page.text)
        assert csrf is not None, page.text
        cookie = {"Cookie": page.headers["set-cookie"].partition(";")[0]}
        form = {"csrf": csrf[1], "credential": self.tokens["admin"]}
        reply = await self.ask("POST", "/console/login", who="", headers=cookie, form=form)
        assert reply.status_code == 303, reply.text
        cookie = {"Cookie": reply.headers["set-cookie"].partition(";")[0]}
        page = await self.ask("GET", "/console/agents/new", who="", headers=cookie)
        csrf = re.search(r'name="csrf" content="([0-9a-f]+)"', page.text)
        assert csrf is not None, page.text
        return cookie, csrf[1]


@asynccontextmanager
async def hooked() -> AsyncIterator[Receiver]:
    """The receiver of stored hooks; waits while another test has its port."""
    receiver = Receiver()
    server: asyncio.Server | None = None
    async with asyncio.timeout(60):
        while server is None:
            try:
                server = await asyncio.start_server(receiver.serve, "127.0.0.1", HOOK_PORT)
            except OSError:
                await asyncio.sleep(0.2)
    receiver.port = HOOK_PORT
    try:
        yield receiver
    finally:
        server.close()
