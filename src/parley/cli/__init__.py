"""The `parley` command line. Commands import what they need when they run, so that help is instant."""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from parley import __version__
from parley.cli import limits, tasks
from parley.cli.options import (
    DEFAULT_URL,
    ERROR,
    INTERRUPTED,
    USAGE,
    AsJson,
    DataDir,
    EdgeArgument,
    GrpcPort,
    TemplateKind,
    Token,
    Url,
    agents,
)
from parley.errors import ConfigurationError, ParleyError
from parley.extras import explained

app = typer.Typer(
    help="A self-hosted server for agents: every agent gets an A2A address, every run a durable event log.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

keys_app = typer.Typer(help="Manage API keys directly in the database, also while a server runs.", no_args_is_help=True)
signing_app = typer.Typer(help="Manage the keys that sign agent cards.", no_args_is_help=True)
push_app = typer.Typer(help="List push notification configurations and retry failed deliveries.", no_args_is_help=True)
sessions_app = typer.Typer(help="List and revoke sessions of the console in the database.", no_args_is_help=True)
audit_app = typer.Typer(help="Read, export, verify and erase the audit log in the database.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")
app.add_typer(sessions_app, name="sessions")
app.add_typer(audit_app, name="audit")
app.add_typer(push_app, name="push")
app.add_typer(signing_app, name="signing")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"parley {__version__}")
        raise typer.Exit


