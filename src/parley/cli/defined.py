"""What definitions say, without serving it."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from parley.cli.exits import OK, USAGE
from parley.core.agents import Limits
from parley.definitions.reading import Defined, Reading, Sources, sources
from parley.engine.ports import Distant
from parley.errors import ConfigurationError, ParleyError
from parley.settings import FILE, Settings, load


def run_check(paths: Sequence[str] | None, *, as_json: bool) -> int:
    reading = _read(paths)
    if as_json:
        print(json.dumps({"agents": [_entry(one) for one in reading.defined], "faults": _faults(reading)}, indent=2))
    else:
        _print_table("slug", "name", "driver", "defined in", rows=[_where(one) for one in reading.defined])
        _complain(reading.faults)
    return USAGE if reading.faults else OK


def run_list(paths: Sequence[str] | None, data_dir: Path | None, *, as_json: bool) -> int:
    reading = _read(paths)
    distant = [one.driver.agent.slug for one in reading.defined if isinstance(one.driver, Distant)]
    runtimes = asyncio.run(_runtimes(distant, load(data_dir=data_dir))) if distant else {}
    if as_json:
        print(json.dumps([_entry(one) | _runtime(one, runtimes) for one in reading.defined], indent=2))
    else:
        headers = ["slug", "name", "driver", "visibility", "limits", *(["runtime"] if distant else [])]
        rows = [
            (*_row(one), *([runtimes.get(one.driver.agent.slug, "")] if distant else [])) for one in reading.defined
        ]
        _print_table(*headers, rows=rows)
    _complain(reading.faults)
    return USAGE if reading.faults else OK


async def _runtimes(slugs: Sequence[str], settings: Settings) -> dict[str, str]:
    """How the runtime of each agent fares, as the database says; it is not made for the asking."""
    from parley.app import open_records
    from parley.security.runtimes import Runtimes
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


def _read(paths: Sequence[str] | None) -> Reading:
    """Only what is named; or, if nothing is, what `parley serve` would serve."""
    return Reading(Sources(tuple(paths)) if paths else sources(load().agents, FILE))


def _entry(one: Defined) -> dict[str, Any]:
    agent = one.driver.agent
    limits = {name: getattr(agent.limits, name) for name in Limits.__struct_fields__}
    return {
        "slug": agent.slug, "name": agent.name, "driver": one.kind, "visibility": agent.visibility,
        "limits": limits, "file": one.file, "line": one.line,
    }  # fmt: skip


def _faults(reading: Reading) -> list[dict[str, Any]]:
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


def _complain(faults: Sequence[ConfigurationError]) -> None:
    for fault in faults:
        typer.echo(fault.message, err=True)
