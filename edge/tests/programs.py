"""The program itself, as a process of its own, and adapters for it to ask."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parley_edge
from edge.tests.wire import Asked, Said, Wire

Json = dict[str, Any]
_SOURCE = str(Path(parley_edge.__file__).parent.parent)
_OURS = ("A2A_HOME", "A2A_API_BASE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


def environment(home: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name not in _OURS}
    return {**clean, "PYTHONPATH": _SOURCE, "A2A_HOME": str(home), **more}


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        return json.loads(self.out)


async def run(home: Path, *arguments: str, stdin: str = "", **env: str) -> Ended:
    """`a2a-runtime ARGUMENTS` until it ends."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley_edge", *arguments, stdin=pipe, stdout=pipe, stderr=pipe,
        env=environment(home, **env),
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 20)
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def until(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    """Look again and again, for what gives no signal."""
    async with asyncio.timeout(timeout_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


class Runtime:
    """`a2a-runtime start --json`, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._reading = asyncio.create_task(self._read())
        self._said = asyncio.Event()
        self.events: list[Json] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.events.append(json.loads(line))
            self._said.set()

    def seen(self, name: str) -> list[Json]:
        return [event for event in self.events if event["event"] == name]

    async def says(self, name: str, count: int = 1) -> Json:
        async with asyncio.timeout(15):
            while len(self.seen(name)) < count:
                self._said.clear()
                await self._said.wait()
        return self.seen(name)[count - 1]

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def hang_up(self) -> None:
        """Read no more of what it says."""
        self._reading.cancel()
        transport = self._process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        transport.close()

    async def ended(self) -> Ended:
        assert self._process.stderr is not None
        err = await asyncio.wait_for(self._process.stderr.read(), 20)
        code = await asyncio.wait_for(self._process.wait(), 20)
        await asyncio.wait((self._reading,))
        return Ended(code, "", err.decode())

    async def stop(self) -> Ended:
        if self._process.returncode is None:
            self.signal()
        return await self.ended()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self.signal(signal.SIGKILL)
        await self.ended()


@asynccontextmanager
async def runtime(home: Path, *arguments: str, **env: str) -> AsyncIterator[Runtime]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley_edge", "start", "--json", *arguments, stdout=pipe, stderr=pipe,
        env=environment(home, **env),
    )  # fmt: skip
    started = Runtime(process)
    try:
        yield started
    finally:
        await started.kill()


class LocalAgent:
    """An adapter that answers what a test wants, also what no adapter should."""

    def __init__(self, answering: Callable[[Asked], Awaitable[Said]]) -> None:
        self._answering = answering
        self.wire = Wire(self._answer)
        self.asked: list[Asked] = []
        self.arrived = asyncio.Event()

    @property
    def endpoint(self) -> str:
        return f"{self.wire.origin}/run-task"

    async def _answer(self, asked: Asked) -> Said:
        self.asked.append(asked)
        self.arrived.set()
        return await self._answering(asked)


@asynccontextmanager
async def local_agent(
    answer: Any = None,
    *,
    status: int = 200,
    media_type: str = "application/json",
    answering: Callable[[Asked], Awaitable[Said]] | None = None,
) -> AsyncIterator[LocalAgent]:
    """With one answer for everybody (an object, or bytes as they are), or a function that answers."""
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    async def always(asked: Asked) -> Said:
        return Said(status, body, media_type)

    agent = LocalAgent(answering or always)
    await agent.wire.start()
    try:
        yield agent
    finally:
        await agent.wire.stop()
