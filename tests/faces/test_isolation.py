"""Other users' tasks do not exist: every operation on every wire answers as for an unknown task."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from parley import NeedInput, Turn, agent
from parley.ids import new_id
from parley.testing.servers import serving

from .wires import TASK_OPERATIONS, WIRES, Wire

Headers = dict[str, str]


@agent("echo", input_modes=("*/*",))
async def echo(turn: Turn):
    """Asks, so that its task stays open to everything."""
    yield NeedInput(turn.text)


@agent("hidden", visibility="private", allow=("service:ann",))
async def hidden(turn: Turn):
    """Exists for one caller."""
    yield NeedInput(turn.text)


class House:
    def __init__(self, http: httpx2.AsyncClient, ann: Headers, bob: Headers, reader: Headers) -> None:
        self.http = http
        self.ann = ann
        self.bob = bob
        self.reader = reader

    async def task_of(self, who: Headers, agent: str = "echo") -> str:
        reply = await Wire("JSON-RPC 1.0", f"/agents/{agent}").ask(self.http, "send", headers=who)
        return reply.json()["result"]["task"]["id"]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with serving(tmp_path / "data", [echo]) as server, httpx2.AsyncClient(base_url=server.url) as http:

        async def key(name: str, *scopes: str) -> Headers:
            made = await http.post("/admin/keys", json={"name": name, **({"scopes": scopes} if scopes else {})})
            return {"Authorization": f"Bearer {made.json()['token']}"}

        keys = [await key("ann"), await key("bob"), await key("reader", "read")]
    async with (
        serving(tmp_path / "data", [echo, hidden], auth="required", allow_hosts=["127.0.0.1"]) as server,
        # A request id of its own would be told to each answer, and answers are compared to the letter.
        httpx2.AsyncClient(base_url=server.url, headers={"x-request-id": "always-this"}) as http,
    ):
        yield House(http, *keys)


def seen(reply: httpx2.Response) -> tuple[int, bytes, dict[str, str]]:
    return reply.status_code, reply.content, {k: v for k, v in reply.headers.items() if k != "date"}


@pytest.mark.parametrize("operation", TASK_OPERATIONS)
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_another_callers_task_answers_as_an_unknown_one(house: House, wire: Wire, operation: str) -> None:
    task = await house.task_of(house.ann)
    own = await Wire("JSON-RPC 1.0").ask(house.http, "set_hook", task, house.ann)
    assert "result" in own.json()
    theirs = await wire.ask(house.http, operation, task, house.bob)
    unknown = await wire.ask(house.http, operation, new_id(), house.bob)
    assert seen(theirs) == seen(unknown)
    assert b"TASK_NOT_FOUND" in theirs.content
    kept = await Wire("JSON-RPC 1.0").ask(house.http, "get", task, house.ann)
    assert kept.json()["result"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert len(kept.json()["result"]["history"]) == 1


@pytest.mark.parametrize("operation", [*TASK_OPERATIONS, "list"])
@pytest.mark.parametrize("wire", WIRES[:2], ids=lambda wire: wire.name)
async def test_an_agent_that_one_may_not_see_answers_as_an_unknown_one(
    house: House, wire: Wire, operation: str
) -> None:
    task = await house.task_of(house.ann, "hidden")
    theirs = await Wire(wire.name, "/agents/hidden").ask(house.http, operation, task, house.bob)
    unknown = await Wire(wire.name, "/agents/nobody").ask(house.http, operation, task, house.bob)
    assert theirs.status_code == unknown.status_code == 404
    assert theirs.content.replace(b"hidden", b"nobody") == unknown.content
    card = await house.http.get("/agents/hidden/.well-known/agent-card.json", headers=house.bob)
    assert card.status_code == 404
    assert (await house.http.get("/agents/hidden/.well-known/agent-card.json", headers=house.ann)).status_code == 200


@pytest.mark.parametrize("wire", WIRES[:2], ids=lambda wire: wire.name)
async def test_a_list_shows_only_what_is_the_callers_own(house: House, wire: Wire) -> None:
    mine = [await house.task_of(house.ann) for _ in range(3)]
    await house.task_of(house.bob)
    listed = wire.result(await wire.ask(house.http, "list", headers=house.ann))
    assert [task["id"] for task in listed["tasks"]] == mine[::-1]
    assert listed["totalSize"] == 3


async def test_a_catalog_lists_what_its_reader_may_see(house: House) -> None:
    async def known(who: Headers) -> list[str]:
        reply = await house.http.get("/.well-known/ai-catalog.json", headers=who)
        return [entry["identifier"].rpartition("/")[2] for entry in reply.json()["entries"]]

    assert await known(house.ann) == ["echo", "hidden"]
    assert await known(house.bob) == ["echo"]
    assert await known({}) == ["echo"]


@pytest.mark.parametrize("operation", ["send", "stream", "cancel", "set_hook", "delete_hook"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_who_may_only_read_changes_nothing(house: House, wire: Wire, operation: str) -> None:
    reply = await wire.ask(house.http, operation, "" if operation in ("send", "stream") else new_id(), house.reader)
    assert b"PERMISSION_DENIED" in reply.content
    assert (await wire.ask(house.http, "get", new_id(), house.reader)).content.count(b"TASK_NOT_FOUND") == 1


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_without_credentials_nothing_is_answered_but_discovery(house: House, wire: Wire) -> None:
    for operation in TASK_OPERATIONS:
        reply = await wire.ask(house.http, operation, new_id())
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"].startswith("Bearer")
    card = (await house.http.get("/agents/echo/.well-known/agent-card.json")).json()
    assert set(card["securitySchemes"]) == {"bearer", "apiKey"}
    assert card["securitySchemes"]["bearer"]["type"] == "http"
