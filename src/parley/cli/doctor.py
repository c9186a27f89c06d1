"""What is probably wrong with how a server is set up, and what to do about it."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from parley.cli.checks import Finding, error, local_findings, read_definitions
from parley.cli.exits import ERROR, OK
from parley.cli.probes import asked_findings
from parley.errors import ConfigurationError
from parley.settings import Settings, load


def run_doctor(agents: Sequence[str] | None, data_dir: Path | None, *, as_json: bool) -> int:
    """The exit code is 1 when something will not work."""
    try:
        findings = asyncio.run(examined(load(data_dir=data_dir, agents=list(agents) if agents else None)))
    except ConfigurationError as wrong:
        findings = [error("settings_wrong", wrong.message, "Mend parley.toml or the environment; see parley config.")]
    if as_json:
        print(json.dumps({"findings": msgspec.to_builtins(findings)}, indent=2))
    else:
        _print(findings)
    return ERROR if any(one.level == "error" for one in findings) else OK


async def examined(settings: Settings) -> list[Finding]:
    reading = read_definitions(settings)
    return [*local_findings(settings, reading), *[one async for one in asked_findings(settings, reading)]]


def _print(findings: list[Finding]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for one in findings:
        style = {"error": "red", "warning": "yellow"}.get(one.level, "dim")
        console.print(f"[{style}]{one.level}[/{style}] {one.code}: ", end="")
        console.print(f"{one.message} {one.todo}", markup=False)
    if all(one.level == "note" for one in findings):
        console.print("Nothing is wrong that could be seen.")
