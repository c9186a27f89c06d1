"""The extended card over every binding and in every mode of `auth`: only for callers with credentials (A2A §13.3)."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as old_grpc
from a2a.types import a2a_pb2 as new
from a2a.types import a2a_pb2_grpc as new_grpc

from parley import Skill, Text, Turn, agent
from parley.runs.rules.agents import Extended
from parley.testing.servers import Server, serving

MODES = ("local", "required", "none")
WIRES = ("JSON-RPC 1.0", "JSON-RPC 0.3", "HTTP+JSON 1.0", "HTTP+JSON 0.3", "gRPC 1.0", "gRPC 0.3")
MORE = Extended(skills=(Skill("more", "More", "Shown to callers with credentials.", ("members",)),))
NOBODY: dict[str, str] = {}
STATUSES = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "NOT_FOUND": 404}


@agent("member", extended=MORE)
async def member(turn: Turn):
    """Has an extended card."""
    yield Text(f"{turn.principal}")


@agent("hidden", extended=MORE, visibility="internal")
async def hidden(turn: Turn):
    """Has an extended card, and no public one."""
    yield Text(turn.text)


@agent("plain")
async def plain(turn: Turn):
    """Has no extended card."""
    yield Text(turn.text)


class House:
    """A server in one mode, and the keys of a caller who may use every agent and of one who may use `plain` only."""

    def __init__(self, server: Server, http: httpx2.AsyncClient, any_agent: str, only_plain: str) -> None:
        self.server = server
        self.http = http
        self.any_agent = {"x-api-key": any_agent}
        self.only_plain = {"authorization": f"Bearer {only_plain}"}

    async def extended(self, wire: str, headers: dict[str, str], slug: str = "member") -> tuple[int, list[str]]:
        """The HTTP status, or the one that stands for gRPC's, and the ids of the skills."""
        binding, _, version = wire.partition(" ")
        if binding == "gRPC":
            return await self._grpc(version, headers, slug)
        reply = await self._asked(binding, version, headers, slug)
        if reply.status_code == 401:
            assert reply.headers["www-authenticate"].startswith("Bearer ")
        if reply.status_code != 200:
            return reply.status_code, []
        card = reply.json()["result"] if binding == "JSON-RPC" else reply.json()
        return 200, [skill["id"] for skill in card["skills"]]

    async def _asked(self, binding: str, version: str, headers: dict[str, str], slug: str) -> httpx2.Response:
        said = {"A2A-Version": version, **headers}
        if binding == "JSON-RPC":
            method = "GetExtendedAgentCard" if version == "1.0" else "agent/getAuthenticatedExtendedCard"
            body = {"jsonrpc": "2.0", "id": 1, "method": method}
            return await self.http.post(f"/agents/{slug}", json=body, headers=said)
        path = "extendedAgentCard" if version == "1.0" else "v1/card"
        return await self.http.get(f"/agents/{slug}/{path}", headers=said)

    async def _grpc(self, version: str, headers: dict[str, str], slug: str) -> tuple[int, list[str]]:
        card = (await self.http.get("/agents/member/.well-known/agent-card.json")).json()
        place = next(one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
        async with grpc.aio.insecure_channel(place) as channel:
            try:
                if version == "1.0":
                    request: Any = new.GetExtendedAgentCardRequest(tenant=slug)
                    said = (("a2a-version", "1.0"), *headers.items())
                    stub: Any = new_grpc.A2AServiceStub(channel)
                    found = await stub.GetExtendedAgentCard(request, metadata=said)
                else:
                    said = (("tenant", slug), *headers.items())
                    stub = old_grpc.A2AServiceStub(channel)
                    found = await stub.GetAgentCard(old.GetAgentCardRequest(), metadata=said)
            except grpc.aio.AioRpcError as error:
                return STATUSES.get(error.code().name, 400), []
        return 200, [skill.id for skill in found.skills]


@asynccontextmanager
async def opened(directory: Path, auth: str) -> AsyncGenerator[House, None]:
    agents = [member, hidden, plain]
    async with serving(directory, agents) as server, httpx2.AsyncClient(base_url=server.url) as http:
        made = [
            await http.post("/admin/keys", json={"name": name, "agents": allowed})
            for name, allowed in (("ann", []), ("bob", ["plain"]))
        ]
    tokens = [one.json()["token"] for one in made]
    async with (
        serving(directory, agents, auth=auth, grpc_port=0) as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        yield House(server, http, *tokens)


@pytest.fixture(params=MODES)
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path / "data", request.param) as found:
        yield found


@pytest.mark.parametrize("wire", WIRES)
async def test_the_extended_card_needs_credentials_in_every_mode(house: House, wire: str) -> None:
    assert await house.extended(wire, NOBODY) == (401, [])
    assert await house.extended(wire, {"x-api-key": "parley_wrong"}) == (401, [])
    assert await house.extended(wire, house.any_agent) == (200, ["member", "more"])


@pytest.mark.parametrize("wire", WIRES)
async def test_a_caller_who_may_not_use_the_agent_is_refused_its_extended_card(house: House, wire: str) -> None:
    """The agent is public, so it is no secret that it exists."""
    assert await house.extended(wire, house.only_plain) == (403, [])


@pytest.mark.parametrize("auth", ["local", "required"])
@pytest.mark.parametrize("wire", WIRES)
async def test_an_agent_that_is_not_public_does_not_exist_for_a_caller_who_may_not_use_it(
    tmp_path: Path, auth: str, wire: str
) -> None:
    async with opened(tmp_path / "data", auth) as house:
        assert await house.extended(wire, house.only_plain, "hidden") == (404, [])
        assert await house.extended(wire, house.any_agent, "hidden") == (200, ["hidden", "more"])


async def test_an_agent_without_an_extended_card_says_so_whoever_asks(tmp_path: Path) -> None:
    async with opened(tmp_path / "data", "local") as house:
        for headers in (NOBODY, house.any_agent):
            reply = await house.http.get("/agents/plain/extendedAgentCard", headers={"A2A-Version": "1.0", **headers})
            assert reply.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"


async def test_the_public_card_declares_how_to_authenticate_for_the_extended_one(house: House) -> None:
    """Where nothing else needs credentials it declares the schemes, and requires none of them."""
    card = (await house.http.get("/agents/member/.well-known/agent-card.json")).json()
    assert set(card["securitySchemes"]) == {"bearer", "apiKey"}
    assert card["capabilities"]["extendedAgentCard"] is True
    assert card["supportsAuthenticatedExtendedCard"] is True
    plain = (await house.http.get("/agents/plain/.well-known/agent-card.json")).json()
    required = "securitySchemes" in plain
    assert ("securityRequirements" in card, "security" in card) == (required, required)
    assert plain["supportsAuthenticatedExtendedCard"] is False


async def test_a_key_shown_where_nobody_is_asked_changes_nothing_but_the_extended_card(tmp_path: Path) -> None:
    async with opened(tmp_path / "data", "none") as house:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        for headers in (NOBODY, house.any_agent, {"x-api-key": "parley_wrong"}):
            reply = await house.http.post(
                "/agents/member/message:send", json={"message": message}, headers={"A2A-Version": "1.0", **headers}
            )
            assert reply.json()["task"]["artifacts"][0]["parts"][0]["text"] == "guest:anonymous"
