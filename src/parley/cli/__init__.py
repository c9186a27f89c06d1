"""`parley`: everything from a terminal. Commands import what they need when they run, so that help is instant."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from parley import __version__
from parley.cli import tasks
from parley.cli.completing import agents
from parley.cli.exits import ERROR, INTERRUPTED, USAGE
from parley.cli.kinds import Kind
from parley.cli.options import DEFAULT_URL, AsJson, DataDir, EdgeArgument, GrpcPort, Token, Url
from parley.errors import ConfigurationError, ParleyError

app = typer.Typer(
    help="An exchange for agents: every agent gets an A2A address, every piece of work a durable log.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

keys_app = typer.Typer(help="API keys, in the database itself: works while a server runs.", no_args_is_help=True)
signing_app = typer.Typer(help="The keys that sign agent cards.", no_args_is_help=True)
push_app = typer.Typer(help="Push notifications: who is told, and who could not be.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")
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


_WHAT_TO_SERVE = "YAML definitions or folders of them, Python files or modules; the folder agents/ if left out."


@app.command()
def up(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port for HTTP; 0 takes a free one.")] = None,
    grpc_port: GrpcPort = None,
    data_dir: DataDir = None,
) -> None:
    """Start with the demo agents and your own, for this machine only. The quickest way to see it work."""
    from parley.cli.server import serve as run_server
    from parley.definitions.reading import sources
    from parley.definitions.watching import Definitions
    from parley.demo import AGENTS
    from parley.settings import FILE, load

    settings = load(host=host, port=port, grpc_port=grpc_port, data_dir=data_dir)
    run_server(settings, lambda: Definitions(sources(settings.agents, FILE), AGENTS))


@app.command()
def serve(
    agents: Annotated[list[str] | None, typer.Argument(help=_WHAT_TO_SERVE)] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port for HTTP; 0 takes a free one.")] = None,
    grpc_port: GrpcPort = None,
    data_dir: DataDir = None,
    store: Annotated[str | None, typer.Option(help="sqlite, postgres or memory.")] = None,
) -> None:
    """Serve agents as configured in parley.toml, the environment and here."""
    from parley.cli.server import serve as run_server
    from parley.definitions.reading import sources
    from parley.definitions.watching import Definitions
    from parley.settings import FILE, load

    settings = load(host=host, port=port, grpc_port=grpc_port, data_dir=data_dir, store=store, agents=agents or None)
    run_server(settings, lambda: Definitions(sources(settings.agents, FILE)))


@app.command()
def conformance(
    port: Annotated[int | None, typer.Option(help="Port for HTTP; 0 takes a free one.")] = None,
    grpc_port: GrpcPort = None,
    data_dir: DataDir = None,
    streaming: Annotated[bool, typer.Option(help="Whether the agent streams.")] = True,
    push: Annotated[bool, typer.Option(help="Whether the agent sends push notifications.")] = True,
    extended_card: Annotated[bool, typer.Option(help="Whether the agent has an extended card.")] = True,
    required_extension: Annotated[bool, typer.Option(help="Whether it needs the kit's extension.")] = False,
    cards: Annotated[str | None, typer.Option(help="Fields of `both` generations in cards, or of `1.0`.")] = None,
) -> None:
    """Serve the agent that A2A's conformance kits expect: it behaves as a message's id or text asks for."""
    from parley.cli.server import serve as run_server
    from parley.conformance import conformance as make
    from parley.definitions.reading import Sources
    from parley.definitions.watching import Definitions
    from parley.settings import load

    agent = make(streaming=streaming, push=push, extended=extended_card, required_extension=required_extension)
    settings = load(port=port, grpc_port=grpc_port, data_dir=data_dir, cards=cards, card_grpc=True)
    run_server(settings, lambda: Definitions(Sources(), [agent]))


app.add_typer(tasks.app)


@app.command()
def card(
    address: Annotated[
        str,
        typer.Argument(help="An agent's slug here, any A2A address, or a card's own address.", autocompletion=agents),
    ],
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Fetch an agent's card, check it, and verify its signatures."""
    from parley.cli.cards import run_card
    from parley.cli.places import Place

    place = Place(address, url, token)
    raise typer.Exit(run_card(place.address, token=place.token_for(place.address), as_json=json))


