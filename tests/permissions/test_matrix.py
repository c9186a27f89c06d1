"""Everything there is to ask for, asked by everybody there is. The table says who may; the application says what there
is, so that a route without a rule fails here before anybody finds it."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, get_args

import grpc
import httpx2
import pytest
import pytest_asyncio
from google.protobuf import json_format

from parley.faces.a2a.dialect import Operation
from parley.faces.a2a.grpc import SERVICES
from parley.ids import new_id
from parley.testing.servers import serving
from tests.faces.a2a.test_grpc import address_of
from tests.faces.registry.fleet import Fleet, Node
from tests.faces.wires import HOOK, Wire
from tests.permissions.house import House, echo, far, open_house, signed
from tests.permissions.requests import request_for, ruled, version_for
from tests.permissions.table import COLUMNS, OPERATIONS, SIGNED, STRANGERS, TABLE, Rule
from tests.permissions.walk import asked_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

IN_STREAM = ("RPC message/stream", "RPC message/sendSubscribe")
"""Operations whose clients read errors from a stream only."""


class Houses:
    """The one where credentials are needed, and two where they are not."""

    def __init__(self, house: House, local: House, anonymous: House) -> None:
        self.house = house
        self.open = {"local": local, "anonymous": anonymous}

    async def ask(self, who: str, asked: str, rule: Rule) -> httpx2.Response:
        house = self.open.get(who, self.house)
        method, path, body, headers = request_for(asked, rule, house.nodes["node"].id)
        if who in SIGNED and path.startswith("/internal/v1/runs/"):
            # There a token has to say for which run it is.
            about = {"user_id": 42} if who == "signed" else {"guest_scope": "visitor"}
            headers |= signed(run_id=path.split("/")[4], **about)
        reply = await house.ask("nobody" if who in self.open else who, method, path, body, headers)
        if rule.spends and house is self.house:
            await house.renew()
        return reply


async def _open(stack: AsyncExitStack, directory: Path, auth: str) -> House:
    server = await stack.enter_async_context(
        serving(directory, [echo, far("far")], auth=auth, allow_hosts=["127.0.0.1"])
    )
    http = await stack.enter_async_context(httpx2.AsyncClient(base_url=server.url, timeout=20))
    house: Any = House(server, http, None)  # type: ignore[arg-type]
    fleet = Fleet(http, "")
    # Where everybody is anonymous nobody may create a node, and whoever comes first may register one.
    top = await fleet.online("top") if auth == "local" else Node(http, "", str(uuid.uuid4()))
    assert (await top.register()).status_code == 200
    if auth == "local":
        await fleet.create("low", top)
    house.nodes = {"node": top}
    return house


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def houses(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Houses]:
    async with AsyncExitStack() as stack:
        house = await stack.enter_async_context(open_house(tmp_path_factory.mktemp("required")))
        local, anonymous = [await _open(stack, tmp_path_factory.mktemp(auth), auth) for auth in ("local", "none")]
        yield Houses(house, local, anonymous)


async def test_everything_has_a_rule_and_every_rule_something_to_rule(houses: Houses) -> None:
    there = asked_of(houses.house.server.app)
    assert set(OPERATIONS) == set(get_args(Operation)), (
        "OPERATIONS in tests/permissions/table.py and A2A's operations differ"
    )
    missing = [f'    "{asked}": KNOWN,  # or SENDERS, ADMINS, …' for asked in there if ruled(asked) is None]
    assert not missing, "Add to TABLE in tests/permissions/table.py, with those who may:\n" + "\n".join(missing)
    gone = sorted(set(TABLE) - set(there))
    assert not gone, f"TABLE in tests/permissions/table.py has rules for what is not there any more: {gone}"
    assert len(there) == len(set(there))


@pytest.mark.slow
async def test_everybody_may_ask_for_what_the_table_says_and_for_nothing_else(houses: Houses) -> None:
    wrong: list[str] = []
    asked = [one for one in asked_of(houses.house.server.app) if not one.startswith("gRPC")]
    for one in asked:
        rule = ruled(one)
        for who in COLUMNS:
            reply = await houses.ask(who, one, rule or Rule(frozenset()))
            if said := complaint(one, who, rule or Rule(frozenset()), reply):
                wrong.append(f"{one} by {who}: {said}")
    assert not wrong, f"{len(wrong)} of {len(asked)} x {len(COLUMNS)}:\n" + "\n".join(wrong)


def complaint(asked: str, who: str, rule: Rule, reply: httpx2.Response) -> str:
    """Description of what is wrong with an answer; empty if nothing is."""
    status = reply.status_code
    if who in rule.who:
        return f"{status} {reply.text[:200]}" if status in (401, 403) or status >= 500 else ""
    expected = rule.refused or (401 if who in STRANGERS else 403)
    if asked.startswith("GET /api/exports/") and who == "nobody":
        expected = 403
    if asked in IN_STREAM and expected == 403 and status == 200:
        return "" if "PERMISSION_DENIED" in reply.extensions["first"] else reply.extensions["first"]
    if asked.startswith("GET /console/") and who == "nobody":
        return "" if (status, reply.headers["location"][:14]) == (303, "/console/login") else f"{status}"
    if status != expected:
        return f"{status} instead of {expected}"
    if "/console/" in asked and "html" in reply.headers["content-type"]:
        return "" if {401: "unauthenticated", 403: "permission_denied"}[status] in reply.text else reply.text
    return "" if is_refusal(asked, status, reply.json()) else f"refused in other words: {reply.text[:200]}"


def is_refusal(asked: str, status: int, body: Json) -> bool:
    """True if the refusal has this face's format."""
    _, _, path = asked.partition(" ")
    error = body["error"]
    if asked.startswith("002") or path.startswith("/api/agent2agent"):
        return body["status"] == "failed" and error["code"] == {401: "UNAUTHORIZED", 403: "FORBIDDEN"}[status]
    if path.startswith("/internal/v1"):
        return error["code"] == {401: "unauthorized", 403: "forbidden"}[status]
    if path.startswith(("/registry", "/workspaces")):
        return isinstance(error, str)
    if path.startswith("/api/exports") and status == 403:
        return error["code"] == "LINK_REFUSED"
    return bool(error["code"] and error["message"])


