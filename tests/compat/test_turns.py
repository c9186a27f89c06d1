"""Executors with habits of their own, behind a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from a2a.helpers import new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from starlette.types import ASGIApp

from parley.client import Client
from parley.compat import durable
from parley.testing.processes import ServerProcess, until
from parley.testing.servers import serving
from tests.compat.program import card_at

EXAMPLE = Path(__file__).parents[2] / "examples/compat/durable_server.py"


class Odd(AgentExecutor):
    def __init__(self) -> None:
        self.authorized = asyncio.Event()
        self.begun = asyncio.Event()
        self.calls: list[str] = []
        self.returned = 0

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        text = context.get_user_input()
        self.calls.append(text)
        await getattr(self, f"_{text.split()[0]}")(TaskUpdater(event_queue, context.task_id, context.context_id))
        self.returned += 1

    async def _outside(self, updater: TaskUpdater) -> None:
        await updater.requires_auth(updater.new_agent_message([new_text_part("Sign in over there.")]))
        await self.authorized.wait()
        await updater.complete(updater.new_agent_message([new_text_part("signed in")]))

    async def _nothing(self, updater: TaskUpdater) -> None:
        pass

    async def _open(self, updater: TaskUpdater) -> None:
        await updater.add_artifact([new_text_part("left open")], name="draft")

    async def _late(self, updater: TaskUpdater) -> None:
        await updater.complete()
        await updater.add_artifact([new_text_part("too late")])

    async def _long(self, updater: TaskUpdater) -> None:
        await updater.start_work()
        self.begun.set()
        await self.authorized.wait()
        await updater.requires_input()

    async def _more(self, updater: TaskUpdater) -> None:
        await updater.complete(updater.new_agent_message([new_text_part("that too")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.calls.append("cancel")
        raise NotImplementedError("cancel is not supported")


def status_of(task: dict[str, Any]) -> tuple[str, str]:
    status = task["status"]
    return status["state"], "".join(part["text"] for part in status.get("message", {}).get("parts", []))


async def test_authorization_that_is_had_elsewhere_is_told_while_the_work_goes_on(tmp_path: Path) -> None:
    odd = Odd()
    async with (
        serving(tmp_path, [durable(odd, card_at("http://x"), slug="odd")]) as server,
        Client(server.agent("odd")) as client,
    ):
        said: list[str] = []
        async for event in client.stream("outside"):
            status = event.get("statusUpdate", {}).get("status", {})
            said += [part["text"] for part in status.get("message", {}).get("parts", [])]
            if said == ["Sign in over there."]:
                odd.authorized.set()
        assert said == ["Sign in over there.", "signed in"]


@pytest.mark.parametrize(
    ("word", "state", "files"),
    [
        ("nothing", "TASK_STATE_FAILED", 0),
        ("open", "TASK_STATE_COMPLETED", 1),
        ("late", "TASK_STATE_COMPLETED", 0),
    ],
)
async def test_however_an_executor_returns_its_task_has_an_end(
    tmp_path: Path, word: str, state: str, files: int
) -> None:
    odd = Odd()
    async with (
        serving(tmp_path, [durable(odd, card_at("http://x"), slug="odd")]) as server,
        Client(server.agent("odd")) as client,
    ):
        task = (await client.send(word))["task"]
        await until(lambda: odd.returned == 1)
        task = await client.call("GetTask", {"id": task["id"]})
        assert (status_of(task)[0], len(task.get("artifacts", []))) == (state, files)


async def test_messages_that_came_meanwhile_are_calls_of_their_own(tmp_path: Path) -> None:
    odd = Odd()
    async with (
        serving(tmp_path, [durable(odd, card_at("http://x"), slug="odd")]) as server,
        Client(server.agent("odd")) as client,
    ):
        task = (await client.send("long", configuration={"returnImmediately": True}))["task"]
        await odd.begun.wait()
        for text in ("more one", "more two"):
            await client.send(text, task=task["id"], configuration={"returnImmediately": True})
        odd.authorized.set()
        await until(lambda: len(odd.calls) == 3)
        assert odd.calls == ["long", "more one", "more two"]

        async def over() -> bool:
            return status_of(await client.call("GetTask", {"id": task["id"]})) == ("TASK_STATE_COMPLETED", "that too")

        await until(over)


async def test_an_executor_that_cannot_cancel_is_canceled_all_the_same(tmp_path: Path) -> None:
    odd = Odd()
    async with (
        serving(tmp_path, [durable(odd, card_at("http://x"), slug="odd")]) as server,
        Client(server.agent("odd")) as client,
    ):
        task = (await client.send("long", configuration={"returnImmediately": True}))["task"]
        await odd.begun.wait()
        canceled = await client.call("CancelTask", {"id": task["id"]})
        assert status_of(canceled)[0] == "TASK_STATE_CANCELED"
        await until(lambda: odd.calls[-1] == "cancel")
        assert odd.returned == 0


async def test_what_an_executor_raises_is_logged_as_the_program_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Odd):
        async def _nothing(self, updater: TaskUpdater) -> None:
            raise RuntimeError("the ink is dry")

    app = durable(Broken(), card_at("http://127.0.0.1:9"), data_dir=tmp_path)
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    async with started(app), Client("http://127.0.0.1:9/", http=http) as client:
        task = (await client.send("nothing"))["task"]
    assert status_of(task) == ("TASK_STATE_FAILED", "The agent stopped with an unexpected RuntimeError.")
    (record,) = [one for one in caplog.records if one.message.startswith("agent.raised")]
    assert record.exc_info
    assert str(record.exc_info[1]) == "the ink is dry"


@asynccontextmanager
async def started(app: ASGIApp) -> AsyncIterator[None]:
    """As a server starts and stops an application."""
    told, said = asyncio.Queue[Any](), asyncio.Queue[Any]()
    task = asyncio.create_task(app({"type": "lifespan"}, told.get, said.put))
    told.put_nowait({"type": "lifespan.startup"})
    assert (await said.get())["type"] == "lifespan.startup.complete"
    yield
    told.put_nowait({"type": "lifespan.shutdown"})
    assert (await said.get())["type"] == "lifespan.shutdown.complete"
    await task


async def test_a_program_that_cannot_start_says_why(tmp_path: Path) -> None:
    app = durable(Odd(), card_at("http://x"), data_dir=tmp_path)
    said = asyncio.Queue[Any]()
    async with started(app):
        told = asyncio.Queue[Any]()
        told.put_nowait({"type": "lifespan.startup"})
        await durable(Odd(), card_at("http://x"), data_dir=tmp_path)({"type": "lifespan"}, told.get, said.put)
    failed = said.get_nowait()
    assert failed["type"] == "lifespan.startup.failed"
    assert str(tmp_path) in failed["message"]


async def test_a_server_that_does_not_start_it_is_told_so() -> None:
    app = durable(Odd(), card_at("http://x"))

    async def nothing(*_: object) -> Any:
        raise AssertionError

    with pytest.raises(Exception, match="lifespan"):
        await app({"type": "http", "path": "/"}, nothing, nothing)


@pytest.mark.slow
async def test_parley_serves_what_the_example_made(tmp_path: Path) -> None:
    server = await ServerProcess.start([EXAMPLE], tmp_path)
    try:
        async with Client(f"{server.url}/agents/greeter") as client:
            asked = (await client.send("hello"))["task"]
            assert status_of(asked) == ("TASK_STATE_INPUT_REQUIRED", "Whom shall I greet?")
            task = (await client.send("Ada", task=asked["id"]))["task"]
            assert task["artifacts"][0]["parts"][0]["text"] == "Hello, Ada!"
    finally:
        await server.stop()


def test_the_two_programs_of_the_example_differ_in_the_line_that_makes_the_application() -> None:
    """Besides it only what nobody needs any more is gone, and the import is there."""
    before = (EXAMPLE.parent / "sdk_server.py").read_text().splitlines()[1:]
    after = EXAMPLE.read_text().splitlines()[1:]
    added = [line for line in after if line not in before and line != "from a2a.server.tasks import TaskUpdater"]
    assert added == ["from parley.compat import durable", "app = durable(executor, card)"]
