"""Commands for limits and for the kill switch, at --url: what holds and what is left, set, remove, stop, allow."""

import json
from typing import Annotated, Any, cast
from urllib.parse import quote

import typer

from parley.cli.options import DEFAULT_URL, AsJson, Token, Url

app = typer.Typer(help="Show and set limits and budgets, and stop all work of a subject.", no_args_is_help=True)

Subject = Annotated[str, typer.Argument(help="`principal:NAME`, `group:NAME`, `agent:SLUG` or `key:NAME`; * for each.")]
Stopped = Annotated[str, typer.Argument(help="`principal:NAME`, `group:NAME` or `agent:SLUG`.")]
Amount = Annotated[int | None, typer.Option(min=0)]
Money = Annotated[float | None, typer.Option(min=0, help="In USD.")]


@app.command("list")
def list_limits(
    task: Annotated[str | None, typer.Option(help="Show what this task and those that it started have spent.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Show your limits and what is left of them; to operators, those of all subjects."""
    found = _asked("GET", url, token, "limits", query={"task": task} if task else None)
    if json:
        return _print_json(found)
    return _print_budgets(found) if task else _print_limits(found)


@app.command("set")
def set_limits(
    subject: Subject,
    per_second: Annotated[float | None, typer.Option(help="Messages per second, on average.")] = None,
    burst: Annotated[int | None, typer.Option(min=1, help="Messages at once.")] = None,
    unfinished: Amount = None,
    tokens_day: Amount = None,
    tokens_month: Amount = None,
    cost_day: Money = None,
    cost_month: Money = None,
    tree_tokens: Amount = None,
    tree_cost: Money = None,
    tree_depth: Amount = None,
    tree_runs: Amount = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Set the limits of a subject, in place of those that were set before."""
    given = {
        "perSecond": per_second, "burst": burst, "unfinished": unfinished, "tokensDay": tokens_day,
        "tokensMonth": tokens_month, "costDay": cost_day, "costMonth": cost_month, "treeTokens": tree_tokens,
        "treeCost": tree_cost, "treeDepth": tree_depth, "treeRuns": tree_runs,
    }  # fmt: skip
    body = {name: value for name, value in given.items() if value is not None}
    found = _asked("PUT", url, token, f"limits/{_place(subject)}", body=body)
    _print_json(found) if json else print(f"limits of {subject} are set; every server knows them within 2 s")


@app.command("remove")
def remove_limits(subject: Subject, url: Url = DEFAULT_URL, token: Token = None, json: AsJson = False) -> None:
    """Remove the limits of a subject. Those of the settings stay."""
    found = _asked("DELETE", url, token, f"limits/{_place(subject)}")
    _print_json(found) if json else print(f"limits of {subject} are removed")


@app.command("stops")
def list_stops(url: Url = DEFAULT_URL, token: Token = None, json: AsJson = False) -> None:
    """List the subjects whose work is stopped."""
    found = _asked("GET", url, token, "stops")
    if json:
        return _print_json(found)
    stops = cast(list[dict[str, Any]], found["stops"])
    rows = [(f"{one['kind']}:{one['name']}", one["at"], one["by"], one["reason"]) for one in stops]
    return _print_table(("subject", "since", "by", "reason"), rows, "Nothing is stopped.")


@app.command("stop")
def stop_work(
    subject: Stopped,
    reason: Annotated[str, typer.Option(help="Shown to operators and in the canceled tasks.")] = "",
    url: Url = DEFAULT_URL,
    token: Token = None,
    json: AsJson = False,
) -> None:
    """Cancel all unfinished tasks of a subject, and refuse new ones until `allow`."""
    kind, _, name = subject.partition(":")
    found = _asked("POST", url, token, "stops", body={"kind": kind, "name": name, "reason": reason})
    _print_json(found) if json else print(f"work of {subject} is stopped; {found['canceled']} tasks are canceled")


@app.command("allow")
def allow_work(subject: Stopped, url: Url = DEFAULT_URL, token: Token = None, json: AsJson = False) -> None:
    """Accept new work of a stopped subject again."""
    found = _asked("DELETE", url, token, f"stops/{_place(subject)}")
    _print_json(found) if json else print(f"work of {subject} is accepted again")


def _place(subject: str) -> str:
    kind, _, name = subject.partition(":")
    return f"{quote(kind, safe='')}/{quote(name, safe='')}"


def _asked(
    method: str,
    url: str,
    token: str | None,
    what: str,
    query: dict[str, str | int] | None = None,
    body: object = None,
) -> dict[str, Any]:
    import asyncio

    from parley.cli.addresses import ask_server
    from parley.client import RemoteError
    from parley.errors import Unsupported

    address = f"{url.rstrip('/')}/admin/{what}"
    answer = asyncio.run(ask_server(method, address, token, name=url, query=query, body=body))
    found = answer.read(dict[str, Any])
    if found is None:
        raise Unsupported(f"{url} is not a Parley server.")
    if not answer.ok:
        raise RemoteError(answer.error or {}, answer.status)
    return found


def _print_json(found: dict[str, Any]) -> None:
    print(json.dumps(found))


def _print_limits(found: dict[str, Any]) -> None:
    rows: list[tuple[str, str, str, str]] = []
    for one in cast(list[dict[str, Any]], found["limits"]):
        left = {budget["limit"]: budget for budget in one["budgets"]}
        for name, value in one["limits"].items():
            budget = left.get(_snake(name))
            rest = "-" if budget is None else f"{budget['left']:,}"
            rows.append((f"{one['kind']}:{one['name']}", _snake(name), f"{value:,}", rest))
    _print_table(("subject", "limit", "allowed", "left"), rows, "No limits.")


def _print_budgets(found: dict[str, Any]) -> None:
    spent = found["spent"]
    print(f"task {found['root']}: {spent['tokens']:,} tokens, {spent['cost']:g} USD")
    rows = [(one["limit"], f"{one['allowed']:,}", f"{one['left']:,}") for one in found["budgets"]]
    _print_table(("limit", "allowed", "left"), rows, "No budgets hold for this task.")


def _snake(name: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name)


def _print_table(columns: tuple[str, ...], rows: list[Any], nothing: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, header_style="bold")
    for row in rows:
        table.add_row(*map(str, row))
    Console(highlight=False).print(table if rows else nothing)
