"""Reload definitions when their files change. Files are independent: a file with an error is reported and keeps the
agents of its last good version, and changes in all other files take effect at once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from msgspec import Struct
from watchfiles import Change, awatch  # pyright: ignore[reportUnknownVariableType]

from parley.definitions.agents import KINDS
from parley.definitions.loader import YAML, Defined, LoadedDefinitions, Sources
from parley.drivers.kind import Kinds
from parley.errors import ConfigurationError
from parley.execution.driver import Driver
from parley.runs.service import Exchange
from parley.telemetry import tell

STEP_MS = 50
LOOK_MS = 1_000
"""Interval for checking the files without a change notification: not every file system sends notifications."""
SETTLE_S = 0.3
"""Wait before an agent is removed because its file is gone: an editor may delete a file and then write it again."""
_SUFFIXES = (*YAML, ".py", ".toml")


class DefinitionProblem(Struct, frozen=True):
    """A definition with an error, and the agents of its last good version, which are still served."""

    file: str
    message: str
    serving: tuple[str, ...] = ()


# Why: docs/decisions/definitions.md#let-each-file-stand-alone
class Definitions:
    """The agents that files define. A file that cannot be read keeps the agents of its last good version."""

    def __init__(self, where: Sources, always: Sequence[Driver] = (), kinds: Kinds = KINDS) -> None:
        """`always` are agents from other sources. A definition with the same slug replaces one of them."""
        self._where = where
        self._always = always
        self._kinds = kinds
        self._last = LoadedDefinitions(where, kinds=kinds)
        self._served = {one.driver.agent.slug: one for one in self._last.defined}
        if not self._served and not always:
            self._last.check()
        _tell_refused(self._last.faults)

    @property
    def drivers(self) -> list[Driver]:
        defined = [one.driver for one in self._served.values()]
        return [*(driver for driver in self._always if driver.agent.slug not in self._served), *defined]

    @property
    def has_files(self) -> bool:
        """True if some agents are defined in files, or may be later."""
        return bool(self._last.marks)

    def problems(self) -> list[DefinitionProblem]:
        """Definitions that currently have errors."""
        return [
            DefinitionProblem(
                file, fault.message, tuple(slug for slug, one in self._served.items() if one.file == file)
            )
            for fault in self._last.faults
            for file in [str(fault.details.get("file", ""))]
        ]

    def places(self) -> dict[str, str]:
        """The file and line that define each agent, by its slug; agents from other sources have none."""
        return {slug: f"{one.file}:{one.line}" for slug, one in self._served.items()}

    async def refresh(self, exchange: Exchange) -> None:
        """Read everything again and serve the valid agents. A file with an error changes nothing."""
        reading = await self._read_settled()
        before, self._last = self._last, reading
        told = [fault.message for fault in before.faults]
        _tell_refused([fault for fault in reading.faults if fault.message not in told])
        self._served = self._merged(reading)
        changed = exchange.replace(self.drivers)
        before.imports.forget(reading.imports)
        if changed.added or changed.replaced or changed.removed:
            tell("agents.reloaded", added=changed.added, replaced=changed.replaced, removed=changed.removed)
            for listener in exchange.listeners.reloaded:
                listener([*changed.added, *changed.replaced, *changed.removed])

    def _merged(self, reading: LoadedDefinitions) -> dict[str, Defined]:
        """Return the loaded agents, and the last good agents of files that have an error now."""
        merged = {one.driver.agent.slug: one for one in reading.defined}
        for slug, one in self._served.items():
            if reading.is_faulty(one.file):
                merged.setdefault(slug, one)
        return merged

    async def watch(self, exchange: Exchange, stop: asyncio.Event) -> None:
        """Refresh at each change until `stop` is set."""
        while not stop.is_set():
            try:
                await self._watch(exchange, stop)
                if self._last.stale:
                    await self.refresh(exchange)
            except Exception as error:  # noqa: BLE001 - a watcher that stops without notice would be worse
                tell("agents.unwatched", error=error)
                await _pause(stop)

    async def _watch(self, exchange: Exchange, stop: asyncio.Event) -> None:
        """Watch until `stop` is set or the set of folders changes."""
        places = self._places()
        changes = awatch(
            *places,
            stop_event=stop,
            recursive=False,
            watch_filter=_concerns,
            step=STEP_MS,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
        )
        async with aclosing(changes) as heard:
            async for change in heard:
                if change or self._last.stale:
                    await self.refresh(exchange)
                if self._places() != places:
                    return

    def _places(self) -> list[Path]:
        """Return the folders to watch. Files are not watched themselves, because an editor may replace them with new
        files."""
        paths = [path.absolute() for path in self._last.marks]
        folders = {path for path in paths if path.is_dir()} | {path.parent for path in paths}
        return sorted(path for path in folders if path.is_dir())

    async def _read_settled(self) -> LoadedDefinitions:
        reading = await self._read()
        while self._loses(reading):
            await asyncio.sleep(SETTLE_S)
            if not reading.stale:
                break
            reading.imports.forget(self._last.imports)
            reading = await self._read()
        return reading

    async def _read(self) -> LoadedDefinitions:
        return await asyncio.to_thread(LoadedDefinitions, self._where, self._last, self._kinds)

    def _loses(self, reading: LoadedDefinitions) -> bool:
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
