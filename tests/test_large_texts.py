"""Texts that no event could hold, over the wire: they are texts like any other, for every agent and at every face."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from parley import Done, NeedInput, Status, Text, Turn, agent
from parley.client import Client, Json
from parley.client.control import Owner, RuntimeClient
from parley.definitions.loader import LoadedDefinitions, Sources
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote
from parley.ids import RunId
from parley.runs.log import verify_run
from parley.testing.databases import fresh_database
from parley.testing.processes import ServerProcess
from parley.testing.servers import Server, serving
from tests.a2a_server.houses import strays
from tests.faces.control.wire import SECRET
from tests.faces.pairing.conftest import edge
from tests.faces.pairing.runtime import paired, web

EVIL = "$(touch oops); `touch oops` && cat ../../../etc/passwd | tee ../oops > 'oops' #äö\n"
LONG = EVIL * 15_000
"""Over a megabyte: more than an event may hold."""
ECHO = """
from parley import Text, Turn, agent

@agent("echo")
async def echo(turn: Turn):
    yield Text(turn.text)
"""


@agent("echo")
async def echo(turn: Turn):
    yield Text(turn.text)


@agent("threader")
def threader(turn: Turn) -> str:
    """A plain function."""
    return turn.text


@agent("greeter", replies="message")
async def greeter(turn: Turn) -> str:
    return turn.text


@agent("relay")
async def relay(turn: Turn):
    answer = await turn.ask("echo", turn.text)
    yield Text(answer.text)


@agent("asker")
async def asker(turn: Turn):
    """Says the long text in every way there is, then counts what it knows of it."""
    if turn.number == 1:
        yield Text("a")
        yield Text(turn.text)
        yield Text("b")
        yield Status(turn.text)
        yield NeedInput(turn.text)
        return
    (made,) = turn.artifacts
    yield Done({
        "heard": [len(part.text or "") for said in turn.history for part in said.parts],
        "made": [len(part.text or "") for part in made.parts],
    })  # fmt: skip


@agent("elephant")
async def elephant(turn: Turn):
    yield Text(turn.text)
    yield Done({"remembered": [[len(one.asked), len(one.answer)] for one in await turn.recall(5)]})


COMMAND = """
import json, sys
text = json.load(sys.stdin)["text"]
for piece in (text[:500_000], text[500_000:]):
    print(json.dumps({"text": piece}))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    place = tmp_path_factory.mktemp("large")
    settings: dict[str, object] = {"store": request.param}
    if request.param == "postgres":
        settings["postgres_url"] = await fresh_database(request.getfixturevalue("postgres"))
    (place / "prog.py").write_text(COMMAND)
    command = {"run": [sys.executable, "prog.py"], "input": "json", "output": "jsonl"}
    (place / "prog.yaml").write_text(json.dumps({"command": command}))
    (place / "model.yaml").write_text(json.dumps({"driver": "llm", "model": "offline"}))
    reading = LoadedDefinitions(Sources((str(place / "prog.yaml"), str(place / "model.yaml"))))
    reading.check()
    drivers = [echo, threader, greeter, relay, asker, elephant, edge("far"), *reading.drivers]
    async with serving(place / "data", drivers, **settings) as running:
        running.exchange.add(RemoteDriver(blank_remote("distant"), RemoteOptions(url=running.agent("echo"))))
        yield running


pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


def said(task: Json) -> str:
    return "".join(part["text"] for made in task["artifacts"] for part in made["parts"])


def asked(task: Json) -> str:
    return task["history"][0]["parts"][0]["text"]


@pytest.mark.parametrize("slug", ["echo", "threader", "relay", "prog", "distant"])
async def test_an_agent_reads_it_and_says_it_again(server: Server, slug: str) -> None:
    async with Client(server.agent(slug)) as client:
        task = (await client.send(LONG))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
        assert (said(task), asked(task)) == (LONG, LONG)
        assert await client.get(task["id"]) == task
    assert await verify_run(server.exchange.store, RunId(task["id"]))


async def test_a_model_reads_it_too(server: Server) -> None:
    async with Client(server.agent("model")) as client:
        task = (await client.send("x" * 300_000))["task"]
    assert said(task).endswith("You said: " + "x" * 300_000)


async def test_an_answer_that_is_a_message_may_be_as_long(server: Server) -> None:
    async with Client(server.agent("greeter")) as client:
        assert (await client.send(LONG))["message"]["parts"] == [{"text": LONG}]


