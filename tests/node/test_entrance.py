"""Which pair tokens a node takes: whose they are, what becomes of them, and what is logged about the others."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from joserfc import jws
from joserfc.jwk import OKPKey
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley import Text, Turn, agent
from parley.node import Node, verifying
from parley.node.verifying import EVERY_S
from parley.nodes.tokens import TYPE
from parley.security.tokens import Registry
from parley.telemetry import attach
from parley.testing.processes import until
from parley.testing.servers import Server, hosting, serving
from tests.faces.registry.fleet import Fleet
from tests.faces.registry.fleet import Node as Seat

Json = dict[str, Any]
REFUSED = "node.token_refused"
MESSAGE: Json = {"kind": "message", "role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hello"}]}


@agent("echo", name="Echo")
async def echo(turn: Turn):
    yield Text(turn.text)


class Gate:
    """A platform's address that can be closed, and that can answer as earlier versions do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.closed = False
        self.silent = False
        self.old = False
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        self.asked += scope["path"] == "/registry/introspect"
        if self.silent:
            await asyncio.sleep(60)
        if self.closed:
            await send({"type": "http.response.start", "status": 502, "headers": [(b"content-length", b"0")]})
            return await send({"type": "http.response.body", "body": b""})
        old = self.old and scope["path"] == "/registry/register"
        return await self._app(scope, receive, _without_issuer(send) if old else send)


