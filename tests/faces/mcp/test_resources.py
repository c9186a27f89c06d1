"""MCP resources, and which callers may read them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from parley import Text, Turn, agent
from parley.documents.rules import Conversation
from parley.documents.service import DocumentRequest, Documents
from parley.ids import ConversationId
from parley.runs.rules.access import Principal
from parley.testing.servers import Server, serving
from tests.faces.mcp.conftest import AGENTS, connected, echo
from tests.faces.mcp.wire import request

ANN = Principal("service", "ann")


@agent("hidden", visibility="private", allow=("service:ann",))
async def hidden(turn: Turn):
    """Exists for one caller."""
    yield Text(turn.text)


class House:
    """A server that needs credentials, and three who have some."""

    def __init__(self, server: Server, tokens: dict[str, str]) -> None:
        self.server = server
        self.tokens = tokens

    def enter(self, who: str) -> Any:
        return connected(self.server.url, headers={"X-API-Key": self.tokens[who]})

    async def write(self, message: str) -> str:
        """A plan of ann's; the id of its version."""
        exchange = self.server.exchange
        await exchange.store.library.begin(Conversation(str(ANN), ConversationId("a/b"), "hidden", 1))
        outcome = await Documents(exchange).create(
            DocumentRequest(ANN, "a/b", "hidden", "plan", "create"), "plan", message
        )
        await exchange.settled(outcome)
        return outcome.run.id


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with serving(tmp_path / "data", [echo]) as server, httpx2.AsyncClient(base_url=server.url) as http:
        wanted = {"ann": ["read", "send"], "bob": ["read", "send"], "reader": ["read"]}
        made = {name: await http.post("/admin/keys", json={"name": name, "scopes": wanted[name]}) for name in wanted}
    async with serving(tmp_path / "data", [*AGENTS, hidden], auth="required") as server:
        yield House(server, {name: reply.json()["token"] for name, reply in made.items()})


async def texts(client: Client, uri: str) -> list[str]:
    return [one.model_dump()["text"] for one in (await client.read_resource(uri)).contents]


async def test_documents_and_what_tasks_made_are_resources(house: House) -> None:
    first = await house.write("# Old")
    await house.write("# New")
    async with house.enter("ann") as client:
        made = (await client.call_tool("echo", {"message": "hi"})).structured_content
        templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
        assert templates[0] == "parley://tasks/{task}"
        listed = {one.uri: one for one in (await client.list_resources()).resources}
        plan = listed["parley://conversations/a%2Fb/plan"]
        assert plan.name
        assert made["artifacts"][0]["uri"] in listed
        current = (await client.read_resource(plan.uri)).contents[0]
        assert current.mime_type == "text/markdown"
        assert await texts(client, f"{plan.uri}/versions/{first}") != await texts(client, plan.uri)
        assert await texts(client, made["artifacts"][0]["uri"]) == ["hi "]
        assert '"state":"completed"' in (await texts(client, f"parley://tasks/{made['taskId']}"))[0]


async def test_somebody_else_sees_nothing(house: House) -> None:
    version = await house.write("# Mine")
    async with house.enter("ann") as client:
        asked = (await client.call_tool("writer", {"message": "hi"})).structured_content
        assert "hidden" in {tool.name for tool in (await client.list_tools()).tools}
    async with house.enter("bob") as client:
        assert (await client.list_resources()).resources == []
        assert "hidden" not in {tool.name for tool in (await client.list_tools()).tools}
        for uri in (
            f"parley://tasks/{asked['taskId']}",
            asked["artifacts"][0]["uri"],
            "parley://conversations/a%2Fb/plan",
            f"parley://conversations/a%2Fb/plan/versions/{version}",
        ):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            assert refused.value.message == "Resource not found."
        with pytest.raises(MCPError):
            await client.call_tool("hidden", {"message": "hi"})
        answer = await client.call_tool("writer", {"message": "Bob", "task": asked["taskId"]})
        assert answer.is_error
        assert answer.content[0].model_dump()["text"] == "Task not found."


async def test_a_key_may_do_what_its_scopes_say(house: House) -> None:
    async with house.enter("reader") as client:
        assert (await client.list_tools()).tools
        with pytest.raises(MCPError) as refused:
            await client.call_tool("echo", {"message": "hi"})
        assert refused.value.code == -31403
    async with httpx2.AsyncClient(base_url=house.server.url) as http:
        nobody = await http.post("/mcp", json=request("tools/list"))
        assert nobody.status_code == 401
        assert nobody.headers["www-authenticate"].startswith("Bearer")
        bearer = {"Authorization": f"Bearer {house.tokens['ann']}"}
        assert (await http.post("/mcp", json=request("tools/list"), headers=bearer)).status_code == 200


async def test_a_resource_that_is_not_there_is_said_not_to_be(client: Client) -> None:
    for uri in (
        "parley://tasks/none",
        "parley://tasks/%00/artifacts/x",
        "parley://conversations/%00/plan",
        "parley://conversations/a/plans",
        "parley://tasks//artifacts/",
        "file:///etc/passwd",
        "parley:",
        "",
    ):
        with pytest.raises(MCPError) as refused:
            await client.read_resource(uri)
        assert refused.value.message == "Resource not found.", uri


async def test_a_part_of_an_artifact_can_be_read_alone(client: Client) -> None:
    made = (await client.call_tool("writer", {"message": "hi"})).structured_content
    uri = made["artifacts"][0]["uri"]
    assert await texts(client, f"{uri}?part=0") == ["Hello."]
    for part in ("1", "-1", "x", "9" * 5000):
        with pytest.raises(MCPError):
            await client.read_resource(f"{uri}?part={part}")
