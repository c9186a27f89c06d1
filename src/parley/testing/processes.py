"""A real server in its own process, for tests that kill it."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

from parley.testing.waiting import until

__all__ = ["ServerProcess", "replicas"]

LISTENS = re.compile(r"listens on (\S+)")
START_S = 60.0


class ServerProcess:
    """A process of `parley serve` with some agents, on a free port."""

    def __init__(
        self, process: asyncio.subprocess.Process, url: str, before: Sequence[str] = (), log: Path | None = None
    ) -> None:
        self._process = process
        self.before = before
        """Output before it was up."""
        self._said: list[str] = []
        self._output = asyncio.get_running_loop().create_task(_drain(process, self._said, log))
        self.url = url

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @staticmethod
    async def start(
        agents: Sequence[Path | str],
        data_dir: Path,
        *,
        port: int = 0,
        env: dict[str, str] | None = None,
        command: str = "serve",
        cwd: Path | None = None,
        start_s: float = START_S,
    ) -> "ServerProcess":
        """Start a server, and wait until it listens."""
        more = [*map(str, agents), "--data-dir", str(data_dir), "--port", str(port)]
        return await ServerProcess.launch(["parley", command, *more], env=env, cwd=cwd, start_s=start_s)

    @staticmethod
    async def launch(
        module: Sequence[str],
        *,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        log: Path | None = None,
        start_s: float = START_S,
    ) -> "ServerProcess":
        """Start a module with its arguments that prints where it listens, as `parley serve` does. Later output is
        appended to `log`, or goes to our own standard error. `start_s` is the time it has until then."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *module,
            cwd=cwd,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PARLEY_GRPC_PORT": "-1", **(env or {})},
        )
        try:
            url, before = await asyncio.wait_for(_announced(process), start_s)
        except BaseException:
            await _put_down(process)
            raise
        return ServerProcess(process, url, before, log)

    @property
    def said_all(self) -> list[str]:
        """Return every line so far."""
        return [*self.before, *self._said]

    async def said(self, words: str) -> None:
        """Wait until it has logged a line with these words since it was up."""
        await until(lambda: any(words in line for line in self._said))

    async def kill(self) -> None:
        """Kill it, like a crash: without notice and without cleanup."""
        self._process.send_signal(signal.SIGKILL)
        await self._ended()

    def pause(self) -> None:
        """Stop it with SIGSTOP, like a machine that freezes: it does nothing, and does not know it."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a process after `pause`."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """Stop it with SIGTERM, as an operator would."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        return await self._ended()

    async def _ended(self) -> int:
        code = await asyncio.wait_for(self._process.wait(), START_S)
        await self._output
        return code


@asynccontextmanager
async def replicas(
    count: int, agents: Sequence[Path | str], directory: Path, postgres_url: str, **env: str
) -> AsyncGenerator[list[ServerProcess], None]:
    """Start several servers on one PostgreSQL database, each in its own process; those still alive are stopped at the
    end."""
    shared = {
        "PARLEY_STORE": "postgres",
        "PARLEY_POSTGRES_URL": postgres_url,
        "PARLEY_BLOBS": str(directory / "blobs"),
        **env,
    }
    servers = [
        await ServerProcess.start(agents, directory / f"replica-{number}", env=shared) for number in range(count)
    ]
    try:
        yield servers
    finally:
        for server in servers:
            server.resume()
            await server.stop()


async def _announced(process: asyncio.subprocess.Process) -> tuple[str, list[str]]:
    assert process.stderr is not None
    seen: list[str] = []
    async for line in process.stderr:
        seen.append(line.decode(errors="replace"))
        if found := LISTENS.search(seen[-1]):
            return found[1], seen
    raise RuntimeError("The server did not start:\n" + "".join(seen))


async def _put_down(process: asyncio.subprocess.Process) -> None:
    """Kill a server that did not come up, and may still be trying."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _drain(process: asyncio.subprocess.Process, said: list[str], log: Path | None) -> None:
    """Forward the server's output, so that its pipe never fills up."""
    assert process.stderr is not None
    with log.open("a", buffering=1) if log else nullcontext(sys.stderr) as to:
        async for line in process.stderr:
            said.append(line.decode(errors="replace"))
            to.write(said[-1])