@pytest.mark.slow
async def test_over_grpc_everybody_may_what_the_table_says(houses: Houses) -> None:
    wrong: list[str] = []
    house = houses.house
    async with grpc.aio.insecure_channel(await address_of(house.server)) as channel:
        for asked in asked_of(house.server.app):
            if not asked.startswith("gRPC"):
                continue
            rule = ruled(asked)
            assert rule is not None
            for who in COLUMNS:
                if who in houses.open:
                    continue
                code = await _called(channel, asked.removeprefix("gRPC "), house.headers(who))
                # A signature is for one request over HTTP; here it is no credential.
                known = who in rule.who and who not in ("signed", "guest")
                stranger = who in STRANGERS or who in ("signed", "guest")
                refused = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
                expected = {grpc.StatusCode.UNAUTHENTICATED if stranger else grpc.StatusCode.PERMISSION_DENIED}
                fine = code not in refused | {grpc.StatusCode.INTERNAL} if known else {code} == expected
                if not fine:
                    wrong.append(f"{asked} by {who}: {code}")
    assert not wrong, "\n".join(wrong)


async def _called(channel: grpc.aio.Channel, path: str, headers: dict[str, str]) -> grpc.StatusCode:
    service, _, method = path.rpartition("/")
    rpc = SERVICES[service][1][method]
    metadata = (("tenant", "echo"), version_for(path), *((name.lower(), value) for name, value in headers.items()))
    sent = json_format.ParseDict(
        grpc_params(service, rpc.operation, "" if rpc.operation in ("send", "stream") else new_id()), rpc.request()
    ).SerializeToString()
    if rpc.operation in ("stream", "subscribe"):
        call = channel.unary_stream(f"/{path}")(sent, metadata=metadata, timeout=10)
        try:
            await call.read()
        except grpc.aio.AioRpcError as error:
            return error.code()
        call.cancel()
        return grpc.StatusCode.OK
    call = channel.unary_unary(f"/{path}")(sent, metadata=metadata, timeout=10)
    return await call.code()


def grpc_params(service: str, operation: str, task: str) -> Json:
    if operation in ("card", "list"):
        return {}
    if operation in ("send", "stream") or service.startswith("lf."):
        wire = Wire("JSON-RPC 1.0") if service.startswith("lf.") else Wire("HTTP+JSON 0.3")
        body = wire.request(operation, task)[2] or {}
        return body.get("params", body)
    if operation == "set_hook":
        return {"parent": f"tasks/{task}", "configId": "cfg", "config": {"pushNotificationConfig": HOOK}}
    if operation == "list_hooks":
        return {"parent": f"tasks/{task}"}
    return {"name": f"tasks/{task}" + ("/pushNotificationConfigs/cfg" if operation.endswith("_hook") else "")}
