"""List tasks, or only the tasks that wait for an answer, and add up their usage."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from parley.cli.addresses import (
    AgentAddress,
    ResolvedAddress,
    ask_server,
    member,
    members,
    messages_of,
    resolve,
    state_of,
)
from parley.cli.options import DEFAULT_URL, OK
from parley.client import Client, Json, RemoteError
from parley.errors import ConfigurationError, Unsupported
from parley.runs.rules.usage import ModelTotals, merged, shown, total

STATES = (
    "submitted", "working", "input_required", "auth_required", "completed", "failed", "canceled", "rejected",
)  # fmt: skip
WAITING = ("input_required", "auth_required")
AGENT = "urn:parley:agent"
MAX_PAGE = 100
MIN_SAID = 20
_UNKNOWN_METHOD = -32601
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"(\d+)([smhdw])")


class RunFilter(Struct, frozen=True):
    state: str | None = None
    context: str | None = None
    since: str | None = None
    waiting: bool = False
    all_callers: bool = False
    limit: int = 20
    after: str | None = None


class RunRow(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A task in the list, from `ListTasks` or from the admin API."""

    id: str
    state: str
    status_at: str
    context_id: str
    agent: str = ""
    principal: str = ""
    said: str = ""


Page = tuple[list[RunRow], str]
Read = Callable[[str | None, int, str], Awaitable[Page]]
"""Read a page of tasks: those in a state (or in any), at most a number of them, after a page token."""


def run_runs(place: AgentAddress, asked: RunFilter, *, as_json: bool) -> int:
    if asked.waiting and (asked.state or asked.after):
        raise ConfigurationError("--waiting cannot be combined with --state or --after.")
    since = since_time(asked.since, datetime.now(UTC)) if asked.since else None
    state = state_name(asked.state) if asked.state else None
    rows, following = asyncio.run(_rows(place, asked, state, since))
    if as_json:
        print(json.dumps({"runs": msgspec.to_builtins(rows), "next": following}, ensure_ascii=False, indent=2))
    else:
        _print(rows, following, place, asked)
    return OK


def since_time(text: str, now: datetime, option: str = "--since") -> str:
    """Parse the time of an option: `90s`, `15m`, `1h30m`, `2d` or `1w` before now, or a time or date in ISO 8601."""
    spans = _SPAN.findall(text)
    if spans and "".join(number + unit for number, unit in spans) == text:
        try:
            ago = sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in spans), timedelta())
            return _wire_time(now - ago)
        except OverflowError:
            raise ConfigurationError(f"{option} {text} is too long ago.") from None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{option} must be a duration such as 1h30m or 2d, or a date; not {text!r}.") from None
    return _wire_time(at if at.tzinfo else at.astimezone())


def state_name(text: str) -> str:
    """Parse a state in the spelling of people, A2A 0.3 or A2A 1.0."""
    name = text.lower().replace("-", "_").removeprefix("task_state_")
    name = {"input_needed": "input_required", "cancelled": "canceled"}.get(name, name)
    if name not in STATES:
        raise ConfigurationError(f"--state must be one of {', '.join(one.replace('_', '-') for one in STATES)}.")
    return name


def ago(at: str, now: datetime) -> str:
    """Time since `at`, in one unit."""
    try:
        seconds = int((now - datetime.fromisoformat(at)).total_seconds())
    except (ValueError, TypeError):
        return at
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{max(seconds, 0)}s ago"


def shortened(text: str, width: int) -> str:
    """The text as one line of at most `width` characters, without control characters."""
    line = "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


async def _rows(place: AgentAddress, asked: RunFilter, state: str | None, since: str | None) -> Page:
    resolved = await resolve(place)
    async with resolved.client() as client:
        read = _all_reader(place, asked, since) if asked.all_callers else _reader(client, resolved, place, asked, since)
        if not asked.waiting:
            return await _collect(read, state, asked.limit, asked.after or "")
        found = [row for one in WAITING for row in (await _collect(read, one, asked.limit, ""))[0]]
        found.sort(key=lambda row: row.status_at, reverse=True)
        return found[: asked.limit], ""


async def _collect(read: Read, state: str | None, limit: int, token: str) -> Page:
    """Read page by page, so that the returned token continues exactly after the last row."""
    rows: list[RunRow] = []
    while True:
        page, token = await read(state, min(limit - len(rows), MAX_PAGE), token)
        rows += page
        if not token or not page or len(rows) >= limit:
            return rows, token


def _reader(
    client: Client, resolved: ResolvedAddress, place: AgentAddress, asked: RunFilter, since: str | None
) -> Read:
    name = place.agent or ""

    async def read(state: str | None, size: int, token: str) -> Page:
        query = _query(
            status=f"TASK_STATE_{state.upper()}" if state else None,
            contextId=asked.context,
            statusTimestampAfter=since,
            pageSize=size,
            pageToken=token,
            historyLength=1,
        )
        try:
            page = await client.list(**query)
        except RemoteError as error:
            if error.rpc != _UNKNOWN_METHOD:
                raise
            raise Unsupported(f"{resolved.address} cannot list tasks (ListTasks).") from None
        return [_row(task, name) for task in members(page.get("tasks"))], str(page.get("nextPageToken") or "")

    return read


def _all_reader(place: AgentAddress, asked: RunFilter, since: str | None) -> Read:
    if place.agent and "://" in place.agent:
        raise ConfigurationError("--all asks the Parley server at --url. Name the agent by its slug.")
    url = place.url.rstrip("/") + "/admin/runs"

    async def read(state: str | None, size: int, token: str) -> Page:
        query = _query(
            agent=place.agent, state=state, contextId=asked.context, since=since, pageSize=size, pageToken=token
        )
        answer = await ask_server("GET", url, place.token, name=url, query=query)
        page = answer.read(Json) or {}
        if answer.ok and "runs" in page:
            return [msgspec.convert(one, RunRow) for one in page["runs"]], str(page.get("nextPageToken") or "")
        if answer.status == 404 or answer.error is None:
            raise Unsupported(f"{place.url} is not a Parley server; --all works only with Parley.")
        raise RemoteError(answer.error, answer.status)

    return read


