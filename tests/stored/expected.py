"""Render all that a server shows of a stored database, for comparison with what it showed when that was written.

`python -m tests.stored.expected` takes over what has been added since; it refuses where something is gone or changed.
"""

import asyncio
import gzip
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from parley.testing.databases import bare_database, postgres_server
from tests.stored.house import ACTIONS, THREAD, House, Json, Place
from tests.stored.packing import HERE, unpack

KINDS = ("sqlite", "postgres")
YEARS_S = 100 * 365 * 24 * 3600
VOLATILE = frozenset(("lastUsedAt", "last_seen_at", "lastSeenAt", "online", "executionTimeMs", "estimatedCompletionAt"))
"""Members that say something of the present, not of what is stored."""
_TAGS = re.compile(r"<(script|style|svg|template|head|nav|header|dialog)\b.*?</\1>|<[^>]+>", re.DOTALL)

_NEW_ID = re.compile(r"(messageId&#34;:&#34;)[0-9a-f-]{36}")

_SINCE = re.compile(r"\d+ (d|h)( \d+ (h|min))?")
"""The time for which a run has been waiting: hours at least."""


def file(kind: str) -> Path:
    return HERE / f"{kind}.json.gz"


def expected(kind: str) -> Json:
    return json.loads(gzip.decompress(file(kind).read_bytes()))


def write(kind: str, rendering: Json) -> None:
    text = json.dumps(rendering, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    file(kind).write_bytes(gzip.compress(text.encode(), mtime=0))


@asynccontextmanager
async def restored(kind: str, folder: Path, url: str = "") -> AsyncIterator[tuple[House, Json, Place]]:
    """A server on a copy of the stored database; some agents wait until the file `open` is there."""
    place = Place(folder, url)
    notes = await unpack(kind, place)
    # Leases of runtimes are soon taken for lost, so that nothing waits for their ends. A delegation is as old as the
    # database: it must not time out before it is read.
    env = {"PARLEY_EDGE_LEASE_S": "2", "PARLEY_DELEGATION_TIMEOUT_S": str(YEARS_S)}
    async with place.serving(notes["tokens"], **env) as house:
        yield house, notes, place


class Reader:
    def __init__(self, house: House, notes: Json, known: Json) -> None:
        self.house = house
        self._known = known
        self.notes = notes
        self._turns = asyncio.Semaphore(8)

    async def read(self) -> Json:
        runs = await self._runs()
        shown = await asyncio.gather(*map(self._run, runs))
        return {
            "runs": {run["id"]: one for run, one in zip(runs, shown, strict=True)},
            "control": await self._control(),
            "conversations": await self._conversations(runs),
            "nodes": await self._nodes(),
            "admin": await self._admin(),
        }

    async def _runs(self) -> list[Json]:
        """All that were stored; those that go on by themselves may have made others meanwhile."""
        found: list[Json] = []
        token = ""
        while True:
            page = await self.house.get(f"/admin/runs?pageSize=100&pageToken={token}")
            found += [run for run in page["runs"] if run["id"] in self.notes["stored"]]
            if not (token := page.get("nextPageToken", "")):
                return found

    async def _run(self, run: Json) -> Json:
        """By every face. Of a run that goes on by itself only what was there before."""
        async with self._turns:
            raw = await self._page(f"/console/runs/{run['id']}/raw")
            if version := self.notes["stored"][run["id"]]:
                ends = [number for number, line in enumerate(raw) if line == "hash"]
                return {"agent": run["agent"], "log": raw[: ends[version - 1] + 2]}
            return {"listed": run, "log": raw, **await self._shown(run["agent"], run["id"])}

    async def _shown(self, slug: str, id_: str) -> Json:
        house, hooks = self.house, f"/agents/{slug}/tasks/{id_}/pushNotificationConfigs"
        return {
            "1.0": await self._answer(house.ask("GET", f"/agents/{slug}/tasks/{id_}?historyLength=100")),
            "0.3": await self._rpc(slug, "tasks/get", {"id": id_, "historyLength": 100}, "0.3"),
            "stream": await self._stream(slug, id_),
            "actions": await self._acted(id_),
            "hooks": await self._answer(house.ask("GET", hooks, who="ann")),
            "console": await self._page(f"/console/runs/{id_}"),
        }

    async def _acted(self, id_: str) -> Json:
        """A task of the actions; without the state of an orchestration that goes on by itself."""
        answer = await self._answer(self.house.ask("GET", f"{ACTIONS}/tasks/{id_}"))
        result = answer["body"].get("result")
        made = result.get("orchestration") if isinstance(result, dict) else None
        if made and self.notes["stored"].get(made["id"]):
            result["orchestration"] = made["id"]
        return answer

    async def _rpc(self, slug: str, method: str, params: Json, version: str) -> Json:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await self.house.ask("POST", f"/agents/{slug}", body, headers={"A2A-Version": version})).json()

    async def _answer(self, asked: Any) -> Json:
        reply = await asked
        return {"status": reply.status_code, "body": reply.json()}

    async def _stream(self, slug: str, id_: str) -> list[str]:
        """Every event of a run that has ended or waits: until the last one that is known, or until nothing comes."""
        headers = {
            "Authorization": f"Bearer {self.house.tokens['admin']}",
            "A2A-Version": "1.0",
            "Last-Event-ID": "0",
            "Accept": "text/event-stream",
            "x-request-id": "always-this",
        }
        known = self._known.get("runs", {}).get(id_, {}).get("stream", [])
        body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": id_}}
        lines: list[str] = []
        async with self.house.http.stream("POST", f"/agents/{slug}", json=body, headers=headers) as reply:
            with suppress(TimeoutError):
                async with asyncio.timeout(10 if known else 1.5):
                    async for line in reply.aiter_lines():
                        if line.startswith(("id: ", "data: ", "{")):
                            lines.append(line)
                        if len(lines) > 1 and lines[-2:-1] == known[-2:-1]:
                            break
        return lines

    async def _page(self, path: str) -> list[str]:
        """Text of a page, without relative times and without the ids that it makes for new messages."""
        reply = await self.house.ask("GET", path)
        text = _NEW_ID.sub(r"\1NEW", _TAGS.sub("\n", reply.text))
        lines = (line.strip() for line in text.splitlines())
        return [str(reply.status_code), *(line for line in lines if line and not _SINCE.fullmatch(line))]

    async def _control(self) -> Json:
        found: Json = {}
        async with self.house.control() as control:
            for run in ("run-stored", "run-closed"):
                events = [event async for event in control.stream(run, THREAD, 0, 100)]
                found[run] = {"snapshot": await control.snapshot(run, THREAD), "events": events}
        return found

    async def _conversations(self, runs: list[Json]) -> Json:
        asked = {
            "conversation-of-documents": (
                "writer",
                ("converse", "read_conversation"),
                ("plan", "list"),
                ("build", "list"),
                ("plan", "read"),
                ("build", "read"),
            ),
            "conversation-of-tools": ("caller", ("tool", "list")),
            **{
                f"orchestration-{name}": (agent, ("orchestrate", "list"), ("orchestrate", "read"))
                for name, agent in (
                    ("checkpoint", "quick"),
                    ("finished", "quick"),
                    ("failed", "failing"),
                    ("canceled", "two"),
                )
            },
        }
        found: Json = {}
        for conversation, (agent, *actions) in asked.items():
            for mode, action in actions:
                answer = await self.house.did(conversation, mode, action, agent)
                found[f"{conversation} {mode}.{action}"] = answer["result"]
        for mode in ("plan", "build"):
            listed = found[f"conversation-of-documents {mode}.list"]
            for version in listed["versions"]:
                read = await self.house.did(
                    "conversation-of-documents", mode, "read", "writer", versionId=version["id"]
                )
                found[f"{mode} version {version['id']}"] = read["result"]
        for execution in found["conversation-of-tools tool.list"]["executions"]:
            read = await self.house.act("conversation-of-tools", "tool", "read", "caller", executionId=execution["id"])
            found[f"execution {execution['id']}"] = read.get("result") or read["error"]["code"]
        return found

    async def _nodes(self) -> Json:
        found: Json = {"workspaces": await self.house.get("/workspaces")}
        for name, node in self.notes["nodes"].items():
            for what in ("", "/hierarchy", "/tokens", "/activity", "/delegations"):
                path = f"/workspaces/{node['id']}{what}"
                found[f"{name}{what}"] = await self._answer(self.house.ask("GET", path))
        return found

    async def _admin(self) -> Json:
        paths = ("/admin/keys", "/admin/push", "/admin/deliveries", "/admin/agents", "/.well-known/jwks.json")
        return {path: await self.house.get(path) for path in paths}


