"""Reads the final state: logs from the database, versions, notifications, marks."""

from pathlib import Path

from dev.chaos.checking import Log
from dev.chaos.clients import MODES, Crowd
from dev.chaos.history import Mark, Post, Version
from dev.chaos.world import Logs, Place
from parley.runs.log import all_runs
from parley.runs.rules.state import TERMINAL, State
from parley.runs.store import Readable
from parley.runs.streams import read_all


async def logs_of(store: Readable) -> dict[str, Log]:
    found: dict[str, Log] = {}
    async for run in all_runs(store):
        head = await store.head(run)
        assert head is not None
        found[run] = Log(head.run, head.hash, await read_all(store, run))
    return found


async def unfinished(store: Logs) -> list[tuple[str, str, State]]:
    """Every run that has not ended: its agent, its id, its state."""
    states = [state for state in State if state not in TERMINAL]
    return [(run.agent, run.id, state) for state in states for run in await store.runs_in(state)]


async def versions_of(crowd: Crowd) -> list[Version]:
    line, found = crowd.clients[0].line, list[Version]()
    for conversation in crowd.plans:
        offset, more = 0, True
        while more:
            body = {"mode": "plan", "action": "list", "agentSlug": "writer", "limit": 200, "offset": offset}
            answer = await line.ask("list", f"{MODES}/{conversation}/tasks", body)
            assert answer is not None
            page = answer.body["result"]
            offset, more = offset + len(page["versions"]), page["hasMore"]
            found += [
                Version(conversation, one["id"], one["versionNumber"], one["contentPreview"], one["isCurrent"])
                for one in page["versions"]
            ]
    return found


def posts_of(world: Place) -> list[Post]:
    found: list[Post] = []
    for receiver in world.receivers:
        taken = {id(post) for post in receiver.taken}
        found += [
            Post(receiver.url(post.path), post.seq, post.json, id(post) in taken) for post in receiver.posts
        ]  # fmt: skip
    return found


def marks_of(file: Path) -> list[Mark]:
    if not file.exists():
        return []
    fields = (line.split() for line in file.read_text().splitlines())
    return [Mark(int(pid), visit, what, float(at)) for pid, visit, what, at in fields]
