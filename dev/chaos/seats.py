"""Seats of processes that are killed and restarted: servers, nodes, runtimes. A seat keeps its address and data."""

import asyncio
import os
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from dev.chaos.history import History, Pause
from dev.chaos.launched import Control
from parley.testing.processes import ServerProcess

AGAIN_S = 0.3


def free_port() -> int:
    """A free port, used again after every restart."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Seat(ABC):
    """The place of a process. One fault at a time: the fault holds `lock`."""

    def __init__(self, name: str, folder: Path, history: History) -> None:
        self.name = name
        self.folder = folder
        self.lock = asyncio.Lock()
        self._history = history
        folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    async def start(self) -> None:
        """Start the process and wait until it is up; retries, because the database may be away."""

    @abstractmethod
    async def stop(self) -> None: ...

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    async def ended(self) -> None:
        """Wait for the end of a process that was killed."""

    @property
    def family(self) -> list[int]:
        """The process and those that it has started to serve with it."""
        return [self.pid]

    async def kill(self) -> None:
        for pid in self.family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._history.pauses.append(Pause(pid, time.monotonic()))
        await self.ended()

    async def sleep(self, seconds: float) -> None:
        """Stop the process like a machine that hangs, then let it continue."""
        pauses = [Pause(pid, time.monotonic()) for pid in self.family]
        self._history.pauses += pauses
        for pause in pauses:
            os.kill(pause.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for pause in pauses:
                pause.until = time.monotonic()
                with suppress(ProcessLookupError):
                    os.kill(pause.pid, signal.SIGCONT)


class Serving(Seat):
    """A process that prints its address: a server or a node."""

    process: ServerProcess

    def __init__(self, name: str, folder: Path, history: History, module: list[str], env: dict[str, str]) -> None:
        super().__init__(name, folder, history)
        self._module = module
        self._env = env
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def module(self) -> list[str]:
        return self._module

    def env(self) -> dict[str, str]:
        return self._env

    async def start(self) -> None:
        while True:
            try:
                self.process = await ServerProcess.launch(
                    self.module(), env=self.env(), log=self.folder.parent / f"{self.name}.log"
                )
            except (RuntimeError, TimeoutError) as error:
                with (self.folder.parent / f"{self.name}.log").open("a") as log:
                    log.write(f"{error!r}\n")
                await asyncio.sleep(AGAIN_S)
                continue
            return

    async def stop(self) -> None:
        await self.process.stop()

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ended(self) -> None:
        await self.process.stop()


class Server(Serving):
    """`parley serve` under `dev.chaos.launched`."""

    def __init__(self, name: str, folder: Path, history: History, agents: list[Path], env: dict[str, str]) -> None:
        super().__init__(name, folder, history, [], env)
        self.control = Control(folder / "control")
        self._agents = agents

    @property
    def workers(self) -> list[int]:
        """Its workers, if it has any: they serve, and it only starts them."""
        with suppress(OSError):
            return [int(word) for word in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        return []

    @property
    def family(self) -> list[int]:
        return [self.pid, *self.workers]

    def module(self) -> list[str]:
        given = [*map(str, self._agents), "--data-dir", str(self.folder / "data"), "--port", str(self.port)]
        return ["dev.chaos.launched", str(self.folder / "control"), "serve", *given]


class Member(Serving):
    """A node, `dev.chaos.member`."""

    def env(self) -> dict[str, str]:
        return {**self._env, "PARLEY_NODE_PORT": str(self.port), "PARLEY_NODE_DATA_DIR": str(self.folder)}


class Runtime(Seat):
    """`a2a-runtime`, paired with the platform."""

    process: asyncio.subprocess.Process

    def __init__(self, name: str, folder: Path, history: History, platform: str, endpoint: str) -> None:
        super().__init__(name, folder, history)
        self._platform = platform
        self._endpoint = endpoint

    async def pair(self, code: str) -> None:
        given = ("--code", code, "--api-base", self._platform, "--endpoint", self._endpoint, "--json")
        process = await self._launched("pair", *given)
        if await process.wait():
            raise RuntimeError(f"{self.name} could not be paired: see {self.name}.log")

    async def start(self) -> None:
        self.process = await self._launched("start", "--json", "--concurrency", "4")

    async def stop(self) -> None:
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.terminate()
        await self.ended()

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ended(self) -> None:
        await self.process.wait()

    async def _launched(self, *given: str) -> asyncio.subprocess.Process:
        with (self.folder.parent / f"{self.name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "parley_edge", *given, stdout=log, stderr=log,
                env={**os.environ, "A2A_HOME": str(self.folder)},
            )  # fmt: skip