def plain(value: Any, base: str) -> Any:
    """Without the server's own address and without what says something of the present."""
    if isinstance(value, dict):
        return {name: plain(one, base) for name, one in value.items() if name not in VOLATILE}
    if isinstance(value, list | tuple):
        return [plain(one, base) for one in value]
    return value.replace(base, "BASE") if isinstance(value, str) else value


async def rendered(house: House, notes: Json, known: Json) -> Json:
    """`known` is what is expected, if that is known."""
    return plain(await Reader(house, notes, known).read(), house.url)


@contextmanager
def starting(folder: Path) -> Iterator[str]:
    """A PostgreSQL in a folder, which the user that runs it may enter."""
    folder.chmod(0o755)
    with postgres_server(folder) as server:
        yield server


async def render(kind: str, known: Json) -> Json:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if kind == "sqlite":
            async with restored(kind, folder / "place") as (house, notes, _):
                return await rendered(house, notes, known)
        with starting(folder) as server:
            async with restored(kind, folder / "place", await bare_database(server)) as (house, notes, _):
                return await rendered(house, notes, known)


def missing(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Each place where something of before is gone, or has another value."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, one in before.items():
            if name not in after:
                yield f"{at}/{name} is gone"
            else:
                yield from missing(one, after[name], f"{at}/{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, one in enumerate(before):
            yield from missing(one, after[number], f"{at}/{number}")
    elif before != after:
        yield f"{at} was {str(before)[:200]!r} and is {str(after)[:200]!r}"


async def main() -> int:
    problems: list[str] = []
    for kind in KINDS:
        rendering = await render(kind, expected(kind))
        found = list(missing(expected(kind), rendering))
        problems += [f"{kind}{one}" for one in found]
        if not found:
            write(kind, rendering)
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
