"""The same commands against a server that is not ours: the official SDK's."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli.test_cli import parley

pytest.importorskip("sse_starlette", reason="the SDK's server needs its extra http-server")
pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent / "sdk_server.py"


@asynccontextmanager
async def sdk_server(*arguments: str) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(sys.executable, str(SCRIPT), str(port), *arguments)
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx2.AsyncClient() as http:
            for _ in range(200):
                try:
                    await http.get(url + "/.well-known/agent-card.json")
                    break
                except httpx2.TransportError:
                    await asyncio.sleep(0.1)
        yield url
    finally:
        process.terminate()
        await process.wait()


async def test_what_a2a_has_works_with_the_sdks_server() -> None:
    async with sdk_server() as url:
        card = await parley("card", url)
        assert card.code == 0, card.err
        hello = await parley("send", url, "hello")
        assert (hello.code, hello.out) == (0, "you said hello\n"), hello.err
        plain = await parley("send", url, "hello", "--no-stream", "--json")
        done = json.loads(plain.out)["task"]
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"

        asked = await parley("send", url, "ask")
        assert asked.code == 4
        assert "Which?" in asked.err
        assert f"--agent {url}" in asked.err
        listed = await parley("runs", "--url", url, "--json")
        assert len(json.loads(listed.out)["runs"]) == 3, listed.err
        waiting = await parley("runs", "--agent", url, "--waiting", "--json")
        (row,) = json.loads(waiting.out)["runs"]
        assert (row["state"], row["said"]) == ("input_required", "Which?")
        answered = await parley("answer", row["id"], "this", "--agent", url)
        assert (answered.code, answered.out) == (0, "you said this\n"), answered.err

        tailed = await parley("tail", row["id"], "--url", url)
        assert (tailed.code, "you said this" in tailed.out) == (0, True), tailed.err
        shown = await parley("show", row["id"], "--url", url)
        assert shown.code == 0
        assert "you said this" in shown.out

        begun = await parley("send", url, "sleep", "--no-wait", "--json")
        task = json.loads(begun.out)["task"]["id"]
        assert begun.code == 0
        tailing = asyncio.create_task(parley("tail", task, "--url", url, "--json"))
        canceled = await parley("cancel", task, "--reason", "enough", "--url", url)
        assert (canceled.code, canceled.out) == (0, "canceled\n"), canceled.err
        followed = await tailing
        assert followed.code == 3
        assert "TASK_STATE_CANCELED" in followed.out


async def test_what_it_lacks_is_said() -> None:
    async with sdk_server() as url:
        task = json.loads((await parley("send", url, "hello", "--no-stream", "--json")).out)["task"]["id"]
        forked = await parley("fork", task, "again", "--url", url)
        assert (forked.code, "Only a Parley server can fork" in forked.err) == (1, True)
        everything = await parley("runs", "--all", "--url", url)
        assert (everything.code, "only with Parley" in everything.err) == (1, True)
        for command in (("tail", "nothing"), ("cancel", "nothing"), ("show", "nothing"), ("answer", "nothing", "x")):
            lost = await parley(*command, "--url", url)
            assert lost.code == 1, command
            assert lost.err.startswith("parley: ")
            assert "Traceback" not in lost.err


async def test_an_agent_that_does_not_stream_is_waited_for() -> None:
    async with sdk_server("plain") as url:
        hello = await parley("send", url, "hello")
        assert (hello.code, hello.out) == (0, "you said hello\n"), hello.err
