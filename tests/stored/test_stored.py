"""A database that an earlier version has written is read, verified and continued by this one."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from msgspec import Struct

from parley.runs.rules.events import EVENT_TYPES
from parley.security.secrets import Secrets, Sessions
from parley.testing.databases import bare_database
from parley.testing.processes import until
from parley.testing.receivers import Receiver
from tests.models.vendors import OpenAi, answer
from tests.stored.expected import KINDS, expected, missing, rendered, restored
from tests.stored.house import MCP_HEADERS, THREAD, House, Json, Place, hooked
from tests.stored.make import DELIVERY, TOOL_CALL

NEWER = {"suspended", "woken"}
"""Types of events that the stored databases are older than."""

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


class Stored(Struct, frozen=True):
    """A server on a copy of a stored database. `notes` is what the clients of that know."""

    kind: str
    house: House
    notes: Json
    place: Place
    receiver: Receiver

    def run(self, name: str) -> str:
        return self.notes["runs"][name]

    async def completed(self, slug: str, name: str) -> str:
        """The text of a run's artifacts, when it is complete."""
        await self.house.reached(slug, self.run(name), "completed")
        task = await self.house.rpc(slug, "GetTask", {"id": self.run(name)}, "admin")
        return "".join(part.get("text", "") for made in task.get("artifacts", []) for part in made["parts"])

    async def answered(self, slug: str, name: str, text: str, who: str = "ann") -> str:
        await self.house.send(slug, text, who, task=self.run(name))
        return await self.completed(slug, name)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stored]:
    kind = request.param
    url = await bare_database(request.getfixturevalue("postgres")) if kind == "postgres" else ""
    async with (
        hooked() as receiver,
        restored(kind, tmp_path_factory.mktemp(kind) / "place", url) as (house, notes, place),
    ):
        yield Stored(kind, house, notes, place, receiver)


async def test_everything_is_shown_as_it_was(stored: Stored) -> None:
    known = expected(stored.kind)
    found = await rendered(stored.house, stored.notes, known)
    differences = [*missing(known, found), *(f"new: {one}" for one in missing(found, known))]
    assert differences[:20] == []


async def test_a_log_holds_every_type_of_event(stored: Stored) -> None:
    lines = {line for run in expected(stored.kind)["runs"].values() for line in run["log"]}
    assert set(EVENT_TYPES) - lines == NEWER


async def test_what_was_under_way_is_taken_up_again(stored: Stored) -> None:
    stored.place.open.touch()
    assert await stored.completed("steady", "steady") == "first then, after one and two"
    assert (await stored.completed("worker", "worker")).endswith("one more input")
    for name in ("narrow 0", "narrow 1"):
        assert await stored.completed("narrow", name) == f"at last {name}"
    assert "done closing" in await stored.completed("worker", "run-closing")
    await stored.completed("two", "running")


async def test_what_waits_is_continued(stored: Stored) -> None:
    assert await stored.answered("asker", "asks", "blue") == "question of asks: blue"
    assert await stored.answered("asker", "bob asks", "red", "bob") == "question of bob: red"
    assert await stored.answered("vault", "auth", "Ann") == "Welcome, Ann."
    assert await stored.answered("mirror", "mirror", "green") == "question of mirror: green"
    await stored.house.send("org", "Leave it.", task=stored.run("org"))
    async with stored.house.control() as control:
        await control.say("run-stored", THREAD, "second")
        await stored.house.reached("keeper", "run-stored", "input_required")
        await control.finish("run-stored", THREAD)
    assert (await stored.completed("keeper", "run-stored")).endswith("kept second")


async def test_an_approved_call_of_a_tool_is_made(stored: Stored) -> None:
    stored.house.vendor.replies = [answer(OpenAi, "It is 1.")]
    assert "It is 1." in await stored.answered("chat", "chat", "yes")
    assert OpenAi.results(stored.house.vendor.asked[-1]) == [("id-1", '{"n":1}')]


async def test_orchestrations_go_on(stored: Stored) -> None:
    stored.place.open.touch()
    await stored.answered("quick", "checkpoint", "go on")
    await stored.house.did("orchestration-paused", "orchestrate", "resume", "two")
    await stored.completed("two", "paused")


async def test_a_stored_hook_is_posted_to_with_its_secrets(stored: Stored) -> None:
    await stored.answered("asker", "hooked", "told")
    await until(lambda: bool(stored.receiver.on("/live")) and bool(stored.receiver.on("/second")), 20)
    headers = stored.receiver.on("/live")[-1].headers
    assert headers["authorization"] == "Bearer hook-credentials"
    assert headers["x-a2a-notification-token"] == "hook-token"
    assert stored.receiver.on("/dead") == []


async def test_a_paired_runtime_goes_on_with_its_token(stored: Stored) -> None:
    token = {"X-Runtime-Token": stored.notes["tokens"]["runtime"], "X-Runtime-Instance": "process-2"}
    done: set[str] = set()
    wanted = {stored.run("far held"), stored.run("far queued")}

    async def worked() -> bool:
        pulled = await stored.house.post("/agent-accounts/far/task-runs/pull", {"wait_ms": 500, "limit": 5}, "", token)
        for work in pulled["task_runs"]:
            body = {"lease_id": work["lease_id"], "output": {"text": "from afar"}}
            await stored.house.post(f"/task-runs/{work['id']}/complete", body, "", token)
            done.add(work["id"])
        return wanted <= done

    await until(worked, 30)
    await stored.completed("far", "far held")


async def test_a_stored_node_is_discovered(stored: Stored) -> None:
    top, low = stored.notes["nodes"]["top"], stored.notes["nodes"]["low"]
    headers = {"Authorization": f"Bearer {top['token']}", "X-Workspace-ID": top["id"]}
    found = await stored.house.get(f"/registry/discover/{low['id']}", "", headers)
    assert found["id"] == low["id"]
    assert found["token"]


async def test_what_was_done_once_is_not_done_again(stored: Stored) -> None:
    """There is no GitHub here: the answer of the stored call is told again."""
    async with stored.house.control() as control:
        assert await control.execute(TOOL_CALL) == stored.notes["tool call"]
        assert (await control.deliver(DELIVERY))["idempotentReplay"]
        late = await control.frame("run-closed", THREAD, payload={"text": "too late"}, id_="frame-late")
        first = await control.frame(
            "run-closed", THREAD, payload={"text": "first", "note": "n"}, id_="frame-run-closed"
        )
        assert (late["idempotentReplay"], first["idempotentReplay"]) == (True, True)


async def test_a_stream_of_mcp_goes_on_from_its_mark(stored: Stored) -> None:
    stored.place.open.touch()
    headers = {
        **MCP_HEADERS,
        "Authorization": f"Bearer {stored.notes['tokens']['ann']}",
        "Last-Event-ID": stored.notes["mark"],
    }
    async with asyncio.timeout(20), stored.house.http.stream("GET", "/mcp", headers=headers) as reply:
        assert reply.status_code == 200
        assert any([True async for line in reply.aiter_lines() if "done by mcp" in line])


async def test_a_session_of_the_console_is_known(stored: Stored) -> None:
    """By its bytes: a browser would have been signed out by now."""
    sessions = Sessions(Secrets(stored.place.data / "secret.key"), 10**9)
    session = sessions.opened(stored.notes["session"].partition("=")[2])
    assert session is not None
    assert session.credential == stored.notes["tokens"]["admin"]


async def test_every_chain_is_whole(stored: Stored) -> None:
    verified = await stored.place.parley("verify")
    assert not verified.get("broken"), verified
