"""What an organisation's folder holds, and its workflows as pictures, without serving it."""

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parley.cli.exits import OK, USAGE
from parley.definitions.organisations import sample_folder
from parley.errors import CommandRefused, ConfigurationError
from parley.orgkernel.card import blank_agent, described
from parley.orgkernel.definitions import PASSTHROUGH, Organisation, Workflow, read_workflows
from parley.orgkernel.drawing import terminal
from parley.orgkernel.graph import check_workflow
from parley.orgkernel.picture import svg
from parley.orgkernel.reading import Places, Reader, Reading
from parley.orgkernel.running import check_command
from parley.orgkernel.shapes import decoded, ignored, members_of


def run_check(folder: Path | None, *, as_json: bool) -> int:
    reading = _read(folder)
    refused = _refused(reading.organisation)
    faults = [*(one.text for one in reading.problems if not one.remark), *refused]
    if as_json:
        print(json.dumps(_summary(reading, faults), ensure_ascii=False, indent=2))
    else:
        _print(reading)
        for fault in faults:
            typer.echo(fault, err=True)
    return USAGE if faults or reading.organisation is None else OK


def run_graph(plan: str, folder: Path | None, out: Path | None, *, as_json: bool) -> int:
    workflow = _workflow(plan, folder)
    faults: list[str] = []
    check_workflow(workflow, lambda at, why: faults.append(f"{workflow.id}: {at}: {why}"))
    if out is not None:
        out.write_text(svg(workflow))
        typer.echo(f"saved {out}", err=True)
    if as_json:
        print(json.dumps({"id": workflow.id, "name": workflow.name, "faults": faults, "svg": svg(workflow)}))
    elif out is None:
        print(terminal(workflow))
    for fault in faults if not as_json else ():
        typer.echo(fault, err=True)
    return USAGE if faults else OK


def _read(folder: Path | None) -> Reading:
    if folder is not None and not folder.is_dir():
        raise ConfigurationError(f"There is no folder {folder}.")
    return Reader(Places(folder or sample_folder())).read()


def _workflow(plan: str, folder: Path | None) -> Workflow:
    """By its id or name in the organisation, or in a file of its own."""
    path = Path(plan)
    if path.suffix == ".json" and path.is_file():
        return _of_file(path)
    organisation = _read(folder).organisation
    found = organisation.workflow(plan) if organisation else None
    if found is None:
        known = ", ".join(one.id for one in organisation.workflows) if organisation else "none"
        raise ConfigurationError(f"There is no workflow {plan}; there are: {known}.")
    return found


def _of_file(path: Path) -> Workflow:
    try:
        value = decoded(path.read_bytes())
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}.") from None
    named = members_of(value)
    if {"graph", "steps"} & named.keys() and "id" not in named:
        value = {"plans": {path.stem: value}}
    found = read_workflows(value, ignored)
    if len(found) != 1:
        raise ConfigurationError(f"{path} holds {len(found)} workflows; give its folder with --folder, and one's id.")
    return found[0]


def _refused(organisation: Organisation | None) -> list[str]:
    """Commands that would not be run, whatever the message."""
    found: list[str] = []
    for workflow in organisation.workflows if organisation else ():
        for node in workflow.graph.nodes.values():
            try:
                if node.command:
                    check_command(node.command)
            except CommandRefused as error:
                found.append(f"{workflow.id}: graph.nodes.{node.id}.command: {error.message}")
    return found


def _domains(organisation: Organisation) -> list[dict[str, Any]]:
    return [
        {
            "id": one.id,
            "role": next((role.id for role in organisation.roles_for(one.id)), None),
            "workflows": [flow.id for flow in organisation.workflows_for(one.id)],
        }
        for one in organisation.domains if one.id != PASSTHROUGH
    ]  # fmt: skip


def _summary(reading: Reading, faults: list[str]) -> dict[str, Any]:
    agent = described(blank_agent("org"), reading.organisation)
    domains = _domains(reading.organisation) if reading.organisation else []
    return {
        "active": reading.organisation is not None,
        "name": agent.name, "description": agent.description, "version": agent.version,
        "skills": [{"id": one.id, "name": one.name, "tags": list(one.tags)} for one in agent.skills],
        "domains": domains,
        "without_role": [one["id"] for one in domains if one["role"] is None],
        "without_workflow": [one["id"] for one in domains if not one["workflows"]],
        "remarks": [one.text for one in reading.problems if one.remark],
        "faults": faults,
    }  # fmt: skip


def _print(reading: Reading) -> None:
    console = Console(highlight=False)
    summary = _summary(reading, [])
    if not summary["active"]:
        console.print("No organisation is active here: there is no active.json that could be read.")
        return
    console.print(f"[bold]{escape(summary['name'])}[/bold] {escape(summary['version'])}", soft_wrap=True)
    console.print(escape(summary["description"]), soft_wrap=True)
    skills = Table("skill", "name", "domains", box=None, header_style="bold")
    for one in summary["skills"]:
        skills.add_row(escape(one["id"]), escape(one["name"]), escape(", ".join(one["tags"])))
    domains = Table("domain", "role", "workflows", box=None, header_style="bold")
    for one in summary["domains"]:
        domains.add_row(escape(one["id"]), escape(one["role"] or "none"), escape(", ".join(one["workflows"]) or "none"))
    console.print(skills, domains, sep="\n")
    for remark in summary["remarks"]:
        console.print(f"[dim]{escape(remark)}[/dim]", soft_wrap=True)