@app.callback()
def parley(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


@contextmanager
def _without_collections() -> Generator[None, None, None]:
    """Look for no garbage while modules are loaded: there is none, and looking takes a fifth of a server's start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


_WHAT_TO_SERVE = "YAML definitions, folders of definitions, Python files or modules. Default: the folder agents/."


@app.command()
def up(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="HTTP port; 0 picks a free port.")] = None,
    grpc_port: GrpcPort = None,
    data_dir: DataDir = None,
) -> None:
    """Start a server with the demo agents and your own agents, reachable from this machine only."""
    with _without_collections():
        from parley.app.application import serve as run_server
        from parley.definitions.loader import sources
        from parley.definitions.watcher import Definitions
        from parley.demo import AGENTS
        from parley.settings import FILE, load

    settings = load(host=host, port=port, grpc_port=grpc_port, data_dir=data_dir)
    run_server(settings, lambda: Definitions(sources(settings.agents, FILE), AGENTS))


@app.command()
def serve(
    agents: Annotated[list[str] | None, typer.Argument(help=_WHAT_TO_SERVE)] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="HTTP port; 0 picks a free port.")] = None,
    grpc_port: GrpcPort = None,
    data_dir: DataDir = None,
    store: Annotated[str | None, typer.Option(help="Storage: sqlite, postgres or memory.")] = None,
    workers: Annotated[
        str | None, typer.Option(help="Processes that serve, on PostgreSQL: a number, or `auto` for one per core.")
    ] = None,
) -> None:
    """Serve agents. Settings come from parley.toml, the environment and these options."""
    with _without_collections():
        from parley.app.application import serve as run_server
        from parley.definitions.loader import sources
        from parley.definitions.watcher import Definitions
        from parley.settings import FILE, load

    settings = load(
        host=host,
        port=port,
        grpc_port=grpc_port,
        data_dir=data_dir,
        store=store,
        workers=workers,
        agents=agents or None,
    )
    run_server(settings, lambda: Definitions(sources(settings.agents, FILE)))


@app.command()
def conformance(
    port: Annotated[int | None, typer.Option(help="HTTP port; 0 picks a free port.")] = None,
    grpc_port: GrpcPort = None,
    data_dir: DataDir = None,
    streaming: Annotated[bool, typer.Option(help="Let the agent support streaming.")] = True,
    push: Annotated[bool, typer.Option(help="Let the agent send push notifications.")] = True,
    extended_card: Annotated[bool, typer.Option(help="Give the agent an extended card.")] = True,
    required_extension: Annotated[bool, typer.Option(help="Let the agent require the kit's extension.")] = False,
    cards: Annotated[str | None, typer.Option(help="Card fields: `both` (A2A 1.0 and 0.3) or `1.0`.")] = None,
) -> None:
    """Serve the agent for A2A conformance kits: a message's id or text selects its behaviour."""
    with _without_collections():
        from parley.app.application import serve as run_server
        from parley.definitions.loader import Sources
        from parley.definitions.watcher import Definitions
        from parley.settings import load
        from parley.testing.conformance_agent import conformance as make

    agent = make(streaming=streaming, push=push, extended=extended_card, required_extension=required_extension)
    settings = load(port=port, grpc_port=grpc_port, data_dir=data_dir, cards=cards, card_grpc=True)
    run_server(settings, lambda: Definitions(Sources(), [agent]))


app.add_typer(tasks.app)
app.add_typer(limits.app, name="limits")


@app.command()
def card(
    address: Annotated[
        str,
        typer.Argument(help="An agent's slug at --url, any A2A address, or the URL of a card.", autocompletion=agents),
    ],
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Fetch an agent's card, check it, and verify its signatures."""
    from parley.cli.addresses import AgentAddress
    from parley.cli.rendering import run_card

    place = AgentAddress(address, url, token)
    raise typer.Exit(run_card(place.address, token=place.token_for(place.address), as_json=json))


@app.command()
def login(url: Url = DEFAULT_URL, json: AsJson = False) -> None:
    """Sign in at the identity provider of a server. Later commands for this server use the sign-in."""
    from parley.cli.login import run_login

    run_login(url, as_json=json)


@app.command()
def logout(url: Url = DEFAULT_URL, json: AsJson = False) -> None:
    """Forget the sign-in at a server."""
    from parley.cli.login import run_logout

    run_logout(url, as_json=json)


@app.command()
def whoami(url: Url = DEFAULT_URL, token: Token = None, json: AsJson = False) -> None:
    """Print who you are for a server: the principal, its role and its groups."""
    from parley.cli.login import run_whoami

    run_whoami(url, token, as_json=json)


@app.command()
def config(json: AsJson = False) -> None:
    """Print every setting, its value and its source."""
    from parley.cli.operate import print_config

    print_config(as_json=json)


@app.command()
def migrate(
    data_dir: DataDir = None,
    phase: Annotated[str | None, typer.Option(help="Apply only this phase: `pre` or `post`.")] = None,
    json: AsJson = False,
) -> None:
    """Apply database migrations. `serve` does this at start."""
    from parley.cli.operate import run_migrate

    run_migrate(data_dir, phase, as_json=json)


@app.command()
def verify(
    run: Annotated[str | None, typer.Argument(help="The id of one run. Default: all runs.")] = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Check the hash chain of one run or of all runs."""
    from parley.cli.operate import run_verify

    raise typer.Exit(run_verify(run, data_dir, as_json=json))


@app.command()
def doctor(
    agents: Annotated[list[str] | None, typer.Argument(help=_WHAT_TO_SERVE)] = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Find likely mistakes in the settings and their environment, and print how to fix them."""
    from parley.cli.diagnostics import run_doctor

    raise typer.Exit(run_doctor(agents, data_dir, as_json=json))


@app.command()
def backup(
    to: Annotated[Path, typer.Argument(help="A new directory, or a new .tar, .tar.gz or .tgz file.")],
    data_dir: DataDir = None,
    secrets: Annotated[bool, typer.Option("--with-keys", help="Include the key file that decrypts secrets.")] = False,
    json: AsJson = False,
) -> None:
    """Back up a SQLite database and its blobs, also while a server runs."""
    from parley.cli.operate import run_backup

    run_backup(to, data_dir, secrets=secrets, as_json=json)


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="A backup made by `parley backup`.")],
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Restore a backup into an empty data directory, then check every hash chain."""
    from parley.cli.operate import run_restore

    raise typer.Exit(run_restore(backup, data_dir, as_json=json))


agents_app = typer.Typer(help="Check and list the agents in definition files.", no_args_is_help=True)
app.add_typer(agents_app, name="agents")
Paths = Annotated[list[str] | None, typer.Argument(help=_WHAT_TO_SERVE)]


@agents_app.command("check")
def check_agents(paths: Paths = None, json: AsJson = False) -> None:
    """Check definitions: list the agents that would be served, and every error."""
    from parley.cli.definitions import run_check

    raise typer.Exit(run_check(paths, as_json=json))


@agents_app.command("list")
def list_agents(paths: Paths = None, data_dir: DataDir = None, json: AsJson = False) -> None:
    """List defined agents with their visibility, limits and runtime state."""
    from parley.cli.definitions import run_list

    raise typer.Exit(run_list(paths, data_dir, as_json=json))


@app.command()
def tools(paths: Paths = None, json: AsJson = False) -> None:
    """Connect to the MCP servers of the agents and the settings, and list their states and tools."""
    from parley.cli.definitions import run_tools

    raise typer.Exit(run_tools(paths, as_json=json))


@app.command()
def pair(
    agent: EdgeArgument,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Print the pairing instruction for an AI assistant whose computer will do this agent's work."""
    from parley.cli.keys import run_pair

    run_pair(agent, url, token, as_json=json)


@app.command()
def unpair(
    agent: EdgeArgument,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Revoke an agent's runtime. Its unfinished tasks wait for the next runtime."""
    from parley.cli.keys import run_unpair

    run_unpair(agent, url, token, as_json=json)


org_app = typer.Typer(
    help="Check, draw and serve organisations: folders of roles, domains and workflows.", no_args_is_help=True
)
app.add_typer(org_app, name="org")
_WHICH_FOLDER = "The folder with active.json. Default: the sample organisation."


@org_app.command("check")
def org_check(folder: Annotated[Path | None, typer.Argument(help=_WHICH_FOLDER)] = None, json: AsJson = False) -> None:
    """Check an organisation: print its card's skills, its domains with role and workflows, and every error."""
    from parley.cli.organisations import run_check

    raise typer.Exit(run_check(folder, as_json=json))


@org_app.command("graph")
def org_graph(
    plan: Annotated[str, typer.Argument(help="A workflow's id or name, or a JSON file with one workflow.")],
    folder: Annotated[Path | None, typer.Option(help=_WHICH_FOLDER)] = None,
    svg: Annotated[Path | None, typer.Option(help="Save the drawing as this SVG file.")] = None,
    json: AsJson = False,
) -> None:
    """Draw a workflow in the terminal, or save it as SVG."""
    from parley.cli.organisations import run_graph

    raise typer.Exit(run_graph(plan, folder, svg, as_json=json))


@org_app.command("serve")
def org_serve(
    config: Annotated[
        Path | None, typer.Option(help="The file a2a_config.json. Default: the sample organisation.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="HTTP port; 0 picks a free port.")] = None,
    grpc_port: GrpcPort = None,
    data_dir: DataDir = None,
) -> None:
    """Serve an organisation as one agent, with the built-in kernel or Agent-Zero as a2a_config.json says."""
    from parley.cli.organisations import serve_organisation

    serve_organisation(config, host=host, port=port, grpc_port=grpc_port, data_dir=data_dir)


@keys_app.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="The key's unique name; its runs belong to this name.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="read, send or admin; may be repeated. Default: read and send.")
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="admin, operator, user or reader, instead of --scope. Default: user.")
    ] = None,
    group: Annotated[list[str] | None, typer.Option(help="A group of the key; may be repeated.")] = None,
    agent: Annotated[list[str] | None, typer.Option(help="Allow only this agent; may be repeated.")] = None,
    expires_days: Annotated[float | None, typer.Option(help="Days until the key expires.")] = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Create an API key. Its token is printed only once."""
    from parley.cli.keys import run_create

    run_create(name, scope, agent, expires_days, data_dir, role=role, groups=group, as_json=json)


Actor = Annotated[str | None, typer.Option(help="Only acts of this principal, such as user:ann.")]
Action = Annotated[str | None, typer.Option(help="Only this action, such as key.created.")]
Target = Annotated[str | None, typer.Option(help="Only acts on this target: a key, an agent, a task.")]
Result = Annotated[str | None, typer.Option(help="Only acts with this result: done or refused.")]
Since = Annotated[str | None, typer.Option(help="Only acts since this ISO 8601 time.")]
Until = Annotated[str | None, typer.Option(help="Only acts before this ISO 8601 time.")]


@audit_app.command("list")
def audit_list(
    actor: Actor = None,
    action: Action = None,
    target: Target = None,
    result: Result = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(help="Number of entries.", min=1, max=1000)] = 50,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """List the newest entries."""
    from parley.cli.operate import run_audit_list

    run_audit_list((actor, action, target, result, since, until), limit, data_dir, as_json=json)


@audit_app.command("export")
def audit_export(
    actor: Actor = None,
    action: Action = None,
    target: Target = None,
    result: Result = None,
    since: Since = None,
    until: Until = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Print all entries that match, the oldest first: CSV, or with --json one JSON object on each line."""
    from parley.cli.operate import run_audit_export

    run_audit_export((actor, action, target, result, since, until), data_dir, as_json=json)


@audit_app.command("verify")
def audit_verify(data_dir: DataDir = None, json: AsJson = False) -> None:
    """Check the hash chain. Prints the last entry and its hash, to be compared with a note from earlier."""
    from parley.cli.operate import run_audit_verify

    raise typer.Exit(run_audit_verify(data_dir, as_json=json))


@audit_app.command("erase")
def audit_erase(
    principal: Annotated[str, typer.Argument(help="The principal, such as user:ann.")],
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Erase a person from all entries. The chain still verifies."""
    from parley.cli.operate import run_audit_erase

    run_audit_erase(principal, data_dir, as_json=json)


@keys_app.command("list")
def keys_list(data_dir: DataDir = None, json: AsJson = False) -> None:
    """List all API keys and when each was last used."""
    from parley.cli.keys import run_list

    run_list(data_dir, as_json=json)


@keys_app.command("revoke")
def keys_revoke(
    key: Annotated[str, typer.Argument(help="The key's id or name.")], data_dir: DataDir = None, json: AsJson = False
) -> None:
    """Revoke an API key. Running servers refuse it within two seconds."""
    from parley.cli.keys import run_revoke

    run_revoke(key, data_dir, as_json=json)


@sessions_app.command("list")
def sessions_list(
    principal: Annotated[str | None, typer.Option(help="Only sessions of this principal, such as user:ann.")] = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """List the sessions of the console, the last used first."""
    from parley.cli.keys import run_sessions

    run_sessions(principal, data_dir, as_json=json)


@sessions_app.command("revoke")
def sessions_revoke(
    session: Annotated[str, typer.Argument(help="The session's id, or a principal for all of its sessions.")],
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """End sessions of the console at once, also while servers run."""
    from parley.cli.keys import run_revoke_sessions

    run_revoke_sessions(session, data_dir, as_json=json)


@push_app.command("list")
def push_list(
    dead: Annotated[bool, typer.Option("--dead", help="List only configurations whose delivery was given up.")] = False,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """List the push notification configurations of all tasks and their delivery state."""
    from parley.cli.operate import run_list

    run_list(data_dir, dead=dead, as_json=json)


@push_app.command("redrive")
def push_redrive(
    id_: Annotated[str | None, typer.Argument(metavar="ID", help="The id of a configuration or of its task.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Retry all configurations whose delivery was given up.")] = False,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Retry failed push notifications. Running servers start within a second."""
    from parley.cli.operate import run_redrive

    raise typer.Exit(run_redrive(id_, data_dir, everything=all_, as_json=json))


@signing_app.command("rotate")
def signing_rotate(data_dir: DataDir = None, json: AsJson = False) -> None:
    """Create a new signing key and use it. The old key stays published for a while."""
    from parley.cli.keys import run_rotate

    run_rotate(data_dir, as_json=json)


@signing_app.command("list")
def signing_list(data_dir: DataDir = None, json: AsJson = False) -> None:
    """List the signing keys, newest first."""
    from parley.cli.keys import run_signing_list

    run_signing_list(data_dir, as_json=json)


@app.command()
def new(
    kind: Annotated[TemplateKind, typer.Argument(help="The template: what the folder starts with.")],
    name: Annotated[str, typer.Argument(help="The name; the slug is made from it.")],
    to: Annotated[Path | None, typer.Option(help="The folder to create. Default: the slug.")] = None,
    json: AsJson = False,
) -> None:
    """Create a starter folder: code, a README, and a test that passes."""
    from parley.cli.new import run_new

    run_new(kind.value, name, to, as_json=json)


def main() -> None:
    try:
        app()
    except ConfigurationError as error:
        sys.exit(_print_error(error, USAGE))
    except ParleyError as error:
        sys.exit(_print_error(error, ERROR))
    except ModuleNotFoundError as error:
        if isinstance(explanation := explained(error), ParleyError):
            sys.exit(_print_error(explanation, USAGE))
        raise
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _print_error(error: ParleyError, exit_code: int) -> int:
    typer.echo(f"parley: {error.message} [{error.code}]", err=True)
    if error.code == "unreachable":
        typer.echo(
            "Is the server running? Start one on this machine with `parley up`, or name another with --url.", err=True
        )
    return exit_code
