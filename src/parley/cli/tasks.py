"""Commands that talk to agents, at --url or at any A2A address."""

from pathlib import Path
from typing import Annotated

import typer

from parley.cli.options import (
    DEFAULT_URL,
    AgentArgument,
    AgentOption,
    AsJson,
    Files,
    RunArgument,
    Token,
    Url,
    Wait,
    agents,
)

app = typer.Typer()


@app.command()
def send(
    agent: AgentArgument,
    text: Annotated[str | None, typer.Argument(help="The text to send; - reads standard input.")] = None,
    file: Files = None,
    data: Annotated[str | None, typer.Option(help="Attach this JSON.")] = None,
    context: Annotated[str | None, typer.Option(help="The id of the conversation to continue.")] = None,
    task: Annotated[str | None, typer.Option(help="Answer this task instead of starting a new one.")] = None,
    stream: Annotated[bool, typer.Option(help="Show progress while the agent works.")] = True,
    wait: Wait = True,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Send a message to an agent."""
    from parley.cli.addresses import AgentAddress
    from parley.cli.chat import parts, run_send

    content = parts(text, file or (), data)
    place = AgentAddress(agent, url, token)
    raise typer.Exit(run_send(place, content, task=task, context=context, stream=stream, wait=wait, as_json=json))


@app.command()
def answer(
    run: RunArgument,
    text: Annotated[str | None, typer.Argument(help="The text to send; - reads standard input.")] = None,
    file: Files = None,
    data: Annotated[str | None, typer.Option(help="Attach this JSON.")] = None,
    wait: Wait = True,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Answer a task's question, then show its progress. On a terminal, a command without an answer asks for it."""
    from parley.cli.addresses import AgentAddress
    from parley.cli.chat import parts, run_answer, run_send
    from parley.cli.questions import can_prompt

    place = AgentAddress(agent, url, token)
    if text is None and not file and data is None and wait and not json and can_prompt():
        raise typer.Exit(run_answer(place, run))
    raise typer.Exit(run_send(place, parts(text, file or (), data), task=run, wait=wait, as_json=json))


@app.command()
def runs(
    agent: Annotated[
        str | None, typer.Option(help="Only tasks of this agent: its slug, or any A2A address.", autocompletion=agents)
    ] = None,
    state: Annotated[str | None, typer.Option(help="Only tasks in this state, such as working or failed.")] = None,
    context: Annotated[str | None, typer.Option(help="Only tasks of this conversation.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only tasks changed since: 90s, 15m, 1h30m, 2d ago, or a date.")
    ] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only tasks that wait for an answer.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of tasks.")] = 20,
    after: Annotated[str | None, typer.Option(help="Continue after this page token.")] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="Tasks of all callers; needs the admin scope of a Parley server.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """List your tasks, latest first."""
    from parley.cli.addresses import AgentAddress
    from parley.cli.runs import RunFilter, run_runs

    asked = RunFilter(state, context, since, waiting, everybody, limit, after)
    raise typer.Exit(run_runs(AgentAddress(agent, url, token), asked, as_json=json))


@app.command()
def usage(
    principal: Annotated[
        str | None, typer.Option(help="Only tasks of this principal, such as service:ann or user:42.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Only tasks of this conversation.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task and the tasks that it started.")] = None,
    since: Annotated[str | None, typer.Option(help="Only tasks created since: 90s, 1h30m, 2d ago, or a date.")] = None,
    until: Annotated[str | None, typer.Option(help="Only tasks created before: as --since.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Add up tokens and cost of tasks, for administrators."""
    from parley.cli.runs import UsageFilter, run_usage

    raise typer.Exit(run_usage(url, token, UsageFilter(principal, context, task, since, until), as_json=json))


@app.command()
def show(
    run: RunArgument,
    save: Annotated[Path | None, typer.Option(help="Save the artifacts in this folder.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Show a task: its messages and artifacts."""
    from parley.cli.addresses import AgentAddress
    from parley.cli.rendering import run_show

    raise typer.Exit(run_show(AgentAddress(agent, url, token), run, save, force=force, as_json=json))


@app.command()
def tail(
    run: RunArgument,
    after: Annotated[
        int | None, typer.Option("--from", min=0, help="Only events after this number; 0 shows all.")
    ] = None,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Follow a task until it ends; reconnects after broken connections and restarts."""
    from parley.cli.addresses import AgentAddress
    from parley.cli.chat import run_tail

    raise typer.Exit(run_tail(AgentAddress(agent, url, token), run, after, as_json=json))


@app.command()
def cancel(
    run: RunArgument,
    reason: Annotated[str | None, typer.Option(help="The reason, recorded in the task's log.")] = None,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Cancel a task."""
    from parley.cli.addresses import AgentAddress
    from parley.cli.chat import run_cancel

    raise typer.Exit(run_cancel(AgentAddress(agent, url, token), run, reason, as_json=json))


@app.command()
def fork(
    run: RunArgument,
    text: Annotated[str | None, typer.Argument(help="A new input. Default: repeat the last turn.")] = None,
    at: Annotated[
        int | None, typer.Option(min=1, help="The last event to copy. Default: the task's last event.")
    ] = None,
    file: Files = None,
    data: Annotated[str | None, typer.Option(help="Attach this JSON.")] = None,
    wait: Wait = True,
    agent: AgentOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Start a new task as a copy of another up to one event, and continue from there."""
    from parley.cli.addresses import AgentAddress
    from parley.cli.chat import parts, run_fork

    content = parts(text, file or (), data) if text is not None or file or data else None
    raise typer.Exit(run_fork(AgentAddress(agent, url, token), run, at, content, wait=wait, as_json=json))