@app.command()
def config(json: AsJson = False) -> None:
    """Print every setting, its value and where it came from."""
    from parley.cli.operate import print_config

    print_config(as_json=json)


@app.command()
def migrate(
    data_dir: DataDir = None,
    phase: Annotated[str | None, typer.Option(help="Only `pre` or only `post`.")] = None,
    json: AsJson = False,
) -> None:
    """Bring the database up to date. `serve` does this by itself at start."""
    from parley.cli.operate import run_migrate

    run_migrate(data_dir, phase, as_json=json)


@app.command()
def verify(
    run: Annotated[str | None, typer.Argument(help="One run; all of them if left out.")] = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Check the hash chain of a run, or of every run."""
    from parley.cli.operate import run_verify

    raise typer.Exit(run_verify(run, data_dir, as_json=json))


@app.command()
def doctor(
    agents: Annotated[list[str] | None, typer.Argument(help=_WHAT_TO_SERVE)] = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Look for what is probably wrong with the settings and around them, and say what to do."""
    from parley.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(agents, data_dir, as_json=json))


@app.command()
def backup(
    to: Annotated[Path, typer.Argument(help="A directory that is not there yet, or a .tar, .tar.gz or .tgz file.")],
    data_dir: DataDir = None,
    secrets: Annotated[bool, typer.Option("--with-keys", help="Also the file whose keys decrypt secrets.")] = False,
    json: AsJson = False,
) -> None:
    """Copy the database and the blobs of SQLite, also while a server runs."""
    from parley.cli.backups import run_backup

    run_backup(to, data_dir, secrets=secrets, as_json=json)


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="What `parley backup` made.")],
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Put a backup into an empty data directory, and check every hash chain."""
    from parley.cli.backups import run_restore

    raise typer.Exit(run_restore(backup, data_dir, as_json=json))


agents_app = typer.Typer(help="The agents that definitions describe.", no_args_is_help=True)
app.add_typer(agents_app, name="agents")
Paths = Annotated[list[str] | None, typer.Argument(help=_WHAT_TO_SERVE)]


@agents_app.command("check")
def check_agents(paths: Paths = None, json: AsJson = False) -> None:
    """Say what would be served, or everything that is wrong with it."""
    from parley.cli.defined import run_check

    raise typer.Exit(run_check(paths, as_json=json))


@agents_app.command("list")
def list_agents(paths: Paths = None, data_dir: DataDir = None, json: AsJson = False) -> None:
    """The agents that are defined here, who may see them, their limits, and whether their runtime is there."""
    from parley.cli.defined import run_list

    raise typer.Exit(run_list(paths, data_dir, as_json=json))


@app.command()
def tools(paths: Paths = None, json: AsJson = False) -> None:
    """Start or reach the MCP servers of the agents and of the settings: how each fares, and its tools."""
    from parley.cli.tools import run_tools

    raise typer.Exit(run_tools(paths, as_json=json))


@app.command()
def pair(
    agent: EdgeArgument,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Print what a person gives to an AI assistant, so that its computer does this agent's work."""
    from parley.cli.pairing import run_pair

    run_pair(agent, url, token, as_json=json)


