"""Which tasks there are, and which of them wait for an answer."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from parley.cli.exits import OK
from parley.cli.options import DEFAULT_URL
from parley.cli.places import Place, Reached, reach
from parley.cli.wire import Json, member, members, said_in, state_of
from parley.client import Client, RemoteError, Unreachable
from parley.errors import ConfigurationError, Unsupported
from parley.security.replies import open_client

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


class Asked(Struct, frozen=True):
    state: str | None = None
    context: str | None = None
    since: str | None = None
    waiting: bool = False
    everybody: bool = False
    limit: int = 20
    after: str | None = None


class Row(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A task as it is listed, whatever it was read from."""

    id: str
    state: str
    status_at: str
    context_id: str
    agent: str = ""
    principal: str = ""
    said: str = ""


Page = tuple[list[Row], str]
Read = Callable[[str | None, int, str], Awaitable[Page]]
"""A page of the tasks in a state (or any), of a size, after a token."""


def run_runs(place: Place, asked: Asked, *, as_json: bool) -> int:
    if asked.waiting and (asked.state or asked.after):
        raise ConfigurationError("--waiting goes with neither --state nor --after.")
    since = since_time(asked.since, datetime.now(UTC)) if asked.since else None
    state = state_name(asked.state) if asked.state else None
    rows, following = asyncio.run(_rows(place, asked, state, since))
    if as_json:
        print(json.dumps({"runs": msgspec.to_builtins(rows), "next": following}, ensure_ascii=False, indent=2))
    else:
        _print(rows, following, place, asked)
    return OK


def since_time(text: str, now: datetime) -> str:
    """`90s`, `15m`, `1h30m`, `2d`, `1w` before now; or a time or a day in ISO 8601."""
    spans = _SPAN.findall(text)
    if spans and "".join(number + unit for number, unit in spans) == text:
        try:
            ago = sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in spans), timedelta())
            return _wire_time(now - ago)
        except OverflowError:
            raise ConfigurationError(f"--since {text} is too long ago.") from None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"--since is a time ago such as 1h30m or 2d, or a date; not {text!r}.") from None
    return _wire_time(at if at.tzinfo else at.astimezone())


def state_name(text: str) -> str:
    """As people, A2A 0.3 and A2A 1.0 write it."""
    name = text.lower().replace("-", "_").removeprefix("task_state_")
    name = {"input_needed": "input_required", "cancelled": "canceled"}.get(name, name)
    if name not in STATES:
        raise ConfigurationError(f"--state is one of {', '.join(one.replace('_', '-') for one in STATES)}.")
    return name


def ago(at: str, now: datetime) -> str:
    """How long ago, in one unit."""
    try:
        seconds = int((now - datetime.fromisoformat(at)).total_seconds())
    except (ValueError, TypeError):
        return at
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{max(seconds, 0)}s ago"


def shortened(text: str, width: int) -> str:
    """In one line; control characters do not reach the terminal."""
    line = "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


async def _rows(place: Place, asked: Asked, state: str | None, since: str | None) -> Page:
    reached = await reach(place)
    async with reached.client() as client:
        read = _all_reader(place, asked, since) if asked.everybody else _reader(client, reached, place, asked, since)
        if not asked.waiting:
            return await _collected(read, state, asked.limit, asked.after or "")
        found = [row for one in WAITING for row in (await _collected(read, one, asked.limit, ""))[0]]
        found.sort(key=lambda row: row.status_at, reverse=True)
        return found[: asked.limit], ""


async def _collected(read: Read, state: str | None, limit: int, token: str) -> Page:
    """Page by page, so that the last page ends where the next command goes on."""
    rows: list[Row] = []
    while True:
        page, token = await read(state, min(limit - len(rows), MAX_PAGE), token)
        rows += page
        if not token or not page or len(rows) >= limit:
            return rows, token


