"""The program with Parley itself as its platform: asked over A2A, worked on by a local agent, every piece a process."""

import asyncio
import json
import re
import shlex
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from edge.tests.programs import Ended, run, runtime
from parley.client import Client
from parley.testing.processes import ServerProcess
from parley_edge.adapter import Adapter, Artifact, Failure, Output, Task

Json = dict[str, Any]
Serve = Callable[[], Awaitable[ServerProcess]]

pytestmark = pytest.mark.slow


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """A server with one agent whose work is done elsewhere; again on the same port and data, as often as wanted."""
    definition = tmp_path / "far.yaml"
    definition.write_text("driver: edge\nname: Far\ndescription: Works behind NAT.\n")
    port = free_port()
    started: list[ServerProcess] = []

    async def start() -> ServerProcess:
        started.append(await ServerProcess.start([definition], tmp_path / "data", port=port))
        return started[-1]

    yield start
    for server in started:
        await server.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


async def paired(server: ServerProcess, home: Path, endpoint: str) -> Ended:
    async with httpx2.AsyncClient() as http:
        said = (await http.post(f"{server.url}/admin/agents/far/pairing", json={})).json()
    assert said["api_base"] == server.url
    code = ("--code", said["pairing_token"])
    done = await run(home, "pair", *code, "--api-base", said["api_base"], "--endpoint", endpoint, "--json")
    assert done.code == 0, done.err
    return done


@asynccontextmanager
async def asked(server: ServerProcess) -> AsyncIterator[Client]:
    async with Client(f"{server.url}/agents/far") as client:
        yield client


def state(task: Json) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


def words(task: Json) -> list[str]:
    return [part.get("text", "") for made in task.get("artifacts", []) for part in made["parts"]]


async def seen(client: Client, task: str, wanted: str) -> Json:
    async with asyncio.timeout(20):
        async for _, event in client.tail(task, 0):
            update = event.get("statusUpdate") or event.get("task") or {}
            if update and state(update) == wanted:
                break
    return await client.get(task)


async def test_an_agent_behind_nat_answers_over_a2a(serve: Serve, home: Path) -> None:
    async def work(task: Task) -> Output:
        task.progress("reading", percent=10)
        return Output(task.text.upper(), artifacts=[Artifact("notes/a.md", "# A", title="A", summary="one")])

    server = await serve()
    async with Adapter(work).listening(0) as url:
        done = await paired(server, home, url)
        assert done.json["agent_id"] == "far"
        async with runtime(home), asked(server) as client:
            task = (await client.send("hello"))["task"]
    assert state(task) == "completed"
    assert sorted(words(task)) == ["# A", "HELLO"]
    assert [one["name"] for one in task["artifacts"] if one.get("description")] == ["A"]


async def test_the_commands_that_an_operator_hands_out_work(serve: Serve, home: Path) -> None:
    server = await serve()
    text = await told(server)
    found = re.search(r"^ +a2a-runtime (pair .+)$", text, re.MULTILINE)
    assert found, text
    async with Adapter(lambda task: "here").listening(0) as url:
        assert (await run(home, *shlex.split(found[1]), "--endpoint", url)).code == 0
        assert (await run(home, "doctor")).code == 0
        async with runtime(home), asked(server) as client:
            assert words((await client.send("hello"))["task"]) == ["here"]


async def told(server: ServerProcess) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley", "pair", "far", "--url", server.url, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 20)
    return out.decode()


async def test_its_failure_is_a_failed_task(serve: Serve, home: Path) -> None:
    def work(task: Task) -> str:
        raise Failure("no ink")

    server = await serve()
    async with Adapter(work).listening(0) as url:
        await paired(server, home, url)
        async with runtime(home), asked(server) as client:
            task = (await client.send("hello"))["task"]
    assert state(task) == "failed"
    assert "no ink" in json.dumps(task["status"])


async def test_it_can_ask_back(serve: Serve, home: Path) -> None:
    def work(task: Task) -> Output:
        return Output("To whom?", input_required=True) if task.text == "write" else Output(f"Dear {task.text}")

    server = await serve()
    async with Adapter(work).listening(0) as url:
        await paired(server, home, url)
        async with runtime(home), asked(server) as client:
            task = (await client.send("write"))["task"]
            assert state(task) == "input_required"
            task = (await client.send("Ann", task=task["id"]))["task"]
    assert state(task) == "completed"
    assert words(task) == ["Dear Ann"]