def _row(task: Json, agent: str) -> RunRow:
    said = messages_of(task)
    words = "".join(str(part.get("text", "")) for part in members(said[-1].get("parts"))) if said else ""
    owner = member(task.get("metadata")).get(AGENT) or agent
    at = str(member(task.get("status")).get("timestamp", ""))
    return RunRow(str(task["id"]), state_of(task), at, str(task.get("contextId", "")), str(owner), said=words[:500])


def _query(**query: object) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value not in (None, "")}


def _print(rows: list[RunRow], following: str, place: AgentAddress, asked: RunFilter) -> None:
    console = Console(highlight=False)
    if not rows:
        console.print("No tasks wait for an answer." if asked.waiting else "No tasks found.")
        return
    for number, line in enumerate(lines(rows, asked.waiting, console.width, datetime.now(UTC))):
        console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
    notes = Console(stderr=True, highlight=False)
    if asked.waiting:
        notes.print(f"Answer: parley answer ID 'your answer'{place.options(DEFAULT_URL)}", style="dim", soft_wrap=True)
    if following:
        notes.print(f"More: repeat the command with --after {following}", style="dim", soft_wrap=True)


def lines(rows: list[RunRow], waiting: bool, width: int, now: datetime) -> list[str]:
    """The table. Only the last message is cut to fit the width: ids must stay complete to be copied."""
    whose = any(row.principal for row in rows)
    table = [["id", "agent", *(["caller"] if whose else []), "state", "when"]]
    for row in rows:
        owner = [shortened(row.principal, 30)] if whose else []
        state, when = row.state.replace("_", "-"), ago(row.status_at, now)
        table.append([shortened(row.id, 128), shortened(row.agent, 40), *owner, state, when])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = max(width - sum(widths) - 2 * len(widths), MIN_SAID)
    said = ["question" if waiting else "last message", *(shortened(row.said, room) for row in rows)]
    return [
        "  ".join([*(cell.ljust(size) for cell, size in zip(cells, widths, strict=True)), words]).rstrip()
        for cells, words in zip(table, said, strict=True)
    ]


def _wire_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Tokens and cost of tasks, for administrators.

MOST_MODELS = 1000


class UsageFilter(Struct, frozen=True):
    principal: str | None = None
    context: str | None = None
    task: str | None = None
    since: str | None = None
    until: str | None = None


class _UsagePage(Struct, frozen=True, rename="camel"):
    runs: int
    usage: Any
    complete: bool = True
    next_page_token: str = ""


class _Totals(Struct, frozen=True, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None


class _UsageSum(NamedTuple):
    totals: dict[str, ModelTotals]
    runs: int
    complete: bool


def run_usage(url: str, token: str | None, asked: UsageFilter, *, as_json: bool) -> int:
    now = datetime.now(UTC)
    query = _query(
        principal=asked.principal,
        conversation=asked.context,
        task=asked.task,
        since=since_time(asked.since, now) if asked.since else None,
        until=since_time(asked.until, now, "--until") if asked.until else None,
    )
    found = asyncio.run(_added_up(url, token, query))
    if as_json:
        print(json.dumps({"runs": found.runs, "complete": found.complete, "usage": shown(found.totals)}, indent=2))
    else:
        _print_usage(found)
    return OK


async def _added_up(url: str, token: str | None, query: dict[str, Any]) -> _UsageSum:
    """Add up all pages: the server adds up a limited number of tasks per request."""
    totals: dict[str, ModelTotals] = {}
    runs, place = 0, ""
    while True:
        page = await _usage_page(url, token, {**query, "pageToken": place} if place else query)
        models = msgspec.convert(page.usage["models"], dict[str, _Totals])
        more = {name: ModelTotals(*msgspec.structs.astuple(one)) for name, one in models.items()}
        totals, runs = merged(totals, more, MOST_MODELS), runs + page.runs
        place = page.next_page_token
        if not place:
            return _UsageSum(totals, runs, page.complete)


async def _usage_page(url: str, token: str | None, query: dict[str, Any]) -> _UsagePage:
    address = f"{url.rstrip('/')}/admin/usage"
    answer = await ask_server("GET", address, token, name=url, query=query)
    body = answer.read(Json)
    if answer.ok and body is not None and "usage" in body:
        return msgspec.convert(body, _UsagePage)
    if body is None or answer.error is None:
        raise Unsupported(f"{url} is not a Parley server with usage reports.")
    raise RemoteError(answer.error, answer.status)


def _print_usage(found: _UsageSum) -> None:
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("input", "cached", "output", "cost")]
    table = Table("model", *numbers, box=None, header_style="bold")
    for model, one in sorted(found.totals.items()):
        table.add_row(Text(model), *_cells(one))
    if len(found.totals) > 1:
        table.add_row("total", *_cells(total(found.totals)))
    Console(highlight=False).print(table if found.totals else "No usage recorded.")
    tasks = "task" if found.runs == 1 else "tasks"
    note = "" if found.complete else "; there are more tasks than a report adds up"
    Console(stderr=True, highlight=False).print(f"{found.runs:,} {tasks}{note}", style="dim")


def _cells(one: ModelTotals) -> list[str]:
    cost = "-" if one.cost is None else f"${one.cost:,.4f}"
    return [f"{one.input_tokens:,}", f"{one.cached_tokens:,}", f"{one.output_tokens:,}", cost]
