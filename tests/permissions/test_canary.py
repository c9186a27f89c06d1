"""A secret in every place where secrets go, some work, and peers that repeat what they were sent: none of the secrets
is told, kept, exported, counted or answered."""

import asyncio
import json
import re
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest

from parley import Turn, telemetry
from parley.drivers.agentzero import AgentZeroDriver, AgentZeroOptions, blank_agentzero
from parley.drivers.function import FunctionDriver
from parley.drivers.llm.driver import LlmDriver
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote
from parley.execution.driver import Driver
from parley.models.endpoint import ModelAccess, open_model
from parley.models.llm import Sampling
from parley.runs.rules.agents import Agent
from parley.stores.postgres_pool import connect
from parley.telemetry import logs
from parley.testing.databases import fresh_database
from parley.testing.processes import until
from parley.testing.servers import serving
from parley.tools.rules.mcp import McpServer
from tests.drivers.agentzero.server import Chat, FakeAgentZero, agent_zero
from tests.faces.actions.agents import writer
from tests.faces.registry.fleet import Fleet, Node
from tests.permissions.house import House, echo, open_house, signed
from tests.permissions.walk import asked_of
from tests.tools.mcp.conftest import server

ECHOED = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"


@asynccontextmanager
async def parrot() -> AsyncIterator[str]:
    """Refuses everything, and repeats every word of the request, as careless servers do."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        body = json.dumps({"error": {"message": f"Refused: {head}", "type": "invalid_key"}}).encode()
        writer.write(ECHOED % (b"401 Unauthorized", len(body), body))
        await writer.drain()
        writer.close()

    served = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with served:
        yield f"http://127.0.0.1:{served.sockets[0].getsockname()[1]}"


@contextmanager
def listening() -> Iterator[list[str]]:
    """Everything that could become a log line or a span, with the tracebacks that log lines have."""
    told: list[str] = []

    def heard(name: str, fields: dict[str, Any]) -> None:
        error = fields.get("error")
        trace = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
        told.append(f"{name} {fields} {trace}")

    detach = telemetry.attach(heard)
    try:
        yield told
    finally:
        detach()


ERROR = (
    "Incorrect API key provided: canary-provider-q7zxvk. password=canary-password-q7zxvk, "
    "{'api_key': 'canary-json-q7zxvk'} "
    "https://ann:canary-url-q7zxvk@host.org/?key=canary-query-q7zxvk Authorization: Basic canary-basic-q7zxvk "
    "sk-canary-vendor-q7zxvk PGPASSWORD: canary-variable-q7zxvk logged in as ann with canary-zero-login-q7zxvk"
)


async def breaks(chat: Chat, text: str) -> str:
    """An Agent-Zero whose work ends with an error that repeats everything it knows."""
    chat.log("tool", "Connecting with password=canary-heading-q7zxvk")
    chat.log("warning", "Login failed, token: canary-warning-q7zxvk")
    raise RuntimeError(ERROR)


async def raises(turn: Turn) -> Any:
    raise ValueError("broken")
    yield ""


def agents(peer: str, folder: Path) -> list[Driver]:
    secret = folder / "tool-secret"
    secret.write_text("canary-tool-env-q7zxvk")
    loud = McpServer("loud", url=f"{peer}/mcp", headers={"Authorization": "${CANARY_TOOL_HEADER}"})
    wild = server("wild", env={"SECRET": f"${{file:{secret}}}"})
    tools = Agent("tools", "Tools", "Has tools.", mcp=(loud, wild))
    llms = [
        LlmDriver(
            Agent(vendor, vendor, "Asks a vendor.", model=f"{vendor}:any"),
            open_model(f"{vendor}:any", ModelAccess(peer, "CANARY_LLM_KEY", 2.0, 0)),
            Sampling(),
        )
        for vendor in ("openai", "anthropic")
    ]
    remote = RemoteDriver(
        blank_remote("remote"), RemoteOptions(f"{peer}/agent", token_from="CANARY_REMOTE_KEY", patience_s=0.1)
    )
    return [writer, FunctionDriver(tools, raises), *llms, remote]


def zeros(zero: FakeAgentZero) -> list[Driver]:
    """One Agent-Zero by both of its interfaces."""
    zero.key = "canary-zero-key-q7zxvk"
    keyed = AgentZeroOptions(zero.url, key_from="CANARY_ZERO_KEY", poll_s=0.05)
    session = AgentZeroOptions(zero.url, user="ann", password_from="CANARY_ZERO_LOGIN", poll_s=0.05)
    return [AgentZeroDriver(blank_agentzero(slug), one) for slug, one in (("keyed", keyed), ("session", session))]


def hook_of(peer: str, what: str) -> dict[str, Any]:
    """A push notification configuration for both generations of A2A."""
    shown = {"scheme": "Bearer", "schemes": ["Bearer"], "credentials": f"canary-{what}-credentials-q7zxvk"}
    return {"url": f"{peer}/{what}", "token": f"canary-{what}-token-q7zxvk", "authentication": shown}


async def through_nodes(house: House, replies: list[httpx2.Response], peer: str, behind: str) -> None:
    """Calls of nodes with push notifications, a delegation, and all that is shown of them afterwards: one node works,
    the other one refuses and repeats what it was shown."""
    fleet = Fleet(house.http, "", house.headers("admin")["Authorization"].removeprefix("Bearer "))
    nodes = [await fleet.create(name, house.nodes["node"]) for name in ("Works", "Parrot")]
    said = {"role": "user", "parts": [{"kind": "text", "text": "hello"}]}
    new = {"role": "ROLE_USER", "messageId": "m-new", "parts": [{"text": "hello"}]}

    async def call(node: Node, method: str, **params: Any) -> Any:
        """Its owner is shown what a configuration holds, so these answers are not looked through."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await house.ask("user", "POST", f"/workspaces/{node.id}/a2a", body)).json()

    for node, url in zip(nodes, (behind, f"{peer}/node"), strict=True):
        assert (await node.register(url)).status_code == 200
        old, modern = hook_of(peer, "proxied"), hook_of(peer, "modern")
        begun = await call(node, "message/send", message=said, configuration={"pushNotificationConfig": old})
        await call(node, "SendMessage", message=new, configuration={"taskPushNotificationConfig": modern})
        if task := begun.get("result", {}).get("id"):
            config = {"id": "second", **hook_of(peer, "second")}
            await call(node, "tasks/pushNotificationConfig/set", taskId=task, pushNotificationConfig=config)
            await call(node, "CreateTaskPushNotificationConfig", taskId=task, id="third", **hook_of(peer, "third"))
            await call(node, "tasks/pushNotificationConfig/get", id=task, pushNotificationConfigId="second")
            await call(node, "tasks/cancel", id=task)
        given = {"target_id": node.id, "task": "hello"}
        replies.append(await house.nodes["node"].post(f"/workspaces/{house.nodes['node'].id}/delegate", given))

    async def noted() -> bool:
        return len((await nodes[0].get(f"/workspaces/{nodes[0].id}/activity?type=a2a_receive")).json()) == 6

    await until(noted)
    for node in (*nodes, house.nodes["node"]):
        replies.append(await node.get(f"/workspaces/{node.id}/activity"))
        below = ("", "/activity", "/hierarchy", "/delegations", "/tokens")
        replies += [await house.ask("admin", "GET", f"/workspaces/{node.id}{path}") for path in below]


