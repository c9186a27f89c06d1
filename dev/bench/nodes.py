"""Ten thousand nodes that send heartbeats: none is wrongly offline, and discovery stays fast."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.bench import peers
from dev.bench.data import scratch
from dev.bench.rows import Case
from dev.bench.servers import ECHO, HERE, PARLEY
from parley.clock import now_ms
from parley.ids import new_id
from parley.nodes.rules import Heartbeat, NodeChange, NodeEventKind, NodeStatus, RegisteredNode
from parley.nodes.store import EventQuery
from parley.nodes.tokens import new_token
from parley.stores.nodes import SqliteNodes
from parley.stores.sqlite import FILE

NODES = 10_000
TEAM = 100
SECONDS = 100.0
"""Silence counts from a minute after the start, so it takes this long to show that no node is wrongly offline."""
BARE_SECONDS = 20.0
CARD = b'{"name":"Node","description":"One of many.","skills":[],"version":"1.0.0"}'

Figures = dict[str, Any]


def cases() -> list[Case]:
    return [
        Case("nodes.discover", "ms", lambda: ours()["p99_ms"], "a bare handler", lambda: bare()["p99_ms"], "max", 5.0,
             note=lambda _: f"p99 beside the heartbeats of {NODES:,} nodes, with a burst; none wrongly offline"),
    ]  # fmt: skip


def ours() -> Figures:
    with scratch() as directory:
        known = asyncio.run(filled(directory / FILE))
        (directory / "nodes.json").write_text(json.dumps(known))
        with peers.start(PARLEY, "serve", ECHO, "--data-dir", str(directory)) as url:
            figures = loaded(url, directory / "nodes.json", SECONDS)
        offline = asyncio.run(gone_offline(directory / FILE))
    if offline:
        raise RuntimeError(f"{offline} nodes went offline while they were sending heartbeats")
    return figures


def bare() -> Figures:
    with scratch() as directory:
        known = [{"id": new_id(), "token": "x" * 43, "peer": new_id()} for _ in range(NODES)]
        (directory / "nodes.json").write_text(json.dumps(known))
        with peers.start(sys.executable, HERE / "peers" / "beat_server.py") as url:
            return loaded(url, directory / "nodes.json", BARE_SECONDS)


def loaded(url: str, nodes: Path, seconds: float) -> Figures:
    command = [
        sys.executable,
        str(HERE / "node_load.py"),
        "--url",
        url,
        "--nodes",
        str(nodes),
        "--seconds",
        str(seconds),
    ]
    finished = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=seconds + 60)
    figures: Figures = json.loads(finished.stdout)
    if figures["errors"] or not figures["count"]:
        raise RuntimeError(f"{figures['errors']} errors: {figures['first_error']}")
    return figures


async def filled(path: Path) -> list[dict[str, str]]:
    """Teams below roots, all of them registered."""
    store, now = SqliteNodes(path), now_ms()
    known: list[dict[str, str]] = []
    for _ in range(NODES // TEAM):
        ids = [new_id() for _ in range(TEAM)]
        tokens = [new_token(now) for _ in ids]
        members = [
            RegisteredNode(
                 id_, f"Node {number}", parent_id=ids[0] if number else None, status=NodeStatus.ONLINE, version=1,
                 url="http://127.0.0.1:9001", tokens=(kept,), beat=Heartbeat(now, active_tasks=1), created_at=now,
            )
            for number, (id_, (_, kept)) in enumerate(zip(ids, tokens, strict=True))
        ]  # fmt: skip
        await store.apply([NodeChange(member, 0, card=CARD) for member in members])
        known += _known(ids, [text for text, _ in tokens])
    await store.close()
    return known


def _known(ids: Sequence[str], tokens: Sequence[str]) -> list[dict[str, str]]:
    """Each looks for the next one of its team; the last one for the root."""
    others = [*ids[1:], ids[0]]
    return [
        {"id": id_, "token": token, "peer": peer} for id_, token, peer in zip(ids, tokens, others, strict=True)
    ]  # fmt: skip


async def gone_offline(path: Path) -> int:
    store = SqliteNodes(path)
    found = await store.events(EventQuery(name=NodeEventKind.OFFLINE, limit=NODES))
    await store.close()
    return len(found)
