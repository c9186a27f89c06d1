"""Long runs on the wire: what is large is rendered off the event loop, and only what is asked for is read."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import Text, Turn, agent
from parley.execution import turn as turns
from parley.faces.a2a.v03 import V03
from parley.faces.a2a.v1 import V1
from parley.ids import RunId
from parley.offload import LARGE
from parley.runs.rules.content import text_part
from parley.runs.rules.events import ArtifactAdded, Event, InputRequired, Started
from parley.runs.streams import PAGE
from parley.testing.logs import LogWriter, put
from parley.testing.servers import Server, serving

EVENTS = max(LARGE, PAGE) * 5


@agent("agent")
async def quiet(turn: Turn):
    """Owns the long run."""
    yield Text(f"{len(turn.history)} {len(await turn.recall(3))}")


class Long:
    def __init__(self, server: Server, log: LogWriter) -> None:
        self.server = server
        self.run = log.run_id
        self.reads = 0
        self._read = server.exchange.store.read
        server.exchange.store.read = self._counted  # type: ignore[method-assign]

    async def _counted(self, run: RunId, after: int, limit: int) -> list[Event]:
        self.reads += 1
        return await self._read(run, after, limit)

    async def ask(self, method: str, params: dict[str, object], version: str = "1.0") -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with httpx2.AsyncClient(headers={"A2A-Version": version}) as http:
            reply = await http.post(self.server.agent("agent"), json=call)
        return reply.json()["result"]


@pytest.fixture
async def long(tmp_path: Path) -> AsyncIterator[Long]:
    async with serving(tmp_path / "data", [quiet]) as server:
        log, store = LogWriter(), server.exchange.store
        await put(store, log.start())
        await put(store, log.append(Started(1)))
        await put(store, log.append(ArtifactAdded("made", (text_part("one "),))))
        await put(store, log.progress(EVENTS))
        await put(store, log.append(ArtifactAdded("made", (text_part("two"),), append=True, last=True)))
        await put(store, log.append(InputRequired((text_part("Which name?"),))))
        yield Long(server, log)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that wrote a task."""
    found: list[threading.Thread] = []
    for dialect in (V1, V03):
        write = dialect.task

        def watched(self: Any, shown: Any, write: Any = write) -> Any:
            found.append(threading.current_thread())
            return write(self, shown)

        monkeypatch.setattr(dialect, "task", watched)
    return found


@pytest.mark.parametrize(("version", "method"), [("1.0", "GetTask"), ("0.3", "tasks/get")])
async def test_a_long_task_is_written_off_the_event_loop(
    long: Long, threads: list[threading.Thread], version: str, method: str
) -> None:
    task = await long.ask(method, {"id": long.run}, version)
    assert len(task["history"]) == EVENTS + 1
    assert task["artifacts"][0]["parts"][0]["text"] == "one two"
    assert threads
    assert threading.main_thread() not in threads


async def test_the_first_task_of_a_stream_is_written_off_the_event_loop(
    long: Long, threads: list[threading.Thread]
) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": long.run}}
    async with (
        httpx2.AsyncClient(headers={"A2A-Version": "1.0"}) as http,
        http.stream("POST", long.server.agent("agent"), json=call) as reply,
    ):
        lines = reply.aiter_lines()
        assert await anext(lines) == f"id: {EVENTS + 6}"
        assert (await anext(lines)).count('"messageId"') == EVENTS + 2
    assert threads
    assert threading.main_thread() not in threads


async def test_a_list_with_a_long_task_is_written_off_the_event_loop(
    long: Long, threads: list[threading.Thread]
) -> None:
    listed = await long.ask("ListTasks", {"includeArtifacts": True})
    assert len(listed["tasks"][0]["history"]) == EVENTS + 1
    assert threading.main_thread() not in threads


async def test_a_short_history_of_a_long_task_is_read_from_its_end(long: Long) -> None:
    whole = await long.ask("GetTask", {"id": long.run})
    for length in (0, 1, 50):
        long.reads = 0
        task = await long.ask("GetTask", {"id": long.run, "historyLength": length})
        assert long.reads == 0
        assert task == {**whole, "history": whole["history"][-length:]} if length else task["status"] == whole["status"]
        assert task["artifacts"] == whole["artifacts"]


async def test_a_list_with_short_histories_reads_no_whole_log(long: Long) -> None:
    long.reads = 0
    listed = await long.ask("ListTasks", {"historyLength": 2})
    assert len(listed["tasks"][0]["history"]) == 2
    assert long.reads == 0


async def test_the_next_turn_of_a_long_run_is_given_its_history_folded(
    long: Long, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "view_of", pytest.fail)
    message = {"messageId": "n", "taskId": long.run, "role": "ROLE_USER", "parts": [{"text": "Ada"}]}
    sent = await long.ask("SendMessage", {"message": message})
    assert sent["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert sent["task"]["artifacts"][-1]["parts"][0]["text"] == f"{EVENTS + 3} 1"
