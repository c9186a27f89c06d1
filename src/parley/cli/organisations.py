"""Check an organisation's folder, draw its workflows, and serve it."""

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parley.app.application import serve
from parley.cli.options import OK, USAGE
from parley.compat.organisation import OrgFile, driver_of, read_orgfile, settings_of
from parley.definitions.loader import Sources
from parley.definitions.watcher import Definitions
from parley.drivers.org.driver import sample_folder
from parley.errors import CommandRefused, ConfigurationError
from parley.orgkernel.card import blank_agent, described
from parley.orgkernel.commands import check_command
from parley.orgkernel.definitions import PASSTHROUGH, Organisation, Workflow, read_workflows
from parley.orgkernel.graph import check_workflow
from parley.orgkernel.json_structs import decoded, ignored, members_of
from parley.orgkernel.loader import LoadedOrganisation, OrganisationLoader, OrganisationPaths
from parley.orgkernel.pictures import svg, terminal
from parley.telemetry import tell


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


def _read(folder: Path | None) -> LoadedOrganisation:
    if folder is not None and not folder.is_dir():
        raise ConfigurationError(f"There is no folder {folder}.")
    return OrganisationLoader(OrganisationPaths(folder or sample_folder())).read()


def _workflow(plan: str, folder: Path | None) -> Workflow:
    """Find a workflow by id or name in the organisation, or read it from a JSON file."""
    path = Path(plan)
    if path.suffix == ".json" and path.is_file():
        return _of_file(path)
    organisation = _read(folder).organisation
    found = organisation.workflow(plan) if organisation else None
    if found is None:
        known = ", ".join(one.id for one in organisation.workflows) if organisation else "none"
        raise ConfigurationError(f"There is no workflow {plan}. Known workflows: {known}.")
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
        raise ConfigurationError(
            f"{path} contains {len(found)} workflows, not one. Give a workflow's id and its folder with --folder."
        )
    return found[0]


def _refused(organisation: Organisation | None) -> list[str]:
    """Errors for commands that would always be refused, with any message."""
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
        for one in organisation.domains
        if one.id != PASSTHROUGH
    ]


def _summary(reading: LoadedOrganisation, faults: list[str]) -> dict[str, Any]:
    agent = described(blank_agent("org"), reading.organisation)
    domains = _domains(reading.organisation) if reading.organisation else []
    return {
        "active": reading.organisation is not None,
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "skills": [{"id": one.id, "name": one.name, "tags": list(one.tags)} for one in agent.skills],
        "domains": domains,
        "without_role": [one["id"] for one in domains if one["role"] is None],
        "without_workflow": [one["id"] for one in domains if not one["workflows"]],
        "remarks": [one.text for one in reading.problems if one.remark],
        "faults": faults,
    }


def _print(reading: LoadedOrganisation) -> None:
    console = Console(highlight=False)
    summary = _summary(reading, [])
    if not summary["active"]:
        console.print("No organisation is active: active.json is missing or cannot be read.")
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


# `parley org serve`, and `python -m a2a_server.run` of the organisation server (001).


def serve_organisation(config: Path | None, **given: Any) -> None:
    """Serve the organisation of a config file; without a file, the sample organisation for this machine only."""
    file, unknown = read_orgfile(config) if config is not None else (OrgFile(), list[str]())
    folder = config.absolute().parent if config is not None else Path.cwd()
    settings = settings_of(file, folder, **given)
    if not file.enabled:
        print(f"The server is disabled: {config} sets enabled to false.")
        return

    def read() -> Definitions:
        if unknown:
            tell("config.unknown", file=str(config), fields=unknown, warning="These fields are unknown and ignored.")
        return Definitions(Sources(), [driver_of(file, folder, settings)])

    serve(settings, read)
