"""A platform and its nodes, each a process of its own, and somebody outside who calls them."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from parley.client import Client
from parley.node import A2A
from parley.node.messages import Address, Discovered
from parley.testing.processes import ServerProcess, until
from tests.faces.registry.fleet import Fleet, Node

PAIR_S = 2


class Member:
    """One node: where it stands in the hierarchy, and its process, which may be another one later."""

    def __init__(self, seat: Node, directory: Path, process: ServerProcess, env: dict[str, str]) -> None:
        self.seat = seat
        self.directory = directory
        self.process = process
        self._env = env

    @property
    def id(self) -> str:
        return self.seat.id

    async def again(self) -> None:
        """Up again, at another address, of which the platform knows."""
        self.process = await launch(self._env)

        async def known() -> bool:
            return (await address(self.speaks(), self.id)).url == self.process.url

        await until(known)

    def speaks(self) -> Node:
        """The node itself, as far as the platform can tell."""
        kept = json.loads((self.directory / "node.json").read_text())
        return Node(self.seat.http, self.seat.at, kept["id"], kept["token"])

    def at(self, other: "Member") -> "Tasks":
        """Tasks that this node has sent to another, read with its own pair tokens."""
        return Tasks(self, other)


class Tasks:
    def __init__(self, by: Member, at: Member) -> None:
        self._by = by
        self._at = at

    async def all(self) -> dict[str, str]:
        """Their states, in words of A2A 1.0."""
        found = await address(self._by.speaks(), self._at.id)
        async with Client(found.url, token=found.token) as client:
            listed = await client.list(pageSize=100)
        return {task["id"]: task["status"]["state"].removeprefix("TASK_STATE_") for task in listed["tasks"]}

    async def since(self, before: Collection[str]) -> list[str]:
        """Wait for new entries and return them."""

        async def there() -> bool:
            return len(await self.all()) > len(before)

        await until(there)
        return [task for task in await self.all() if task not in before]

    async def become(self, task: str, state: str) -> None:
        async def so() -> bool:
            return (await self.all())[task] == state

        await until(so)


async def launch(env: dict[str, str], module: str = "tests.node.member") -> ServerProcess:
    return await ServerProcess.launch([module], env=env)


class Team:
    """Lead with One and Two below it; and, below somebody else, Stranger."""

    def __init__(self, http: httpx2.AsyncClient, directory: Path) -> None:
        self._http = http
        self._directory = directory
        self.members: dict[str, Member] = {}

    async def open(self) -> None:
        await self.start_platform()
        self.fleet = Fleet(self._http, self.platform.url)
        self.tester = await self.fleet.online("Tester")
        self.other = await self.fleet.online("Other")
        lead = await self.fleet.create("Lead")
        # One after the other: each has its time, however busy the machine is.
        await self.join("lead", lead, PARLEY_NODE_INTROSPECT="false")
        await self.join("one", await self.fleet.create("One", lead))
        await self.join("two", await self.fleet.create("Two", lead))
        await self.join("stranger", await self.fleet.create("Stranger", self.other))

    async def start_platform(self, port: int = 0) -> None:
        env = {"PARLEY_NODE_PAIR_S": str(PAIR_S)}
        self.platform = await ServerProcess.start(["parley.demo"], self._directory / "platform", port=port, env=env)

    async def join(self, name: str, seat: Node, **env: str) -> Member:
        directory = self._directory / name
        given = {
            "PARLEY_NODE_PLATFORM": self.platform.url, "PARLEY_NODE_ID": seat.id,
            "PARLEY_NODE_DATA_DIR": str(directory), "PARLEY_NODE_HEARTBEAT_S": "1", **env,
        }  # fmt: skip
        member = self.members[name] = Member(seat, directory, await launch(given), given)
        await self.is_online(name)
        return member

    async def is_online(self, name: str) -> None:
        async def online() -> bool:
            return (await self.fleet.show(self.members[name].seat))["status"] == "online"

        await until(online, 30)

    async def is_idle(self, name: str) -> None:
        """Wait for a heartbeat without tasks. A heartbeat sent during a direct call makes the platform queue calls
        until the next one."""

        async def idle() -> bool:
            return (await self.fleet.show(self.members[name].seat))["active_tasks"] == 0

        await until(idle, 30)

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def caller(self, name: str, by: Node | None = None) -> A2A:
        """As one of the roots, who may call Lead, or as somebody else."""

        async def where(anew: bool) -> Address:
            return await address(by or self.tester, self.members[name].id)

        return A2A(where)

    async def tell(self, name: str, text: str, by: Node | None = None, **more: Any) -> dict[str, Any]:
        async with self.caller(name, by) as a2a:
            return await a2a.send({"method": "message/send", "params": {"message": said(text, **more)}})

    async def ask(self, name: str, peer: Member, text: str) -> dict[str, Any]:
        """Let one ask another."""
        return await self.tell(name, f"ask {peer.id} {text}")

    async def begin(self, a2a: A2A, text: str) -> str:
        """The task, which is not waited for."""
        params = {"message": said(text), "configuration": {"blocking": False}}
        return (await a2a.send({"method": "message/send", "params": params}))["id"]

    async def until_ended(self, a2a: A2A, task: str) -> dict[str, Any]:
        last: dict[str, Any] = {}
        async for event in a2a.subscribe({"method": "tasks/resubscribe", "params": {"id": task}}):
            last = event
        return last

    async def move(self, member: Member, parent: Node) -> None:
        reply = await self.fleet.ask("PATCH", f"/workspaces/{member.id}", {"parent_id": parent.id})
        assert reply.status_code == 200, reply.text

    async def close(self) -> None:
        for member in self.members.values():
            await member.process.stop()
        await self.platform.stop()


async def address(by: Node, target: str) -> Address:
    return msgspec.json.decode((await by.discover(target)).content, type=Discovered).address()


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"parts": [{"kind": "text", "text": text}], **more}


def text_of(answer: dict[str, Any]) -> str:
    return "".join(one["content"] for one in answer["artifacts"] if one["type"] == "text/plain")
