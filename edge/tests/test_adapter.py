"""The kit: a local agent in a few lines."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from edge.tests.conftest import Pair
from edge.tests.platform import Platform
from edge.tests.programs import runtime
from parley_edge.adapter import Adapter, Artifact, Failure, Handler, Output, Task, adapter, envelope
from parley_edge.errors import WrongUse
from parley_edge.net.http import Answer, Http

Json = dict[str, Any]
TASK = {
    "task_run_id": "run-1", "conversation_id": "talk", "workspace_id": "talk", "task_type": "chat",
    "input": {"text": "hello", "parts": [{"data": 1}]}, "initiator_agent_id": "", "target_agent_id": "worker",
    "platform": {"name": "A2A", "origin": "example.test"},
}  # fmt: skip
JSON = {"Content-Type": "application/json"}


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    async with Adapter(handler).listening(port=0) as url:
        yield url


async def ask(url: str, body: Any = TASK, method: str = "POST", **headers: str) -> Answer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await Http(keep=False).ask(method, url, headers=named, body=content, timeout_s=10)


async def answered(handler: Handler, **headers: str) -> Json:
    async with served(handler) as url:
        return json.loads((await ask(url, **headers)).body)


async def test_a_function_answers_with_a_text() -> None:
    @adapter
    def shout(task: Task) -> str:
        return task.text.upper()

    assert await answered(shout) == {"success": True, "output": {"text": "HELLO"}}


async def test_a_coroutine_answers_too() -> None:
    async def greet(task: Task) -> Json:
        await asyncio.sleep(0)
        return {"text": f"{task.text} from {task.target_agent_id} at {task.platform['origin']}", "parts": task.parts}

    output = (await answered(greet))["output"]
    assert output == {"text": "hello from worker at example.test", "parts": [{"data": 1}]}


def test_what_a_handler_returns_becomes_the_envelope() -> None:
    assert envelope(None) == {"success": True, "output": {"text": ""}}
    assert envelope({"success": False, "error": "no"}) == {"success": False, "error": "no"}
    made = Output("ok", artifacts=[Artifact("a.md", "", keywords=("k",))], more={"mood": 1}, parts=[{"text": "x"}])
    assert envelope(made)["output"] == {
        "mood": 1,
        "text": "ok",
        "parts": [{"text": "x"}],
        "artifacts": [{"filename": "a.md", "content_text": "", "keywords": ["k"], "artifact_type": "file"}],
    }
    assert envelope(Output("To whom?", input_required=True))["output"] == {
        "text": "To whom?",
        "state": "input-required",
    }
    with pytest.raises(TypeError):
        envelope(3)  # type: ignore[arg-type]


async def test_a_failure_says_why_and_a_defect_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(task: Task) -> str:
        raise Failure("no ink")

    async def break_(task: Task) -> str:
        raise ValueError("password123")

    assert await answered(refuse) == {"success": False, "error": "no ink"}
    assert await answered(break_) == {"success": False, "error": "The local agent failed."}
    assert "password123" in capsys.readouterr().err


async def test_a_handler_that_blocks_does_not_block_the_others() -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(task: Task) -> str:
        both.wait()
        return "met"

    async with served(meet) as url:
        said = await asyncio.gather(ask(url), ask(url))
    assert [json.loads(one.body)["output"]["text"] for one in said] == ["met", "met"]


async def test_who_hangs_up_cancels_the_handler() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(task: Task) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async with served(work) as url:
        asking = asyncio.create_task(ask(url))
        await begun.wait()
        asking.cancel()
        await asyncio.wait_for(ended.wait(), 5)


async def test_a_blocking_handler_can_see_that_nobody_waits_any_more() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(task: Task) -> str:
        begun.set()
        while not task.canceled:
            pass
        ended.set()
        return ""

    async with served(work) as url:
        asking = asyncio.create_task(ask(url))
        await asyncio.to_thread(begun.wait, 5)
        asking.cancel()
        assert await asyncio.to_thread(ended.wait, 5)


@pytest.mark.parametrize("threaded", [True, False])
async def test_progress_comes_before_the_answer_for_those_who_read_it(threaded: bool) -> None:
    def tell(task: Task) -> str:
        task.progress("half", percent=50)
        task.progress("most")
        return "done"

    async def tell_async(task: Task) -> str:
        return tell(task)

    handler = tell if threaded else tell_async
    async with served(handler) as url:
        answer = await ask(url, Accept="application/json, application/x-ndjson")
        assert answer.head.media_type == "application/x-ndjson"
        assert [json.loads(line) for line in answer.body.splitlines()] == [
            {"progress": {"text": "half", "percent": 50}},
            {"progress": {"text": "most"}},
            {"success": True, "output": {"text": "done"}},
        ]
        plain = await ask(url)
        assert json.loads(plain.body) == {"success": True, "output": {"text": "done"}}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
    ],
)
async def test_web_pages_cannot_start_work(change: dict[str, str], status: int) -> None:
    async with served(lambda task: "ok") as url:
        answer = await Http(keep=False).ask(
            "POST", url, headers={**JSON, **change}, body=json.dumps(TASK).encode(), timeout_s=5
        )
    assert answer.head.status == status


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/execute", TASK, 200),
        ("POST", "/elsewhere", TASK, 404),
        ("PUT", "/run-task", TASK, 405),
        ("POST", "/run-task", b"{", 400),
        ("POST", "/run-task", [], 400),
        ("POST", "/run-task", {"input": {}}, 400),
        ("GET", "/healthz", b"", 200),
        ("POST", "/run-task", {**TASK, "platform": None, "more": 1}, 200),
        ("POST", "/run-task", b"[" + b"1," * (6 * 1024 * 1024) + b"1]", 413),
    ],
)
async def test_only_tasks_are_taken(method: str, path: str, body: Any, status: int) -> None:
    async with served(lambda task: "ok") as url:
        parts = urlsplit(url)
        answer = await ask(f"{parts.scheme}://{parts.netloc}{path}", body, method)
    assert answer.head.status == status


async def test_what_is_not_http_is_answered_and_a_look_is_not() -> None:
    async with served(lambda task: "ok") as url:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"hello\r\n\r\n")
        assert b"400" in await reader.read()
        writer.close()
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def test_a_client_that_asks_first_may_send() -> None:
    body = json.dumps(TASK).encode()
    async with served(lambda task: "ok") as url:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = (
            "POST /run-task HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
        )
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(body)
        assert b'"ok"' in await reader.read()
        writer.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.com"])
async def test_others_than_this_machine_must_be_meant(host: str) -> None:
    with pytest.raises(WrongUse, match="other machines"):
        async with Adapter(lambda task: "ok").listening(0, host):
            pass


async def test_told_twice_it_listens_for_others_too() -> None:
    made = Adapter(lambda task: "ok")
    async with made.listening(0, "0.0.0.0", i_know_this_is_not_an_authentication_boundary=True) as url:
        port = urlsplit(url).port
        assert (await ask(f"http://127.0.0.1:{port}/run-task")).head.status == 200


async def test_a_port_that_is_taken_is_said() -> None:
    async with served(lambda task: "ok") as url:
        with pytest.raises(WrongUse, match="Cannot listen on"):
            async with Adapter(lambda task: "ok").listening(urlsplit(url).port or 0):
                pass


async def test_progress_reaches_the_platform_while_the_work_goes_on(platform: Platform, paired: Pair) -> None:
    go_on = asyncio.Event()

    async def work(task: Task) -> Output:
        task.progress("reading", percent=10)
        await go_on.wait()
        return Output("done", artifacts=[Artifact("notes.md", "# Notes", title="Notes")])

    async with served(work) as url, runtime(await paired(url)):
        run = platform.ask("hello")
        await platform.until(lambda: run.progress)
        assert run.progress == [{"text": "reading", "percent": 10}]
        assert run.state == "claimed"
        go_on.set()
        await platform.ended(run)
    assert run.output is not None
    assert [part["title"] for part in run.output["parts"]] == ["Notes"]
    assert [one["content_text"] for one in run.artifacts] == ["# Notes"]


@pytest.mark.parametrize("count", [3, 100])
async def test_progress_is_told_in_order_before_the_answer(platform: Platform, paired: Pair, count: int) -> None:
    """Also by one that answers at once; of very many the first and the last are told."""

    def work(task: Task) -> str:
        for number in range(count):
            task.progress(str(number))
        return "done"

    async with served(work) as url, runtime(await paired(url)):
        run = await platform.ended(platform.ask("hello"))
    told = [int(note["text"]) for note in run.progress]
    assert told == sorted(set(told))
    assert (told[0], told[-1]) == (0, count - 1)
    assert len(told) == count or 20 <= len(told) < count
    assert run.output == {"text": "done"}


async def test_a_cancel_reaches_the_handler_also_by_the_answer_to_progress(platform: Platform, paired: Pair) -> None:
    ended = asyncio.Event()

    async def work(task: Task) -> str:
        try:
            while True:
                task.progress("still at it")
                await asyncio.sleep(0.05)
        finally:
            ended.set()

    platform.fault("/control", times=999, status=503)
    async with served(work) as url, runtime(await paired(url)) as program:
        run = platform.ask("hello")
        await platform.until(lambda: run.progress)
        platform.cancel(run)
        await asyncio.wait_for(ended.wait(), 10)
        await program.says("task.canceled")


async def test_work_that_tells_progress_to_a_lost_lease_ends(platform: Platform, paired: Pair) -> None:
    ended = asyncio.Event()

    async def work(task: Task) -> str:
        try:
            while True:
                task.progress("still at it")
                await asyncio.sleep(0.05)
        finally:
            ended.set()

    platform.fault("/control", times=999, status=503)
    async with served(work) as url, runtime(await paired(url)) as program:
        run = platform.ask("hello")
        await platform.until(lambda: run.progress)
        run.lease = "somebody else's"
        await asyncio.wait_for(ended.wait(), 10)
        await program.says("task.lost")
