"""Definitions that follow their files. Each file stands alone: one that is wrong is reported and keeps its last good
agents, and all others are in force at once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from msgspec import Struct
from watchfiles import Change, awatch  # pyright: ignore[reportUnknownVariableType]

from parley.definitions.kind import Kinds
from parley.definitions.kinds import KINDS
from parley.definitions.reading import YAML, Defined, Reading, Sources
from parley.engine.exchange import Exchange
from parley.engine.ports import Driver
from parley.errors import ConfigurationError
from parley.telemetry import tell

STEP_MS = 50
LOOK_MS = 1_000
"""How often the files are looked at though nobody said that they changed: not every disk tells."""
SETTLE_S = 0.3
"""An editor may put a file away before it writes it anew; an agent goes only when its file stays away."""
_SUFFIXES = (*YAML, ".py", ".toml")


class Problem(Struct, frozen=True):
    """A definition that cannot be used, and the agents that its last good version still serves."""

    file: str
    message: str
    serving: tuple[str, ...] = ()


class Definitions:
    """The agents that files define. A file that cannot be read keeps the agents of its last good version."""

    def __init__(self, where: Sources, always: Sequence[Driver] = (), kinds: Kinds = KINDS) -> None:
        """`always` are agents that come from elsewhere; a definition with the slug of one takes its place."""
        self._where = where
        self._always = always
        self._kinds = kinds
        self._last = Reading(where, kinds=kinds)
        self._served = {one.driver.agent.slug: one for one in self._last.defined}
        if not self._served and not always:
            self._last.check()
        _tell_refused(self._last.faults)

    @property
    def drivers(self) -> list[Driver]:
        defined = [one.driver for one in self._served.values()]
        return [*(driver for driver in self._always if driver.agent.slug not in self._served), *defined]

    def problems(self) -> list[Problem]:
        """Definitions that cannot be used at the moment."""
        return [
            Problem(file, fault.message, tuple(slug for slug, one in self._served.items() if one.file == file))
            for fault in self._last.faults
            for file in [str(fault.details.get("file", ""))]
        ]

    async def refresh(self, exchange: Exchange) -> None:
        """Read everything again and serve what is right; a file that is wrong changes nothing."""
        reading = await self._read_settled()
        before, self._last = self._last, reading
        told = [fault.message for fault in before.faults]
        _tell_refused([fault for fault in reading.faults if fault.message not in told])
        self._served = self._merged(reading)
        changed = exchange.replace(self.drivers)
        before.imports.forget(reading.imports)
        if changed.added or changed.replaced or changed.removed:
            tell("agents.reloaded", added=changed.added, replaced=changed.replaced, removed=changed.removed)

    def _merged(self, reading: Reading) -> dict[str, Defined]:
        """What was read, and beside it the last good agents of files that are wrong now."""
        merged = {one.driver.agent.slug: one for one in reading.defined}
        for slug, one in self._served.items():
            if reading.is_faulty(one.file):
                merged.setdefault(slug, one)
        return merged

    async def watch(self, exchange: Exchange, stop: asyncio.Event) -> None:
        """Refresh whenever something changes, until told to stop."""
        while not stop.is_set():
            try:
                await self._watch(exchange, stop)
                if self._last.stale:
                    await self.refresh(exchange)
            except Exception as error:  # noqa: BLE001 - watching that ends silently would be worse
                tell("agents.unwatched", error=error)
                await _pause(stop)

    async def _watch(self, exchange: Exchange, stop: asyncio.Event) -> None:
        """Until told to stop, or until other folders are to be watched."""
        places = self._places()
        changes = awatch(
            *places, stop_event=stop, recursive=False, watch_filter=_concerns,
            step=STEP_MS, rust_timeout=LOOK_MS, yield_on_timeout=True,
        )  # fmt: skip
        async with aclosing(changes) as heard:
            async for change in heard:
                if change or self._last.stale:
                    await self.refresh(exchange)
                if self._places() != places:
                    return

    def _places(self) -> list[Path]:
        """Folders, never files: a file that is replaced is another file."""
        paths = [path.absolute() for path in self._last.marks]
        folders = {path for path in paths if path.is_dir()} | {path.parent for path in paths}
        return sorted(path for path in folders if path.is_dir())

    async def _read_settled(self) -> Reading:
        reading = await self._read()
        while self._loses(reading):
            await asyncio.sleep(SETTLE_S)
            if not reading.stale:
                break
            reading.imports.forget(self._last.imports)
            reading = await self._read()
        return reading

    async def _read(self) -> Reading:
        return await asyncio.to_thread(Reading, self._where, self._last, self._kinds)

    def _loses(self, reading: Reading) -> bool:
        return bool(self._served.keys() - self._merged(reading).keys())


@asynccontextmanager
async def following(definitions: Definitions, exchange: Exchange) -> AsyncGenerator[None, None]:
    """Keep an exchange up to date with its definitions until the block ends."""
    stop = asyncio.Event()
    task = asyncio.get_running_loop().create_task(definitions.watch(exchange, stop))
    try:
        yield
    finally:
        stop.set()
        await task


def _concerns(change: Change, path: str) -> bool:
    return path.endswith(_SUFFIXES) or (change is not Change.modified and Path(path).suffix == "")


def _tell_refused(faults: Sequence[ConfigurationError]) -> None:
    for fault in faults:
        tell("agents.refused", message=fault.message, **fault.details)


async def _pause(stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), LOOK_MS / 1000)
    except TimeoutError:
        return
