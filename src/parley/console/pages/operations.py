"""Operations: how busy the server is and how it fares, who uses it, and what is kept of it."""

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from parley.clock import now_ms
from parley.console.desk import Desk
from parley.console.pages.page import Page
from parley.console.plots import latencies, rates
from parley.console.replies import Reply, redirect
from parley.console.visits import Visit
from parley.core.runs import Run, State
from parley.engine.newest import newest
from parley.engine.ports import Listing
from parley.settings import Settings, blobs_location, origins

COUNTED = 100
"""The newest runs, of which usage is told: so many cost the same however many there are."""
MOST_FILES = 20_000
SHOWN = 12


class Use(Struct):
    """What one agent or one principal has made of the server."""

    name: str
    runs: int = 0
    failed: int = 0
    spent_ms: int = 0


class OperationPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/operations", self.show, "admin"),
            Page("GET", "/operations/dead", self.dead, "admin"),
            Page("POST", "/operations/dead/{task}/{id:path}/redrive", self.redrive, "admin"),
            Page("GET", "/operations/settings", self.settings, "admin"),
        ]

    async def show(self, visit: Visit) -> Reply:
        exchange, now = self._desk.exchange, now_ms()
        spans = self._desk.samples.spans(now)
        runs = (await newest(exchange.store, Listing(limit=COUNTED))).runs
        settings = self._desk.beside.settings
        return visit.page(
            "operations.html", title="Operations", plots=[rates(spans, now), *latencies(spans, now)],
            since=min((one.begin for one in spans), default=now), counted=len(runs),
            by_agent=used(runs, lambda run: self._desk.name_of(run.agent)),
            by_principal=used(runs, lambda run: run.principal),
            replicas=exchange.membership.alive, replica=exchange.membership.replica, leads=exchange.membership.leads,
            size=await exchange.store.size(), files=await asyncio.to_thread(_files, settings), store=settings.store,
            busy=sum(exchange.execution.busy.values()), followers=exchange.streams.followers,
        )  # fmt: skip

    async def dead(self, visit: Visit) -> Reply:
        """Updates that were given up: their receivers could not be told."""
        task, _, id_ = visit.query.get("after", "").partition("/")
        entries, more = await self._desk.beside.hooks.page((task, id_), dead=True)
        return visit.page(
            "dead.html", title="Dead letters", crumbs=[("Operations", "/operations")], entries=entries,
            next="/".join(more) if more else "", first=not task,
        )  # fmt: skip

    async def redrive(self, visit: Visit) -> Reply:
        await visit.form()
        await self._desk.beside.hooks.redrive(visit.path["task"], visit.path["id"])
        return redirect("/operations/dead")

    async def settings(self, visit: Visit) -> Reply:
        settings = self._desk.beside.settings
        came_from = origins(settings)
        rows = [
            (name, str(_plain(getattr(settings, name))), came_from[name], field.description or "")
            for name, field in Settings.model_fields.items()
        ]
        return visit.page("settings.html", title="Settings", crumbs=[("Operations", "/operations")], rows=rows)


def used(runs: Iterable[Run], by: Callable[[Run], str]) -> list[Use]:
    """Whoever used it most first."""
    found: dict[str, Use] = {}
    for run in runs:
        use = found.setdefault(by(run), Use(by(run)))
        use.runs += 1
        use.failed += run.state in (State.FAILED, State.REJECTED)
        use.spent_ms += run.spent_ms
    return sorted(found.values(), key=lambda one: (-one.runs, one.name))[:SHOWN]


def _files(settings: Settings) -> tuple[int, int, bool] | None:
    """The files beside the database, where they are ours to look at: bytes, how many, and whether that is all."""
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
    """Secrets show themselves as stars; in a dictionary one by one."""
    if isinstance(value, dict):
        return {str(name): str(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return "" if value is None else value
