"""Organisations follow their folders: a card changes with the file that it was made from."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]

from parley.drivers.org.driver import OrgDriver
from parley.engine.ports import Driver
from parley.telemetry import tell

STEP_MS = 50
LOOK_MS = 1_000
"""How often the files are looked at though nobody said that they changed: not every disk tells."""


@asynccontextmanager
async def following_organisations(drivers: Mapping[str, Driver]) -> AsyncGenerator[None, None]:
    """Keep the organisations among some drivers up to date until the block ends; also those that come later."""
    stop = asyncio.Event()
    task = asyncio.get_running_loop().create_task(_follow(drivers, stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def _follow(drivers: Mapping[str, Driver], stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await _watch(drivers, stop)
        except Exception as error:  # noqa: BLE001 - watching that ends silently would be worse
            tell("org.unwatched", error=error)
            await _pause(stop)


async def _watch(drivers: Mapping[str, Driver], stop: asyncio.Event) -> None:
    """Until told to stop, or until other folders are to be watched."""
    folders = _folders(drivers)
    if not folders:
        return await _pause(stop)
    changes = awatch(
        *folders, stop_event=stop, recursive=False, step=STEP_MS, rust_timeout=LOOK_MS, yield_on_timeout=True
    )
    async with aclosing(changes) as heard:
        async for _ in heard:
            await asyncio.to_thread(_refresh, drivers)
            if _folders(drivers) != folders:
                return None
    return None


def _refresh(drivers: Mapping[str, Driver]) -> None:
    for driver in _organisations(drivers):
        if driver.refresh():
            tell("org.changed", agent=driver.agent.slug, name=driver.agent.name, skills=len(driver.agent.skills))


def _organisations(drivers: Mapping[str, Driver]) -> list[OrgDriver]:
    return [driver for driver in list(drivers.values()) if isinstance(driver, OrgDriver)]


def _folders(drivers: Mapping[str, Driver]) -> list[Path]:
    """Folders, never files: a file that is replaced is another file."""
    places = [driver.setup.places for driver in _organisations(drivers)]
    wanted = {folder for one in places for folder in (one.folder, one.roles_folder, one.folder / "workflows")}
    wanted |= {path.parent for one in places for path in (*one.library(), *one.taxonomy())}
    return sorted(folder for folder in wanted if folder.is_dir())


async def _pause(stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), LOOK_MS / 1000)
    except TimeoutError:
        return