@app.command()
def unpair(
    agent: EdgeArgument,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Revoke the runtime of an agent. What it was working on waits for the next one."""
    from parley.cli.pairing import run_unpair

    run_unpair(agent, url, token, as_json=json)


org_app = typer.Typer(help="Organisations: roles, domains and workflows in a folder.", no_args_is_help=True)
app.add_typer(org_app, name="org")
_WHICH_FOLDER = "The folder with active.json; the sample organisation if left out."


@org_app.command("check")
def org_check(
    folder: Annotated[Path | None, typer.Argument(help=_WHICH_FOLDER)] = None, json: AsJson = False
) -> None:  # fmt: skip
    """Say what its card would offer, which domains reach no role or workflow, and everything that is wrong."""
    from parley.cli.organisations import run_check

    raise typer.Exit(run_check(folder, as_json=json))


@org_app.command("graph")
def org_graph(
    plan: Annotated[str, typer.Argument(help="A workflow's id or name, or a JSON file that holds one.")],
    folder: Annotated[Path | None, typer.Option(help=_WHICH_FOLDER)] = None,
    svg: Annotated[Path | None, typer.Option(help="Save it as this SVG file.")] = None,
    json: AsJson = False,
) -> None:
    """Draw a workflow: here, or as SVG."""
    from parley.cli.organisations import run_graph

    raise typer.Exit(run_graph(plan, folder, svg, as_json=json))


@org_app.command("serve")
def org_serve(
    config: Annotated[
        Path | None, typer.Option(help="Contract 001's file; the sample organisation if left out.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port for HTTP; 0 takes a free one.")] = None,
    grpc_port: GrpcPort = None,
    data_dir: DataDir = None,
) -> None:
    """Serve an organisation as one agent, as a2a_config.json says: with the built-in kernel or by an Agent-Zero."""
    from parley.cli.orgserver import serve_organisation

    serve_organisation(config, host=host, port=port, grpc_port=grpc_port, data_dir=data_dir)


@keys_app.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="What the key's work is known by; unique.")],
    scope: Annotated[list[str] | None, typer.Option(help="read, send or admin; read and send if left out.")] = None,
    agent: Annotated[list[str] | None, typer.Option(help="Only this agent; may be repeated.")] = None,
    expires_days: Annotated[float | None, typer.Option(help="Refuse it after so many days.")] = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Make an API key. Its token is printed once."""
    from parley.cli.keys import run_create

    run_create(name, scope, agent, expires_days, data_dir, as_json=json)


@keys_app.command("list")
def keys_list(data_dir: DataDir = None, json: AsJson = False) -> None:
    """Show all API keys, and when each was used last."""
    from parley.cli.keys import run_list

    run_list(data_dir, as_json=json)


@keys_app.command("revoke")
def keys_revoke(
    key: Annotated[str, typer.Argument(help="The key's id or name.")], data_dir: DataDir = None, json: AsJson = False
) -> None:
    """Refuse an API key from now on; running servers know within two seconds."""
    from parley.cli.keys import run_revoke

    run_revoke(key, data_dir, as_json=json)


@push_app.command("list")
def push_list(
    dead: Annotated[bool, typer.Option("--dead", help="Only those that were given up.")] = False,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Show the push notification configurations of all tasks, and how each fares."""
    from parley.cli.pushes import run_list

    run_list(data_dir, dead=dead, as_json=json)


@push_app.command("redrive")
def push_redrive(
    id_: Annotated[str | None, typer.Argument(metavar="ID", help="A configuration's id, or its task's.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All that were given up.")] = False,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Deliver again what a receiver could not be told; running servers begin within a second."""
    from parley.cli.pushes import run_redrive

    raise typer.Exit(run_redrive(id_, data_dir, everything=all_, as_json=json))


@signing_app.command("rotate")
def signing_rotate(data_dir: DataDir = None, json: AsJson = False) -> None:
    """Sign with a new key; the old one stays published for a while."""
    from parley.cli.keys import run_rotate

    run_rotate(data_dir, as_json=json)


@signing_app.command("list")
def signing_list(data_dir: DataDir = None, json: AsJson = False) -> None:
    """Show the signing keys, newest first."""
    from parley.cli.keys import run_signing_list

    run_signing_list(data_dir, as_json=json)


@app.command()
def new(
    kind: Annotated[Kind, typer.Argument(help="What to begin: agent, node, adapter or org.")],
    name: Annotated[str, typer.Argument(help="How it is called; its slug is made of it.")],
    to: Annotated[Path | None, typer.Option(help="The folder to make; named like the slug if left out.")] = None,
    json: AsJson = False,
) -> None:
    """Make a folder to begin with: the code, a README, and a test that passes."""
    from parley.cli.making import run_new

    run_new(kind.value, name, to, as_json=json)


def main() -> None:
    try:
        app()
    except ConfigurationError as error:
        sys.exit(_complain(error, USAGE))
    except ParleyError as error:
        sys.exit(_complain(error, ERROR))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _complain(error: ParleyError, exit_code: int) -> int:
    typer.echo(f"parley: {error.message} [{error.code}]", err=True)
    if error.code == "unreachable":
        typer.echo("Is the server running? `parley up` starts one on this machine; --url names another.", err=True)
    return exit_code
