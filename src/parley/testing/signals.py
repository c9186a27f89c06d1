"""Contract suite of signals between replicas. Subclass it and give it a `connect` fixture, which makes the signals of
one more replica:

class TestMySignals(SignalsContract):
    @pytest.fixture
    def connect(self):
        return lambda: MySignals(...)
"""

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from parley.execution.cluster import Interest, Signals
from parley.ids import RunId, new_run_id
from parley.testing.waiting import until

__all__ = ["NatsServer", "SignalListener", "SignalsContract"]

Connect = Callable[[], Signals]
WAIT_S = 20.0
ODD_NAMES = ("a.b", "~nodes", "*", "ä > b")


class SignalListener:
    """A replica that listens: what it wants to hear of, and what it has heard."""

    def __init__(self, signals: Signals, *names: str, everything: bool = False) -> None:
        self.signals = signals
        self.runs: list[RunId] = []
        self.names = list(names)
        self.everything = everything
        self.heard: dict[RunId, int] = {}
        self.heard_names: list[str] = []
        self.calls = 0
        """Runs and names that it was told of."""
        self.interest = Interest(lambda: self.runs, lambda: self.names, lambda: self.everything)

    async def listen(self) -> "SignalListener":
        await self.signals.listen(self._hear, self.interest)
        return self

    def hear_everything(self) -> None:
        self.everything = True

    def follow(self, run: RunId) -> None:
        self.runs.append(run)
        self.interest.add("run", run)

    async def follows(self, other: "SignalListener") -> None:
        """Wait until signals of the other one arrive here. The last one may be lost, so it is repeated."""
        run = new_run_id()
        self.follow(run)

        async def heard() -> bool:
            other.signals.tell(run, 1)
            await asyncio.sleep(0.01)
            return run in self.heard

        await until(heard, WAIT_S)

    def _hear(self, runs: list[tuple[RunId, int]], names: list[str]) -> None:
        self.calls += len(runs) + len(names)
        self.heard.update(runs)
        self.heard_names += names


class SignalsContract:
    """Tests that all signals pass which reach other replicas."""

    @pytest.fixture
    async def pair(self, connect: Connect):
        one, two = [await SignalListener(connect(), *ODD_NAMES).listen() for _ in range(2)]
        await one.follows(two)
        await two.follows(one)
        yield one, two
        for each in (one, two):
            await each.signals.close()

    async def test_growth_reaches_a_replica_that_follows_the_run(
        self, pair: tuple[SignalListener, SignalListener]
    ) -> None:
        one, two = pair
        runs = [new_run_id() for _ in range(300)]
        for run in runs:
            two.follow(run)
        await self._reach(one, two, runs, 7)

    async def test_names_reach_a_replica_that_knows_them(self, pair: tuple[SignalListener, SignalListener]) -> None:
        one, two = pair

        async def heard() -> bool:
            for name in ODD_NAMES:
                one.signals.wake(name)
            await asyncio.sleep(0.01)
            return set(two.heard_names) == set(ODD_NAMES)

        await until(heard, WAIT_S)

    async def test_a_replica_does_not_hear_itself(self, pair: tuple[SignalListener, SignalListener]) -> None:
        one, two = pair
        run = new_run_id()
        one.follow(run)
        two.follow(run)
        await self._reach(one, two, [run], 3)
        assert run not in one.heard

    async def test_everything_reaches_a_replica_that_asks_for_it(
        self, pair: tuple[SignalListener, SignalListener]
    ) -> None:
        one, two = pair
        two.hear_everything()
        await self._reach(one, two, [new_run_id()], 2)

    async def test_closing_sends_what_is_pending(self, connect: Connect) -> None:
        one, two = [await SignalListener(connect()).listen() for _ in range(2)]
        try:
            await two.follows(one)
            run = new_run_id()
            two.follow(run)
            await self._reach(one, two, [run], 1)
            one.signals.tell(run, 9)
        finally:
            await one.signals.close()
        try:
            await until(lambda: two.heard[run] == 9, WAIT_S)
        finally:
            await two.signals.close()

    async def _reach(self, one: SignalListener, two: SignalListener, runs: list[RunId], version: int) -> None:
        """Tell of these runs until the other one has heard of all: a signal may be lost."""

        async def heard() -> bool:
            for run in runs:
                one.signals.tell(run, version)
            await asyncio.sleep(0.02)
            return all(two.heard.get(run) == version for run in runs)

        await until(heard, WAIT_S)


class NatsServer:
    """A NATS server for tests, from a wheel, on a port that it keeps when it starts again."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        program = Path(sys.executable).with_name("nats-server")
        self._process = await asyncio.create_subprocess_exec(
            program, "--addr", "127.0.0.1", "--port", str(self.port), stderr=asyncio.subprocess.DEVNULL
        )
        await until(self._answers, WAIT_S)

    async def stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            self._process = None

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True