def _reader(client: Client, reached: Reached, place: Place, asked: Asked, since: str | None) -> Read:
    name = place.agent or ""

    async def read(state: str | None, size: int, token: str) -> Page:
        query = _given(
            status=f"TASK_STATE_{state.upper()}" if state else None, contextId=asked.context,
            statusTimestampAfter=since, pageSize=size, pageToken=token, historyLength=1,
        )  # fmt: skip
        try:
            page = await client.list(**query)
        except RemoteError as error:
            if error.rpc != _UNKNOWN_METHOD:
                raise
            raise Unsupported(f"{reached.address} cannot list tasks (ListTasks).") from None
        return [_row(task, name) for task in members(page.get("tasks"))], str(page.get("nextPageToken") or "")

    return read


def _all_reader(place: Place, asked: Asked, since: str | None) -> Read:
    if place.agent and "://" in place.agent:
        raise ConfigurationError("--all asks the Parley server at --url; name the agent by its slug.")
    url = place.url.rstrip("/") + "/admin/runs"
    headers = {"Authorization": f"Bearer {place.token}"} if place.token else {}

    async def read(state: str | None, size: int, token: str) -> Page:
        query = _given(
            agent=place.agent, state=state, contextId=asked.context, since=since, pageSize=size, pageToken=token
        )
        try:
            async with open_client(timeout=30.0) as http:
                reply = await http.get(url, params=query, headers=headers)
            page = msgspec.json.decode(reply.content, type=Json)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Unreachable(f"{url} does not answer ({type(error).__name__}).") from None
        except msgspec.MsgspecError:
            raise Unsupported(f"{place.url} is no Parley server: --all works with Parley alone.") from None
        if reply.is_success and "runs" in page:
            return [msgspec.convert(one, Row) for one in page["runs"]], str(page.get("nextPageToken") or "")
        if reply.status_code == 404 or "error" not in page:
            raise Unsupported(f"{place.url} is no Parley server: --all works with Parley alone.")
        raise RemoteError(page["error"])

    return read


def _row(task: Json, agent: str) -> Row:
    said = said_in(task)
    words = "".join(str(part.get("text", "")) for part in members(said[-1].get("parts"))) if said else ""
    owner = member(task.get("metadata")).get(AGENT) or agent
    at = str(member(task.get("status")).get("timestamp", ""))
    return Row(str(task["id"]), state_of(task), at, str(task.get("contextId", "")), str(owner), said=words[:500])


def _given(**query: object) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value not in (None, "")}


def _print(rows: list[Row], following: str, place: Place, asked: Asked) -> None:
    console = Console(highlight=False)
    if not rows:
        console.print("nothing waits" if asked.waiting else "no tasks")
        return
    for number, line in enumerate(lines(rows, asked.waiting, console.width, datetime.now(UTC))):
        console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
    notes = Console(stderr=True, highlight=False)
    if asked.waiting:
        notes.print(f"Answer: parley answer ID 'your answer'{place.options(DEFAULT_URL)}", style="dim", soft_wrap=True)
    if following:
        notes.print(f"More: the same with --after {following}", style="dim", soft_wrap=True)


def lines(rows: list[Row], waiting: bool, width: int, now: datetime) -> list[str]:
    """A table in which only what was said is cut to fit: ids are there to be copied."""
    whose = any(row.principal for row in rows)
    table = [["id", "agent", *(["whose"] if whose else []), "state", "when"]]
    for row in rows:
        owner = [shortened(row.principal, 30)] if whose else []
        state, when = row.state.replace("_", "-"), ago(row.status_at, now)
        table.append([shortened(row.id, 128), shortened(row.agent, 40), *owner, state, when])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = max(width - sum(widths) - 2 * len(widths), MIN_SAID)
    said = ["question" if waiting else "last said", *(shortened(row.said, room) for row in rows)]
    return [
        "  ".join([*(cell.ljust(size) for cell, size in zip(cells, widths, strict=True)), words]).rstrip()
        for cells, words in zip(table, said, strict=True)
    ]


def _wire_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
