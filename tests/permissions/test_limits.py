"""A key that is limited to some agents reaches no other through the agents it may use, whatever these start; and what
it may not use answers as what nobody serves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from parley.runs.log import Outcome
from parley.testing.servers import serving
from tests.faces.mcp.wire import call
from tests.permissions import limits
from tests.permissions.house import House, bearer, open_house
from tests.permissions.limits import ALLOWED, INNER, LIMITED, MISSING, REACHED, asked, told

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAYS = {
    "turn.ask": (("asker", INNER), ("asker", MISSING)),
    "a step that is sent": ((f"send-{INNER}", "go"), (f"send-{MISSING}", "go")),
    "a step that writes a plan": ((f"plan-{INNER}", "go"), (f"plan-{MISSING}", "go")),
    "a step that builds": ((f"build-{INNER}", "go"), (f"build-{MISSING}", "go")),
    "a step that calls a tool": (("tooled", "go"), ("untooled", "go")),
    "a step that asks": (("nested", INNER), ("nested", MISSING)),
    "a step of a step": (("outer", "go"), (f"send-{MISSING}", "go")),
}
"""Ways from one agent to another: an agent and a message that lead to `inner`, and the same to an unknown agent."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with open_house(tmp_path_factory.mktemp("limits"), *limits.drivers()) as house:
        await limits.add_limited(house)
        yield house


@pytest.mark.parametrize("way", WAYS)
async def test_a_limited_key_reaches_no_other_agent_by_what_its_agents_start(house: House, way: str) -> None:
    (slug, text), (other, word) = WAYS[way]
    REACHED.clear()
    open_ = await asked(house, "user", slug, text)
    assert open_["status"]["state"] == "TASK_STATE_COMPLETED", "an unlimited key must get through"
    assert REACHED or slug == "tooled"
    assert "There is no agent" not in told(open_)
    REACHED.clear()
    refused = await asked(house, LIMITED, slug, text)
    assert REACHED == []
    if slug != "outer":
        assert told(refused) == told(await asked(house, LIMITED, other, word))
    assert "no agent" in told(refused)


async def test_a_limited_key_cannot_use_another_agent_on_any_face(house: House) -> None:
    for slug in (INNER, MISSING):
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        at = f"/agents/{slug}/message:send"
        reply = await house.ask(LIMITED, "POST", at, {"message": message}, {"A2A-Version": "1.0"})
        assert reply.status_code == 404
        mcp = await house.ask(LIMITED, "POST", "/mcp", call(slug, "hi"), {"Accept": "application/json"})
        assert "error" in mcp.json(), mcp.text


async def test_a_fork_of_a_limited_task_stays_limited(house: House) -> None:
    REACHED.clear()
    task = await asked(house, LIMITED, "asker", INNER)
    forked = await house.ask(LIMITED, "POST", f"/agents/asker/tasks/{task['id']}:fork", {}, {"A2A-Version": "1.0"})
    assert forked.status_code == 200, forked.text
    by_admin = await house.ask("admin", "POST", f"/agents/asker/tasks/{task['id']}:fork", {}, {"A2A-Version": "1.0"})
    assert by_admin.status_code == 200, by_admin.text
    for reply in (forked, by_admin):
        run = await house.server.exchange.commands.state(reply.json()["id"])
        view = await house.server.exchange.settled(Outcome(run, [], replayed=True), ended=True)
        assert view.run.state.value == "completed"
    assert REACHED == []


@asynccontextmanager
async def _served(directory: Path, auth: str, token: str = "") -> AsyncIterator[House]:
    async with (
        serving(directory, limits.drivers(), auth=auth) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=20) as http,
    ):
        house: Any = House(server, http, None)  # type: ignore[arg-type]
        house.who[LIMITED] = lambda: bearer(token)
        yield house


async def test_a_limit_holds_after_a_restart(tmp_path: Path) -> None:
    async with _served(tmp_path, "local") as house:
        made = await house.ask("nobody", "POST", "/admin/keys", {"name": LIMITED, "agents": list(ALLOWED)})
    token = made.json()["token"]
    async with _served(tmp_path, "required", token) as house:
        task = await asked(house, LIMITED, "later", "go")
    async with _served(tmp_path, "required", token) as house:
        REACHED.clear()
        answered = await asked(house, LIMITED, "later", INNER, task["id"])
        assert "no agent" in told(answered)
        assert REACHED == []


async def test_what_an_unlimited_key_began_is_limited_once_a_limited_one_goes_on_with_it(house: House) -> None:
    made = await house.ask("admin", "POST", "/admin/keys", {"name": "narrowed"})
    house.who["narrowed"] = lambda: bearer(made.json()["token"])
    task = await asked(house, "narrowed", "later", "go")
    assert (await house.ask("admin", "DELETE", "/admin/keys/narrowed")).status_code < 300
    again = await house.ask("admin", "POST", "/admin/keys", {"name": "narrowed", "agents": ["later"]})
    house.who["narrowed"] = lambda: bearer(again.json()["token"])
    REACHED.clear()
    answered = await asked(house, "narrowed", "later", INNER, task["id"])
    assert "no agent" in told(answered)
    assert REACHED == []
