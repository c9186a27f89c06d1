"""Servers that are forked from a process which has imported everything once: frameworks take seconds to import, and
the tests start a server after each kill."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from parley.testing.processes import LISTENS, START_S


class ForkedServer:
    """One `parley serve` after the other, each in a process of its own."""

    def __init__(self, parent: Process, command: Sequence[str], env: dict[str, str]) -> None:
        self._parent = parent
        self._order = json.dumps({"command": ["parley", "serve", *command], "env": env}).encode() + b"\n"
        self._urls: asyncio.Queue[str] = asyncio.Queue()
        self._output = asyncio.get_running_loop().create_task(self._read())
        self._pid = 0
        self.url = ""

    async def start(self) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.write(self._order)
        self._pid = await self._told()
        self.url = await asyncio.wait_for(self._urls.get(), START_S)

    async def kill(self) -> int:
        return await self._signaled(signal.SIGKILL)

    async def stop(self) -> int:
        return await self._signaled(signal.SIGTERM)

    async def close(self) -> None:
        if self._pid:
            await self.kill()
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        await self._parent.wait()
        await self._output

    async def _signaled(self, number: signal.Signals) -> int:
        os.kill(self._pid, number)
        code = await asyncio.wait_for(self._told(), START_S)
        self._pid = 0
        return code

    async def _told(self) -> int:
        """Return the next number of the parent: the id of a server that it forked, or the code with which it ended."""
        assert self._parent.stdout is not None
        return int(await self._parent.stdout.readline())

    async def _read(self) -> None:
        assert self._parent.stderr is not None
        async for line in self._parent.stderr:
            sys.stderr.write(text := line.decode(errors="replace"))
            if found := LISTENS.search(text):
                self._urls.put_nowait(found[1])


@asynccontextmanager
async def forking(
    agents: Sequence[Path], data: Path, env: dict[str, str], modules: Sequence[str]
) -> AsyncIterator[ForkedServer]:
    """Start the parent, which imports some modules."""
    started = ["-m", "tests.forked_server", "parley.app.application", *modules]
    root = Path(__file__).parents[1]
    parent = await asyncio.create_subprocess_exec(
        sys.executable, *started, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=root
    )
    command = [*map(str, agents), "--data-dir", str(data), "--port", "0"]
    server = ForkedServer(parent, command, {"PARLEY_GRPC_PORT": "-1", **env})
    try:
        yield server
    finally:
        await server.close()


def main(modules: Sequence[str]) -> None:
    """Import some modules, then fork a server for each line of the standard input and wait until it has ended."""
    from parley.cli import main as parley

    for module in modules:
        import_module(module)
    for line in sys.stdin:
        order = json.loads(line)
        sys.stdout.flush()
        if (pid := os.fork()) == 0:
            sys.argv = order["command"]
            os.environ |= order["env"]
            sys.exit(parley())
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