async def test_a_cancel_over_a2a_reaches_the_local_agent(serve: Serve, home: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(task: Task) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    server = await serve()
    async with Adapter(work).listening(0) as url:
        await paired(server, home, url)
        async with runtime(home) as program, asked(server) as client:
            sending = asyncio.create_task(client.send("hello"))
            await asyncio.wait_for(begun.wait(), 15)
            running = (await client.list())["tasks"][0]
            await client.cancel(running["id"])
            await asyncio.wait_for(ended.wait(), 15)
            await program.says("task.canceled")
            assert state((await sending)["task"]) == "canceled"


async def test_a_result_outlives_a_kill_of_the_server(serve: Serve, home: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    turns = 0

    async def work(task: Task) -> str:
        nonlocal turns
        turns += 1
        begun.set()
        await go_on.wait()
        return "done"

    server = await serve()
    async with Adapter(work).listening(0) as url:
        await paired(server, home, url)
        async with runtime(home) as program:
            async with asked(server) as client:
                task = (await client.send("hello", configuration={"returnImmediately": True}))["task"]["id"]
                await asyncio.wait_for(begun.wait(), 15)
                await server.kill()
            go_on.set()
            await program.says("delivery.waits")
            server = await serve()
            async with asked(server) as client:
                ended = await seen(client, task, "completed")
    assert words(ended) == ["done"]
    assert turns == 1


@pytest.mark.parametrize("finished", [True, False])
async def test_a_killed_runtime_loses_nothing(serve: Serve, home: Path, finished: bool) -> None:
    """What was finished is delivered by its next start; what was not is given back by it, and done again."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    turns = 0

    async def work(task: Task) -> str:
        nonlocal turns
        turns += 1
        begun.set()
        await go_on.wait()
        return "done"

    server = await serve()
    async with Adapter(work).listening(0) as url:
        await paired(server, home, url)
        async with runtime(home) as program, asked(server) as client:
            task = (await client.send("hello", configuration={"returnImmediately": True}))["task"]["id"]
            await asyncio.wait_for(begun.wait(), 15)
            if finished:
                await server.kill()
                go_on.set()
                await program.says("delivery.waits")
            await program.kill()
        go_on.set()
        server = await serve() if finished else server
        async with runtime(home) as program, asked(server) as client:
            await program.says("task.recovered" if finished else "task.given_back")
            ended = await seen(client, task, "completed")
    assert words(ended) == ["done"]
    assert turns == (1 if finished else 2)


async def test_a_newer_pairing_takes_over(serve: Serve, home: Path, tmp_path: Path) -> None:
    server = await serve()
    async with Adapter(lambda task: "one").listening(0) as one, Adapter(lambda task: "two").listening(0) as two:
        await paired(server, home, one)
        async with runtime(home) as first:
            await first.says("platform.connected")
            await paired(server, tmp_path / "second", two)
            ended = await first.ended()
            async with runtime(tmp_path / "second"), asked(server) as client:
                assert words((await client.send("hello"))["task"]) == ["two"]
    assert ended.code == 4
    assert json.loads(ended.err)["error"]["code"] == "runtime_revoked"


async def test_a_runtime_that_stops_hands_back(serve: Serve, home: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(task: Task) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    server = await serve()
    async with Adapter(work).listening(0) as url:
        await paired(server, home, url)
        async with asked(server) as client:
            async with runtime(home, "--grace", "0.1") as program:
                task = (await client.send("hello", configuration={"returnImmediately": True}))["task"]["id"]
                await asyncio.wait_for(begun.wait(), 15)
                assert (await program.stop()).code == 0
            status = (await run(home, "status", "--json")).json["remote"]
            assert (status["queued"], status["running"]) == (1, 0)
            go_on.set()
            async with runtime(home):
                assert words(await seen(client, task, "completed")) == ["done"]


@pytest.mark.parametrize("copied", ["the whole folder", "the profile file"])
async def test_a_copied_profile_leaves_the_work_of_the_other_alone(
    serve: Serve, home: Path, tmp_path: Path, copied: str
) -> None:
    """It neither hands it back when it starts, nor when it stops, and does not do it again."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(task: Task) -> str:
        begun.set()
        await go_on.wait()
        return "by the first"

    server, copy = await serve(), tmp_path / "copy"
    async with Adapter(work).listening(0) as one, Adapter(lambda task: "by the copy").listening(0) as two:
        await paired(server, home, one)
        async with runtime(home) as first, asked(server) as client:
            task = (await client.send("hello", configuration={"returnImmediately": True}))["task"]["id"]
            await asyncio.wait_for(begun.wait(), 15)
            if copied == "the whole folder":
                shutil.copytree(home, copy)
            else:
                copy.mkdir(mode=0o700)
                shutil.copy2(home / "runtime.json", copy)
            async with runtime(copy, "--endpoint", two) as second:
                answered = await asyncio.wait_for(client.send("another"), 15)
                assert words(answered["task"]) == ["by the copy"]
                assert (await second.stop()).code == 0
                assert len(second.seen("task.left")) == (copied == "the whole folder")
                assert second.seen("task.given_back") == []
            status = (await run(home, "status", "--json")).json["remote"]
            assert (status["queued"], status["running"]) == (0, 1)
            go_on.set()
            assert words(await seen(client, task, "completed")) == ["by the first"]
            await first.says("task.completed")
            assert first.seen("task.lost") == []


async def test_a_finished_result_in_a_copied_folder_is_delivered(serve: Serve, home: Path, tmp_path: Path) -> None:
    """As when a folder was moved to another disk after the process that worked with it was killed."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(task: Task) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    server = await serve()
    async with Adapter(work).listening(0) as url:
        await paired(server, home, url)
        async with runtime(home) as program, asked(server) as client:
            task = (await client.send("hello", configuration={"returnImmediately": True}))["task"]["id"]
            await asyncio.wait_for(begun.wait(), 15)
            await server.kill()
            go_on.set()
            await program.says("delivery.waits")
            await program.kill()
        shutil.copytree(home, tmp_path / "moved")
        server = await serve()
        async with runtime(tmp_path / "moved") as program, asked(server) as client:
            await program.says("task.recovered")
            assert words(await seen(client, task, "completed")) == ["done"]


async def test_one_command_makes_a_program_an_agent(serve: Serve, home: Path) -> None:
    server = await serve()
    await paired(server, home, "http://127.0.0.1:1/run-task")
    program = f"{sys.executable} -c 'print(input().upper())'"
    async with runtime(home, "--command", program), asked(server) as client:
        assert words((await client.send("hello"))["task"]) == ["HELLO"]