def _without_issuer(send: Send) -> Send:
    start: Message = {}

    async def passed_on(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
            return
        body = msgspec.json.decode(message["body"])
        body.pop("issuer", None)
        written = msgspec.json.encode(body)
        headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
        await send({**start, "headers": [*headers, (b"content-length", b"%d" % len(written))]})
        await send({**message, "body": written})

    return passed_on


class Ground:
    """A platform, at its own address and behind a gate, and its operator."""

    def __init__(self, server: Server, gate: Gate, at: str, fleet: Fleet, directory: Path) -> None:
        self.server = server
        self.gate = gate
        self.at = at
        self.fleet = fleet
        self.directory = directory

    @asynccontextmanager
    async def node(self, name: str = "node", platform: str = "", **more: Any) -> AsyncIterator[Node]:
        node = Node(echo, platform=platform or self.server.url, data_dir=self.directory / name, name=name, **more)
        async with node.running():
            await node.registered()
            yield node

    def kept(self, name: str = "node") -> Json:
        return json.loads((self.directory / name / "node.json").read_text())

    async def call(self, node: Node, token: str | None) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": MESSAGE}}
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return await self.fleet.http.post(node.url, json=body, headers=headers)

    async def token(self, by: Seat, node: Node) -> str:
        return (await by.discover(node.id)).json()["token"]


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with serving(tmp_path / "platform", [], store="memory") as server, httpx2.AsyncClient() as http:
        gate = Gate(server.app)
        async with hosting(gate) as at:
            yield Ground(server, gate, at, Fleet(http, server.url), tmp_path)


@pytest.fixture
def refusals() -> Iterator[list[Json]]:
    """The lines that a node logs about tokens."""
    seen: list[Json] = []
    detach = attach(lambda name, fields: seen.append(fields) if name == REFUSED else None)
    yield seen
    detach()


async def test_tokens_count_where_node_and_platform_use_different_names_for_one_address(ground: Ground) -> None:
    other_name = ground.server.url.replace("127.0.0.1", "localhost")
    async with ground.node("one", other_name) as one, ground.node("two", other_name) as two:
        assert (await one.ask(two.id, "hello")).text == "hello"
    assert ground.kept("one")["issuer"] == ground.server.url


async def test_the_answer_to_a_registration_names_the_issuer(ground: Ground) -> None:
    seat = await ground.fleet.create("Seat")
    first, second = (await seat.register()).json(), (await seat.register()).json()
    assert second == {"status": "registered", "issuer": ground.server.url}
    assert first == {**second, "auth_token": seat.token}


async def test_the_issuer_outlives_a_restart_of_the_node(ground: Ground) -> None:
    caller = await ground.fleet.online("Caller")
    async with ground.node(platform=ground.at) as node:
        assert (await ground.call(node, await ground.token(caller, node))).status_code == 200
    ground.gate.old = True
    async with ground.node(platform=ground.at) as node:
        assert (await ground.call(node, await ground.token(caller, node))).status_code == 200
    assert ground.kept()["issuer"] == ground.server.url
    # Another platform's issuer is nothing for this one.
    async with ground.node(platform=ground.at.replace("127.0.0.1", "localhost")) as node:
        assert (await ground.call(node, await ground.token(caller, node))).status_code == 401


async def test_a_platform_that_does_not_name_its_issuer_is_believed_as_before(ground: Ground) -> None:
    caller = await ground.fleet.online("Caller")
    ground.gate.old = True
    async with ground.node(platform=ground.at) as node:
        assert (await ground.call(node, await ground.token(caller, node))).status_code == 401
    async with ground.node(platform=ground.at, issuer=ground.server.url) as node:
        assert (await ground.call(node, await ground.token(caller, node))).status_code == 200
    assert set(ground.kept()) == {"id", "token"}


async def test_an_identity_of_an_earlier_version_is_taken_over(ground: Ground) -> None:
    caller, seat = await ground.fleet.online("Caller"), await ground.fleet.online("Seat")
    (ground.directory / "node").mkdir()
    (ground.directory / "node" / "node.json").write_text(json.dumps({"id": seat.id, "token": seat.token}))
    async with ground.node(platform=ground.at) as node:
        assert node.id == seat.id
        assert (await ground.call(node, await ground.token(caller, node))).status_code == 200
    assert ground.kept()["token"] == seat.token


async def test_a_refused_token_is_logged_with_the_reason_and_without_itself(
    ground: Ground, refusals: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, other = await ground.fleet.online("Caller"), await ground.fleet.online("Other")
    async with ground.node() as node, ground.node("strict", issuer="https://parley.example") as strict:
        good = await ground.token(caller, node)
        other_key = OKPKey.generate_key("Ed25519")
        header = {"alg": "EdDSA", "typ": TYPE}
        claims = good.split(".")[1]
        named = jws.serialize_compact({**header, "kid": "stranger"}, b"{}", other_key, registry=Registry(["EdDSA"]))
        wrong = {
            "malformed": "a.b.c",
            "bad_signature": f"{good.rpartition('.')[0]}.{'A' * 86}",
            "unknown_key": named,
            "wrong_audience": await ground.token(caller, strict),
            "too_long": "x" * 20_000,
        }
        for token in wrong.values():
            assert (await ground.call(node, token)).status_code == 401
        assert (await ground.call(strict, wrong["wrong_audience"])).status_code == 401
        await ground.fleet.ask("DELETE", f"/workspaces/{caller.id}/tokens")
        assert (await ground.call(node, good)).status_code == 401
        late = await ground.token(other, node)
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + 1000)
        assert (await ground.call(node, late)).status_code == 401
    assert [line["reason"] for line in refusals] == [*wrong, "wrong_issuer", "revoked", "expired"]
    issuer, revoked = refusals[-3], refusals[-2]
    assert (issuer["issuer"], issuer["expected"]) == (ground.server.url, "https://parley.example")
    assert (revoked["node"], revoked["caller"]) == (ground.kept()["id"], caller.id)
    for secret in (good, claims, late, *wrong.values(), caller.token):
        assert secret not in str(refusals)


async def test_many_refused_tokens_are_few_lines_in_the_log(
    ground: Ground, refusals: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground.node(platform=ground.at) as node:
        for number in range(50):
            assert (await ground.call(node, f"a.b.{number}")).status_code == 401
        assert [line["reason"] for line in refusals] == ["malformed"]
        clock = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: clock() + EVERY_S)
        await ground.call(node, "a.b.c")
    assert ground.gate.asked == 0
    assert [line.get("not_logged") for line in refusals] == [None, 49]


async def test_a_revoked_pair_is_refused_at_once(ground: Ground) -> None:
    caller, above = await ground.fleet.online("Caller"), await ground.fleet.online("Above")
    async with ground.node() as node, ground.node("offline", introspect=False) as offline:
        shown = [(one, await ground.token(caller, one)) for one in (node, offline)]
        assert [(await ground.call(*one)).status_code for one in shown] == [200, 200]
        await ground.fleet.ask("PATCH", f"/workspaces/{caller.id}", {"parent_id": above.id})
        assert [(await ground.call(*one)).status_code for one in shown] == [401, 200]


@pytest.mark.parametrize("how", ["closed", "silent"])
async def test_a_token_that_cannot_be_asked_about_is_not_taken(
    ground: Ground, refusals: list[Json], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(verifying, "ASK_S", 0.5)
    caller = await ground.fleet.online("Caller")
    async with (
        ground.node(platform=ground.at) as node,
        ground.node("offline", platform=ground.at, introspect=False) as offline,
    ):
        shown = [(one, await ground.token(caller, one)) for one in (node, offline)]
        assert [(await ground.call(*one)).status_code for one in shown] == [200, 200]
        setattr(ground.gate, how, True)
        begun = time.monotonic()
        reply = await ground.call(*shown[0])
        assert time.monotonic() - begun < 2
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert (await ground.call(*shown[1])).status_code == 200
        setattr(ground.gate, how, False)
        assert (await ground.call(*shown[0])).status_code == 200
    assert [line["reason"] for line in refusals] == ["not_checked"]


async def test_a_peer_that_cannot_ask_its_platform_for_a_moment_is_asked_again(ground: Ground) -> None:
    async with ground.node("one") as one, ground.node("two", platform=ground.at) as two:
        await one.ask(two.id, "hello")
        ground.gate.closed, before = True, ground.gate.asked
        asking = asyncio.create_task(one.ask(two.id, "again"))
        await until(lambda: ground.gate.asked > before)
        ground.gate.closed = False
        assert (await asking).text == "again"
