"""A real server in a process of its own, to be killed."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

from parley.testing.waiting import until

_LISTENS = re.compile(r"listens on (\S+)")
START_S = 20.0


class ServerProcess:
    """`parley serve` with some agents, on a free port."""

    def __init__(
        self, process: asyncio.subprocess.Process, url: str, before: Sequence[str] = (), log: Path | None = None
    ) -> None:
        self._process = process
        self.before = before
        """What it said before it was up."""
        self._said: list[str] = []
        self._output = asyncio.get_running_loop().create_task(_drain(process, self._said, log))
        self.url = url

    @property
    def pid(self) -> int:
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
    ) -> "ServerProcess":
        more = [*map(str, agents), "--data-dir", str(data_dir), "--port", str(port)]
        return await ServerProcess.launch(["parley", command, *more], env=env, cwd=cwd)

    @staticmethod
    async def launch(
        module: Sequence[str], *, env: dict[str, str] | None = None, cwd: Path | None = None, log: Path | None = None
    ) -> "ServerProcess":  # fmt: skip
        """A module with its arguments that says where it listens, as `parley serve` does. What it says after that goes
        to `log`, at its end, or to where our own errors go."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *module, cwd=cwd,
            stderr=asyncio.subprocess.PIPE, env={**os.environ, "PARLEY_GRPC_PORT": "-1", **(env or {})},
        )  # fmt: skip
        try:
            url, before = await asyncio.wait_for(_announced(process), START_S)
        except BaseException:
            await _put_down(process)
            raise
        return ServerProcess(process, url, before, log)

    @property
    def said_all(self) -> list[str]:
        """Every line so far."""
        return [*self.before, *self._said]

    async def said(self, words: str) -> None:
        """Wait until it has logged a line with these words, since it is up."""
        await until(lambda: any(words in line for line in self._said))

    async def kill(self) -> None:
        """As a crash would: nothing is told, nothing is tidied."""
        self._process.send_signal(signal.SIGKILL)
        await self._ended()

    def pause(self) -> None:
        """As a machine that hangs would: it does nothing, and does not know it."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """As an operator would."""
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
    """Several servers on one PostgreSQL database, each a process of its own; whoever is alive is stopped at the end."""
    shared = {
        "PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": postgres_url, "PARLEY_BLOBS": str(directory / "blobs"),
        **env,
    }  # fmt: skip
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
        if found := _LISTENS.search(seen[-1]):
            return found[1], seen
    raise RuntimeError("The server did not start:\n" + "".join(seen))


async def _put_down(process: asyncio.subprocess.Process) -> None:
    """One that did not come up, and may still be trying."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _drain(process: asyncio.subprocess.Process, said: list[str], log: Path | None) -> None:
    """Pass on what the server says, so that its pipe never fills up."""
    assert process.stderr is not None
    with log.open("a", buffering=1) if log else nullcontext(sys.stderr) as to:
        async for line in process.stderr:
            said.append(line.decode(errors="replace"))
            to.write(said[-1])