async def test_whatever_an_agent_says_may_be_long_and_it_knows_it_in_its_next_turn(server: Server) -> None:
    long = len(LONG)
    async with Client(server.agent("asker")) as client:
        frames = [frame async for frame in client.stream(LONG)]
        statuses = [frame["statusUpdate"]["status"] for frame in frames if "statusUpdate" in frame]
        pieces = [one["artifactUpdate"]["artifact"]["parts"] for one in frames if "artifactUpdate" in one]
        assert [one["message"]["parts"][0]["text"] == LONG for one in statuses if "message" in one] == [True, True]
        assert "".join(part["text"] for parts in pieces for part in parts) == f"a{LONG}b"
        task = await client.get(frames[0]["task"]["id"])
        assert task["status"]["message"]["parts"] == [{"text": LONG}]
        assert task["artifacts"][0]["parts"] == [{"text": f"a{LONG}b"}]
        assert [one["parts"][0]["text"] == LONG for one in task["history"]] == [True, True]
        task = (await client.send("go on", task=task["id"]))["task"]
    known = task["status"]["message"]["parts"][0]["data"]
    assert known == {"heard": [long, long, long, 5], "made": [long + 2]}


async def test_earlier_tasks_of_a_conversation_are_remembered_whole(server: Server) -> None:
    async with Client(server.agent("elephant")) as client:
        first = (await client.send(LONG))["task"]
        task = (await client.send("And now?", context=first["contextId"]))["task"]
    assert task["status"]["message"]["parts"][0]["data"] == {"remembered": [[1, len(LONG)]]}


async def test_the_runtime_contract_takes_and_shows_it(server: Server) -> None:
    async with RuntimeClient(server.url, SECRET, owner=Owner(user_id=42)) as client:
        run = (await client.create_run("thread-long", agent="echo"))["runId"]
        await client.say(run, "thread-long", LONG)
        await client.finish(run, "thread-long")
        async with aclosing(client.follow(run, "thread-long")) as events:
            shown = [data async for _, data in events]
    (given,) = [one["payload"] for one in shown if one.get("eventType") == "run.frame_consumed"]
    assert given["parts"] == [{"text": LONG}]
    assert "".join(one["delta"] for one in shown if one["type"] == "text-delta") == LONG


async def test_the_modes_contract_shows_it(server: Server) -> None:
    async with Client(server.agent("echo")) as client, web() as http:
        task = (await client.send(LONG))["task"]
        at = f"{server.url}/api/agent2agent/tasks/{task['id']}"
        assert (await http.get(at)).json()["result"] == {"content": LONG}
        shown = [json.loads(line[6:]) async for line in _lines(http, f"{at}/stream") if line.startswith("data: {")]
    assert [one["text"] for one in shown if one["type"] == "text"] == [LONG]


async def _lines(http: httpx2.AsyncClient, url: str) -> AsyncIterator[str]:
    async with http.stream("GET", url) as reply:
        async for line in reply.aiter_lines():
            yield line


async def test_a_runtime_pulls_it_and_answers_with_it(server: Server) -> None:
    async with Client(server.agent("far")) as client, web() as http:
        runtime = await paired(http, server.url, "far")
        task = (await client.send(LONG, configuration={"returnImmediately": True}))["task"]
        work = await runtime.one()
        assert work.text == LONG
        await runtime.complete(work, text=work.text)
        assert said(await client.get(task["id"])) == LONG


async def test_operators_see_its_beginning(server: Server) -> None:
    async with Client(server.agent("greeter")) as client:
        await client.send(LONG)
    async with web() as http:
        (run,) = (await http.get(f"{server.url}/admin/runs?agent=greeter&pageSize=1")).json()["runs"]
    assert run["said"]
    assert LONG.startswith(run["said"])


async def test_ten_megabytes_are_text_and_are_there_after_a_crash(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(ECHO)
    text = (EVIL * 130_000)[:10_000_000]
    server = await ServerProcess.start([tmp_path / "agents.py"], tmp_path / "data", cwd=tmp_path)
    async with Client(f"{server.url}/agents/echo") as client:
        task = (await client.send(text))["task"]
    await server.kill()
    server = await ServerProcess.start([tmp_path / "agents.py"], tmp_path / "data", cwd=tmp_path)
    async with Client(f"{server.url}/agents/echo") as client:
        again = await client.get(task["id"])
    await server.stop()
    assert again == task
    assert (asked(again), said(again)) == (text, text)
    assert not strays(tmp_path)
