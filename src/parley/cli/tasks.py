"""The commands that speak to agents: here, or at anybody's A2A address."""

from pathlib import Path
from typing import Annotated

import typer

from parley.cli.completing import agents
from parley.cli.options import DEFAULT_URL, AgentArgument, AgentOption, AsJson, Files, RunArgument, Token, Url, Wait

app = typer.Typer()


@app.command()
def send(
    agent: AgentArgument,
    text: Annotated[str | None, typer.Argument(help="What to say; - is standard input.")] = None,
    file: Files = None,
    data: Annotated[str | None, typer.Option(help="Send this JSON too.")] = None,
    context: Annotated[str | None, typer.Option(help="The conversation it belongs to.")] = None,
    task: Annotated[str | None, typer.Option(help="Answer this task instead of starting one.")] = None,
    stream: Annotated[bool, typer.Option(help="Show what happens as it happens.")] = True,
    wait: Wait = True,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Ask an agent."""
    from parley.cli.contents import parts
    from parley.cli.places import Place
    from parley.cli.talk import run_send

    content = parts(text, file or (), data)
    place = Place(agent, url, token)
    raise typer.Exit(
        run_send(place, content, task=task, context=context, stream=stream, wait=wait, as_json=json)
    )  # fmt: skip


@app.command()
def answer(
    run: RunArgument,
    text: Annotated[str | None, typer.Argument(help="What to say; - is standard input.")] = None,
    file: Files = None,
    data: Annotated[str | None, typer.Option(help="Send this JSON too.")] = None,
    wait: Wait = True,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Answer the question of a task, and show what happens then."""
    from parley.cli.contents import parts
    from parley.cli.places import Place
    from parley.cli.talk import run_send

    content = parts(text, file or (), data)
    raise typer.Exit(run_send(Place(agent, url, token), content, task=run, wait=wait, as_json=json))


@app.command()
def runs(
    agent: Annotated[
        str | None, typer.Option(help="Only this agent's: its slug, or any A2A address.", autocompletion=agents)
    ] = None,
    state: Annotated[str | None, typer.Option(help="Only in this state, such as working or failed.")] = None,
    context: Annotated[str | None, typer.Option(help="Only of this conversation.")] = None,
    since: Annotated[str | None, typer.Option(help="Only what changed since: 90s, 15m, 1h30m, 2d, or a date.")] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only those that wait for an answer.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 20,
    after: Annotated[str | None, typer.Option(help="Go on where the last page ended.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Everybody's, for administrators of a Parley.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """List your tasks, latest first."""
    from parley.cli.listing import Asked, run_runs
    from parley.cli.places import Place

    asked = Asked(state, context, since, waiting, everybody, limit, after)
    raise typer.Exit(run_runs(Place(agent, url, token), asked, as_json=json))


@app.command()
def show(
    run: RunArgument,
    save: Annotated[Path | None, typer.Option(help="Write the artifacts into this folder.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Show a task: who said what, and what was made."""
    from parley.cli.places import Place
    from parley.cli.showing import run_show

    raise typer.Exit(run_show(Place(agent, url, token), run, save, force=force, as_json=json))


@app.command()
def tail(
    run: RunArgument,
    after: Annotated[int | None, typer.Option("--from", min=0, help="Only what came after this event.")] = None,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Follow a task until it ends, through broken connections and restarts."""
    from parley.cli.places import Place
    from parley.cli.talk import run_tail

    raise typer.Exit(run_tail(Place(agent, url, token), run, after, as_json=json))


@app.command()
def cancel(
    run: RunArgument,
    reason: Annotated[str | None, typer.Option(help="Why; the agent's log keeps it.")] = None,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Stop a task."""
    from parley.cli.places import Place
    from parley.cli.talk import run_cancel

    raise typer.Exit(run_cancel(Place(agent, url, token), run, reason, as_json=json))


@app.command()
def fork(
    run: RunArgument,
    text: Annotated[str | None, typer.Argument(help="A new input; without it the last turn is done again.")] = None,
    at: Annotated[int | None, typer.Option(min=1, help="The last event to copy; the task's last if left out.")] = None,
    file: Files = None,
    data: Annotated[str | None, typer.Option(help="Send this JSON too.")] = None,
    wait: Wait = True,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Begin a new task as a copy of one up to an event, and go on from there."""
    from parley.cli.contents import parts
    from parley.cli.places import Place
    from parley.cli.talk import run_fork

    content = parts(text, file or (), data) if text is not None or file or data else None
    raise typer.Exit(run_fork(Place(agent, url, token), run, at, content, wait=wait, as_json=json))
