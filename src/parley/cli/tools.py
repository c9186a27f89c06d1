"""Servers of tools: how each fares, and what it offers."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from parley.app import allowed
from parley.assembly.tools import open_host
from parley.cli.exits import ERROR, OK, USAGE
from parley.core.agents import Agent
from parley.core.mcp import Offer
from parley.definitions.reading import Reading, Sources, sources
from parley.security.netguard import Guard
from parley.settings import FILE, Settings, load
from parley.tools.mcp.host import ServerStatus

MAX_SHOWN = 60


def run_tools(paths: Sequence[str] | None, *, as_json: bool) -> int:
    """Starts or reaches every server, as the definitions and the settings say, and lets go of it again."""
    settings = load()
    reading = Reading(Sources(tuple(paths)) if paths else sources(settings.agents, FILE))
    found = asyncio.run(_asked(settings, [driver.agent for driver in reading.drivers]))
    if as_json:
        print(json.dumps([_entry(one) for one in found], indent=2))
    else:
        _print(found)
    for fault in reading.faults:
        typer.echo(fault.message, err=True)
    return USAGE if reading.faults else OK if all(one.state == "ready" for one in found) else ERROR


async def _asked(settings: Settings, agents: Sequence[Agent]) -> list[ServerStatus]:
    host = open_host(settings, Guard(allowed(settings)))
    try:
        return await host.status(agents)
    finally:
        await host.close()


def _entry(one: ServerStatus) -> dict[str, Any]:
    return {
        "server": one.name, "agent": one.agent or None, "kind": one.kind, "state": one.state,
        "reason": one.reason or None, "tools": [_offer(offer) for offer in one.tools],
    }  # fmt: skip


def _offer(offer: Offer) -> dict[str, Any]:
    return {
        "name": offer.full, "description": offer.description, "writes": offer.writes, "inputSchema": offer.schema,
    }  # fmt: skip


def _print(found: Sequence[ServerStatus]) -> None:
    table = Table("server", "of", "state", "tool", "", box=None, header_style="bold")
    for one in found:
        about = (one.name, one.agent or "everybody", one.state)
        if not one.tools:
            table.add_row(*about, "", one.reason)
        for place, offer in enumerate(one.tools):
            words = " ".join(offer.description.split())[:MAX_SHOWN]
            table.add_row(*(about if place == 0 else ("", "", "")), offer.name, words)
    Console().print(table if found else "No servers of tools are defined.", markup=False)
