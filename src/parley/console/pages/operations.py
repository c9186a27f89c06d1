"""Pages for operators: load, latencies, usage, dead letters and settings."""

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from parley.clock import now_ms
from parley.console.plots import latencies, rates
from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PageReply, redirect
from parley.runs.listing import newest
from parley.runs.rules.state import Run, State
from parley.runs.store import Listing
from parley.settings import Settings, blobs_location, origins

COUNTED = 100
"""Usage is counted over this many newest runs, so that the cost of the page does not grow with the store."""
MOST_FILES = 20_000
SHOWN = 12


class Use(Struct):
    """Usage by one agent or one principal."""

    name: str
    runs: int = 0
    failed: int = 0
    spent_ms: int = 0


class OperationPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/operations", self.show, "admin"),
            Page("GET", "/operations/dead", self.dead, "admin"),
            Page("POST", "/operations/dead/{task}/{id:path}/redrive", self.redrive, "admin"),
            Page("GET", "/operations/settings", self.settings, "admin"),
        ]

    async def show(self, visit: PageRequest) -> PageReply:
        exchange, now = self._desk.exchange, now_ms()
        spans = self._desk.samples.spans(now)
        runs = (await newest(exchange.store, Listing(limit=COUNTED))).runs
        settings = self._desk.beside.settings
        return visit.page(
            "operations.html",
            title="Operations",
            plots=[rates(spans, now), *latencies(spans, now)],
            since=min((one.begin for one in spans), default=now),
            counted=len(runs),
            by_agent=used(runs, lambda run: self._desk.name_of(run.agent)),
            by_principal=used(runs, lambda run: run.principal),
            replicas=exchange.membership.alive,
            replica=exchange.membership.replica,
            leads=exchange.membership.leads,
            size=await exchange.store.size(),
            files=await asyncio.to_thread(_files, settings),
            store=settings.store,
            busy=sum(exchange.execution.busy.values()),
            followers=exchange.streams.followers,
        )

    async def dead(self, visit: PageRequest) -> PageReply:
        """List the push notifications whose delivery was given up."""
        task, _, id_ = visit.query.get("after", "").partition("/")
        entries, more = await self._desk.beside.hooks.page((task, id_), dead=True)
        return visit.page(
            "dead.html",
            title="Dead letters",
            crumbs=[("Operations", "/operations")],
            entries=entries,
            next="/".join(more) if more else "",
            first=not task,
        )

    async def redrive(self, visit: PageRequest) -> PageReply:
        await visit.form()
        await self._desk.beside.hooks.redrive(visit.path["task"], visit.path["id"])
        return redirect("/operations/dead")

    async def settings(self, visit: PageRequest) -> PageReply:
        settings = self._desk.beside.settings
        came_from = origins(settings)
        rows = [
            (name, str(_plain(getattr(settings, name))), came_from[name], field.description or "")
            for name, field in Settings.model_fields.items()
        ]
        return visit.page("settings.html", title="Settings", crumbs=[("Operations", "/operations")], rows=rows)


def used(runs: Iterable[Run], by: Callable[[Run], str]) -> list[Use]:
    """Usage by key, highest number of runs first."""
    found: dict[str, Use] = {}
    for run in runs:
        use = found.setdefault(by(run), Use(by(run)))
        use.runs += 1
        use.failed += run.state in (State.FAILED, State.REJECTED)
        use.spent_ms += run.spent_ms
    return sorted(found.values(), key=lambda one: (-one.runs, one.name))[:SHOWN]


def _files(settings: Settings) -> tuple[int, int, bool] | None:
    """Size of the local blob folder: bytes, number of files, and True if all were counted. None if it is not local."""
    place = Path(blobs_location(settings))
    if ":" in blobs_location(settings) or not place.is_dir():
        return None
    size = count = 0
    for folder, _, names in os.walk(place):
        for name in names:
            if count == MOST_FILES:
                return size, count, False
            try:
                size += (Path(folder) / name).stat().st_size
                count += 1
            except OSError:
                continue
    return size, count, True


def _plain(value: object) -> object:
    """A setting's value for display. Secrets print as stars; values of dictionaries are converted one by one."""
    if isinstance(value, dict):
        return {str(name): str(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return "" if value is None else value
