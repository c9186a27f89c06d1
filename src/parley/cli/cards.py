"""Look at an agent's card, ours or anybody's."""

import asyncio
import json
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from parley.cards import Report, inspect
from parley.cli.exits import ERROR, OK
from parley.cli.wire import members


def run_card(address: str, *, token: str | None, as_json: bool) -> int:
    report = asyncio.run(inspect(address, token=token))
    if as_json:
        print(json.dumps(_plain(report), indent=2))
    else:
        _print(report)
    return OK if report.valid else ERROR


def _plain(report: Report) -> dict[str, Any]:
    return {
        "url": report.url,
        "valid": report.valid,
        "findings": msgspec.to_builtins(report.findings),
        "verified": msgspec.to_builtins(report.verified),
        "card": report.card,
    }


def _print(report: Report) -> None:
    console, card = Console(highlight=False), report.card
    console.print(f"[bold]{card.get('name', '?')}[/bold] {card.get('version', '')}  [dim]{report.url}[/dim]")
    console.print(str(card.get("description", "")))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for one in members(card.get("supportedInterfaces")):
        table.add_row(str(one.get("protocolBinding")), str(one.get("protocolVersion")), str(one.get("url")))
    if "url" in card and not table.rows:
        table.add_row(
            str(card.get("preferredTransport", "JSONRPC")), str(card.get("protocolVersion")), str(card["url"])
        )
    console.print(table)
    for skill in members(card.get("skills")):
        console.print(f"  [cyan]{skill.get('id')}[/cyan] {skill.get('description', '')}")
    for one in report.verified:
        console.print(f"[green]signed[/green] by {one.kid} (covers {one.covers})")
    for finding in report.findings:
        colour = "red" if finding.level == "error" else "yellow"
        console.print(f"[{colour}]{finding.level}[/{colour}] {finding.field}: {finding.message}")
    console.print("[green]valid[/green]" if report.valid else "[red]not valid[/red]")
