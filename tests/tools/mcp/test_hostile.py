"""Servers that do what no server should: each costs one failed execution, and nothing else."""

import asyncio
import gc
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from parley.settings import Settings
from parley.telemetry import attach
from parley.tools.mcp_calls import ToolCall
from tests.tools.mcp.conftest import agent_with, new_host, server
from tests.tools.mcp.test_calls import ANN, World

MEGABYTE = 1024 * 1024


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A server that misbehaves, one that does not, and one that never introduces itself."""
    async with AsyncExitStack() as stack:
        made = World(Settings(store="memory", data_dir=tmp_path), tmp_path, stack)
        bad = server("bad", env={"CALLS": str(made.calls)})
        made.agent = agent_with(bad, server("good"), server("never", "never", start_timeout_s=0.5))
        await made.open()
        await made.execute("good/echo")
        yield made


@pytest.mark.parametrize(
    ("tool", "given", "code", "said"),
    [
        ("die", {}, "server_gone", "ended"),
        ("wrong", {}, "bad_answer", "a message that is not valid MCP"),
        ("shape", {}, "bad_answer", "answer is not valid MCP"),
        ("flood", {}, "output_too_large", "unsolicited messages"),
        ("large", {"bytes": 50_000_000}, "output_too_large", "longer than"),
        ("large", {"bytes": 1_100_000}, "output_too_large", "at most 1,048,576"),
        ("hang", {}, "tool_timeout", "within"),
    ],
)
async def test_it_costs_one_execution_and_the_next_call_works(
    world: World, tool: str, given: dict[str, Any], code: str, said: str
) -> None:
    timeout = 300 if tool == "hang" else 20_000
    bad, *good = await asyncio.gather(
        world.execute(f"bad/{tool}", given, timeout_ms=timeout), *(world.execute("good/echo", {"n": n}) for n in (1, 2))
    )
    assert (bad.status, bad.code) == ("failed", code)
    assert said in bad.message
    assert [one.output for one in good] == [{"n": 1}, {"n": 2}]
    assert (await world.execute("bad/echo", {"n": 3})).output == {"n": 3}
    executions, _ = await world.tools.list(ANN, "c1")
    assert [one.status for one in executions].count("failed") == 1


@pytest.mark.slow
async def test_one_that_is_stuck_is_ended_and_the_next_call_works(world: World) -> None:
    stuck = await world.execute("bad/stuck", timeout_ms=300)
    assert (stuck.code, stuck.execution_time_ms < 2_000) == ("tool_timeout", True)
    assert (await world.execute("good/echo", {"n": 1})).output == {"n": 1}
    assert (await world.execute("bad/echo", {"n": 2})).output == {"n": 2}


async def test_one_that_never_introduces_itself_is_unavailable(world: World) -> None:
    made = await world.execute("never/echo", timeout_ms=5_000)
    assert (made.status, made.code) == ("failed", "server_unavailable")
    assert "was not initialized in time" in made.message
    assert (await world.execute("good/echo", {"n": 1})).output == {"n": 1}


async def test_a_server_that_is_ill_is_left_alone_for_a_while(world: World) -> None:
    for _ in range(3):
        await world.execute("bad/die")
    begun = len(world.called)
    assert "calls to it are paused" in (await world.execute("bad/echo")).message
    assert len(world.called) == begun
    assert (await world.execute("good/echo", {"n": 1})).output == {"n": 1}


@pytest.mark.slow
async def test_memory_stays_bounded_whatever_a_server_sends(world: World) -> None:
    """Three messages of fifty megabytes leave far less than one of them in memory."""
    host = new_host()
    agent = agent_with(server())
    offer = await host.find(agent, "large", 20)
    await host.call(agent, offer, {"bytes": 50_000_000})
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        assert (await host.call(agent, offer, {"bytes": 50_000_000})).data["code"] == "output_too_large"
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 25 * MEGABYTE
    await host.close()


async def test_many_messages_that_nobody_asked_for_do_no_harm_within_a_bound(world: World) -> None:
    assert (await world.execute("bad/burst")).output == "ok"
    assert (await world.execute("bad/burst")).output == "ok"


async def test_nothing_that_a_server_says_about_its_end_shows_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "hush-hush-1")
    program = tmp_path / "loud.py"
    program.write_text("import os, sys\nsys.stderr.write('my secret is ' + os.environ['SECRET'])\nsys.exit(3)\n")
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(f"{name} {fields}"))
    host = new_host()
    loud = server("loud", env={"SECRET": "${OURS}"})
    agent = agent_with(type(loud)("loud", (loud.run[0], str(program)), cwd=str(tmp_path), env=loud.env))
    result = await host.call(agent, await host.find(agent, "loud/x", 20), {})
    await host.close()
    detach()
    assert result.data["code"] == "server_unavailable"
    assert "my secret is [REDACTED]" in "".join(told)
    assert "hush" not in "".join(told) + result.message


class Web:
    """An HTTP server that answers every request in the same bad way."""

    def __init__(self, how: str) -> None:
        self._how = how
        self.asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [line for line in head.decode().lower().split("\r\n") if line.startswith("content-length:")]
                await reader.readexactly(int(length[0].split(":")[1]) if length else 0)
                self.asked += 1
                await (reader.read() if self._how == "silent" else self._answer(writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        kind = b"text/event-stream" if self._how in ("stream", "events") else b"application/json"
        more = b"content-encoding: gzip\r\n" if self._how == "bomb" else b""
        if self._how == "away":
            writer.write(b"HTTP/1.1 307 Elsewhere\r\nlocation: http://example.com/mcp\r\ncontent-length: 0\r\n\r\n")
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\n" + more + b"connection: close\r\n\r\n")
        piece = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n'
        for _ in range(1_000_000 if self._how != "nonsense" else 1):
            writer.write({"events": piece * 10, "nonsense": b"{nonsense"}.get(self._how, b"x" * 65_536))
            await writer.drain()
        writer.close()


@pytest.mark.parametrize(
    "how", ["endless", "stream", "events", "nonsense", "bomb", pytest.param("silent", marks=pytest.mark.slow), "away"]
)
async def test_an_address_that_misbehaves_costs_one_execution(tmp_path: Path, how: str) -> None:
    web = Web(how)
    listening = await asyncio.start_server(web.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    async with AsyncExitStack() as stack:
        world = World(Settings(store="memory", data_dir=tmp_path), tmp_path, stack)
        far = type(server())("far", url=url, start_timeout_s=1.0)
        world.agent = agent_with(far, server("good"))
        await world.open()
        bad, good = await asyncio.gather(world.execute("far/x", timeout_ms=15_000), world.execute("good/echo"))
        assert (bad.status, bad.code) == ("failed", "server_unavailable")
        assert good.status == "completed"
        assert web.asked
    listening.close()


async def test_calls_that_nobody_waits_for_any_more_are_carried_out_once(world: World) -> None:
    call = ToolCall(ANN, "c1", "a", "bad/echo", {"n": 1}, key="k")
    waiting = asyncio.create_task(world.tools.execute(call))
    await asyncio.sleep(0)
    waiting.cancel()
    assert (await world.tools.execute(call)).output == {"n": 1}
    assert world.called == ['echo {"n": 1}']
