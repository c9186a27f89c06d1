"""Print the agents and tools of definition files without serving them."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from parley.app import allowed
from parley.app.tools import open_host
from parley.cli.options import ERROR, OK, USAGE
from parley.definitions.loader import Defined, LoadedDefinitions, Sources, sources
from parley.errors import ConfigurationError, ParleyError
from parley.execution.driver import PairedWork
from parley.runs.rules.agents import Agent, Limits
from parley.security.netguard import Guard
from parley.settings import FILE, Settings, load
from parley.tools.mcp.host import ServerStatus
from parley.tools.rules.mcp import ToolOffer


def run_check(paths: Sequence[str] | None, *, as_json: bool) -> int:
    reading = _read(paths)
    if as_json:
        print(json.dumps({"agents": [_entry(one) for one in reading.defined], "faults": _faults(reading)}, indent=2))
    else:
        _print_table("slug", "name", "driver", "defined in", rows=[_where(one) for one in reading.defined])
        _print_faults(reading.faults)
    return USAGE if reading.faults else OK


def run_list(paths: Sequence[str] | None, data_dir: Path | None, *, as_json: bool) -> int:
    reading = _read(paths)
    paired = [one.driver.agent.slug for one in reading.defined if isinstance(one.driver, PairedWork)]
    runtimes = asyncio.run(_runtimes(paired, load(data_dir=data_dir))) if paired else {}
    if as_json:
        print(json.dumps([_entry(one) | _runtime(one, runtimes) for one in reading.defined], indent=2))
    else:
        headers = ["slug", "name", "driver", "visibility", "limits", *(["runtime"] if paired else [])]
        rows = [(*_row(one), *([runtimes.get(one.driver.agent.slug, "")] if paired else [])) for one in reading.defined]
        _print_table(*headers, rows=rows)
    _print_faults(reading.faults)
    return USAGE if reading.faults else OK


async def _runtimes(slugs: Sequence[str], settings: Settings) -> dict[str, str]:
    """State of each agent's runtime, read from the database; a missing database is not created."""
    from parley.app import open_records
    from parley.paired.runtimes import Runtimes
    from parley.stores.sqlite import FILE as DATABASE

    if settings.store == "memory" or (settings.store == "sqlite" and not (settings.data_dir / DATABASE).exists()):
        return dict.fromkeys(slugs, "not paired")
    try:
        async with open_records(settings) as records:
            runtimes = Runtimes(records, settings.edge_lease_s)
            return {slug: await runtimes.word_for(slug) for slug in slugs}
    except ParleyError:
        return dict.fromkeys(slugs, "unknown")


def _runtime(one: Defined, runtimes: dict[str, str]) -> dict[str, str]:
    slug = one.driver.agent.slug
    return {"runtime": runtimes[slug]} if slug in runtimes else {}


def _read(paths: Sequence[str] | None) -> LoadedDefinitions:
    """Read the given paths, or by default what `parley serve` would serve."""
    return LoadedDefinitions(Sources(tuple(paths)) if paths else sources(load().agents, FILE))


def _entry(one: Defined) -> dict[str, Any]:
    agent = one.driver.agent
    limits = {name: getattr(agent.limits, name) for name in Limits.__struct_fields__}
    return {
        "slug": agent.slug,
        "name": agent.name,
        "driver": one.kind,
        "visibility": agent.visibility,
        "limits": limits,
        "file": one.file,
        "line": one.line,
    }


def _faults(reading: LoadedDefinitions) -> list[dict[str, Any]]:
    return [{"message": fault.message, **fault.details} for fault in reading.faults]


def _where(one: Defined) -> tuple[str, ...]:
    agent = one.driver.agent
    return agent.slug, agent.name, one.kind, f"{one.file}:{one.line}"


def _row(one: Defined) -> tuple[str, ...]:
    agent = one.driver.agent
    limits = {name: getattr(agent.limits, name) for name in Limits.__struct_fields__}
    shown = ", ".join(f"{name} {value:g}" for name, value in limits.items() if value is not None)
    return agent.slug, agent.name, one.kind, agent.visibility, shown or "none"


def _print_table(*headers: str, rows: Sequence[tuple[str, ...]]) -> None:
    table = Table(*headers, box=None, header_style="bold")
    for row in rows:
        table.add_row(*row)
    Console().print(table if rows else "No agents are defined.", markup=False)


def _print_faults(faults: Sequence[ConfigurationError]) -> None:
    for fault in faults:
        typer.echo(fault.message, err=True)


# MCP servers: their states and tools.

MAX_SHOWN = 60


def run_tools(paths: Sequence[str] | None, *, as_json: bool) -> int:
    """Connect to every MCP server of the definitions and the settings, print its state and tools, and disconnect."""
    settings = load()
    reading = LoadedDefinitions(Sources(tuple(paths)) if paths else sources(settings.agents, FILE))
    found = asyncio.run(_server_statuses(settings, [driver.agent for driver in reading.drivers]))
    if as_json:
        print(json.dumps([_server_entry(one) for one in found], indent=2))
    else:
        _print_servers(found)
    _print_faults(reading.faults)
    return USAGE if reading.faults else OK if all(one.state == "ready" for one in found) else ERROR


async def _server_statuses(settings: Settings, agents: Sequence[Agent]) -> list[ServerStatus]:
    host = open_host(settings, Guard(allowed(settings)))
    try:
        return await host.status(agents)
    finally:
        await host.close()


def _server_entry(one: ServerStatus) -> dict[str, Any]:
    return {
        "server": one.name,
        "agent": one.agent or None,
        "kind": one.kind,
        "state": one.state,
        "reason": one.reason or None,
        "tools": [_offer(offer) for offer in one.tools],
    }


def _offer(offer: ToolOffer) -> dict[str, Any]:
    return {
        "name": offer.full,
        "description": offer.description,
        "writes": offer.writes,
        "inputSchema": offer.schema,
    }


def _print_servers(found: Sequence[ServerStatus]) -> None:
    table = Table("server", "agent", "state", "tool", "", box=None, header_style="bold")
    for one in found:
        about = (one.name, one.agent or "all", one.state)
        if not one.tools:
            table.add_row(*about, "", one.reason)
        for place, offer in enumerate(one.tools):
            words = " ".join(offer.description.split())[:MAX_SHOWN]
            table.add_row(*(about if place == 0 else ("", "", "")), offer.name, words)
    Console().print(table if found else "No MCP servers are defined.", markup=False)