async def everything(house: House, replies: list[httpx2.Response], peer: str, behind: str) -> None:
    async def ask(who: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        reply = await house.ask(who, method, path, body, {"A2A-Version": "1.0", **(headers or {})})
        replies.append(reply)
        return reply

    for slug in ("echo", "openai", "anthropic", "remote", "tools", "session", "keyed"):
        message = {"messageId": slug, "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        await ask("user", "POST", f"/agents/{slug}/message:send", {"message": message})
    task = await house.task("user")
    hook = {"id": "cfg", **hook_of(peer, "push")}
    # Its owner is shown what it holds, as A2A has it; nobody else is.
    await house.ask("user", "POST", f"/agents/echo/tasks/{task}/pushNotificationConfigs", hook, {"A2A-Version": "1.0"})
    await ask("user", "POST", f"/agents/echo/tasks/{task}:cancel", {})
    await through_nodes(house, replies, peer, behind)

    async def tried() -> bool:
        shown = (await house.ask("admin", "GET", "/admin/push")).json()["push"]
        called = {one["receiver"].removeprefix(peer) for one in shown if one["reason"]}
        return called == {"/push", "/proxied", "/modern", "/second", "/third"}

    await until(tried)
    await ask("admin", "GET", "/admin/push")
    conversation = (await house.ask("user", "POST", "/api/agent2agent/conversations", {"agentSlug": "writer"})).json()
    at = f"/api/agent2agent/conversations/{conversation['conversationId']}/tasks"
    await ask("user", "POST", at, {"mode": "plan", "action": "create", "agentSlug": "writer", "message": "Tides"})
    for tool, given in (("wild/tell", {"variable": "SECRET"}), ("loud/any", {})):
        call = {"mode": "tool", "action": "execute", "agentSlug": "tools", "toolName": tool, "input": given}
        await ask("user", "POST", at, call)
    for format_ in ("markdown", "json", "html"):
        wanted = {"mode": "converse", "action": "export_conversation", "agentSlug": "writer", "format": format_}
        made = (await ask("user", "POST", at, wanted)).json()
        place = urlsplit(made["result"]["exportUrl"])
        await ask("nobody", "GET", f"{place.path}?{place.query}")
    await ask("nobody", "GET", "/internal/v1/health", None, signed(user_id=42))
    await ask("oidc", "GET", "/admin/whoami")
    await ask("runtime", "GET", "/agent-runtimes/runtime/status")
    await ask("node", "GET", f"/workspaces/{house.nodes['node'].id}")
    for path in plain_pages(house):
        await ask("admin", "GET", path)
    for who, headers in shown_wrong(house):
        for path in ("/admin/whoami", "/internal/v1/health", "/agent-runtimes/runtime/status", "/workspaces"):
            await ask(who, "GET", path, None, headers)


def plain_pages(house: House) -> list[str]:
    """Everything that can be read without naming anything, whatever there will be; and what tells most of an agent."""
    reads = [one.removeprefix("GET ") for one in asked_of(house.server.app) if one.startswith("GET ")]
    named = [f"/console/agents/{slug}" for slug in ("tools", "remote", "keyed")]
    return [*(path for path in reads if "{" not in path), *named]


def shown_wrong(house: House) -> Iterator[tuple[str, dict[str, str]]]:
    """Each credential at every other door, and cut short."""
    for who in ("user", "admin", "oidc", "runtime", "node", "pair", "signed"):
        yield who, {}
        yield "nobody", {name: value[:-1] for name, value in house.headers(who).items()}


def secrets_of(house: House) -> dict[str, str]:
    """Only what is secret of each: a key's id, before the secret part, may be named."""
    found = {who: house.headers(who) for who in ("user", "admin", "oidc", "runtime", "node", "pair")}
    tokens = {who: headers["Authorization"].removeprefix("Bearer ") for who, headers in found.items()}
    # `parley_ID_SECRET`: the secret may hold underscores itself.
    tokens = {
        who: token.rpartition(".")[2] if token.count(".") == 2 else re.sub(r"^\w+?_[0-9a-f]{16}_", "", token)
        for who, token in tokens.items()
    }
    return {**tokens, "node": house.nodes["node"].token, "runtime": found["runtime"]["X-Runtime-Token"]}


async def dumped(url: str) -> Iterator[str]:
    connection = await connect(url)
    try:
        tables = await connection.fetch(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        rows = [row for one in tables for row in await connection.fetch(f'SELECT * FROM "{one[0]}"."{one[1]}"')]
    finally:
        await connection.close()
    return (repr([bytes(v) if isinstance(v, memoryview) else v for v in row]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["postgres", "sqlite"])
async def test_no_secret_is_told_kept_exported_counted_or_answered(
    tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str], store: str,
) -> None:  # fmt: skip
    place = urlsplit(await fresh_database(postgres))
    login = f"{place.username}:canary-database-q7zxvk@"
    database = urlunsplit(place._replace(netloc=login + place.netloc.rpartition("@")[2]))
    stored: dict[str, Any] = {"store": store, **({"postgres_url": database} if store == "postgres" else {})}
    monkeypatch.setenv("CANARY_LLM_KEY", "canary-llm-q7zxvk")
    monkeypatch.setenv("CANARY_REMOTE_KEY", "canary-remote-q7zxvk")
    monkeypatch.setenv("CANARY_ZERO_LOGIN", "canary-zero-login-q7zxvk")
    monkeypatch.setenv("CANARY_ZERO_KEY", "canary-zero-key-q7zxvk")
    monkeypatch.setenv("CANARY_TOOL_HEADER", "Bearer canary-tool-header-q7zxvk")
    replies: list[httpx2.Response] = []
    quiet = logs.configure("json", "debug")
    with listening() as told:
        async with parrot() as peer, serving(tmp_path / "data" / "target", [echo]) as target, agent_zero(
            breaks, user="ann", password="canary-zero-login-q7zxvk"
        ) as zero, open_house(
            tmp_path / "data", *agents(peer, tmp_path), *zeros(zero), **stored,
            api_key="canary-configured-q7zxvk", runtime_keys={"v1": "the-secret-of-the-review"},
        ) as house:  # fmt: skip
            await everything(house, replies, peer, target.agent("echo"))
            secrets = secrets_of(house)
            links = [reply for reply in replies if "sig=" in str(reply.request.url)]
    quiet()
    lines = capfd.readouterr()
    assert len(links) == 3
    assert all(reply.status_code == 200 for reply in links)
    everywhere = {
        "told": "\n".join(told),
        "log lines": f"{lines.out}\n{lines.err}\n{caplog.text}",
        "the database": "\n".join(await dumped(database)),
        "files": "\n".join(file.read_bytes().decode("latin-1") for file in files_under(tmp_path / "data")),
        "answers": "\n".join(f"{reply.text} {reply.headers}" for reply in replies if reply.is_stream_consumed),
    }
    assert len(told) > 50
    assert len([one for one in told if one.startswith("agentzero.failed")]) == 2
    assert lines.err.count('"event"') > 20
    key = (tmp_path / "data" / "secret.key").read_text().split()[0]
    wanted = {
        "canary": "q7zxvk",
        "signing": "the-secret-of-the-review",
        "sealing": key,
        "PEM": "PRIVATE KEY",
        **secrets,
    }
    assert all(len(secret) > 3 for secret in wanted.values())
    found = [
        f"{what} in {where}: …{text[max(0, text.index(secret) - 200) : text.index(secret) + 60]}…"
        for what, secret in wanted.items()
        for where, text in everywhere.items()
        if secret in text
    ]
    assert not found, "\n\n".join(found)


def files_under(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and path.name != "secret.key"]
