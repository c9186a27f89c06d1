"""A caller of the actions contract: each request is of the schema of its section, and so is each answer."""

from typing import Any

import httpx2

from tests.contracts.action_texts import ENDPOINT, EVERY_REQUEST, EVERY_RESPONSE, REQUESTS, RESULTS
from tests.contracts.literals import Json, substituted
from tests.contracts.shapes import Shape

SHARED = ("create", "read", "list", "edit", "set_current", "delete_version", "merge_versions", "copy_version", "delete")
"""Actions of BUILD that are identical to those of PLAN (substitute "deliverable" for "plan")."""
_NOUNS = {"plan": "deliverable", "Plan": "Deliverable"}


def request_of(section: str) -> Shape:
    return Shape.parse(REQUESTS[_of_plan(section)])


def result_of(section: str) -> Shape:
    text = RESULTS[_of_plan(section)]
    nouns = _NOUNS if section != _of_plan(section) else {}
    return Shape.parse(substituted(text, {old: new for old, new in nouns.items() if old in text}))


def _of_plan(section: str) -> str:
    mode, _, action = section.partition(".")
    return f"plan.{action}" if mode == "build" and action in SHARED else section


class Talk:
    """One conversation with one agent, in one mode."""

    def __init__(self, http: httpx2.AsyncClient, conversation: str, mode: str, agent: str = "writer") -> None:
        self.http = http
        self.conversation = conversation
        self.mode = mode
        self.agent = agent

    def of(self, mode: str, agent: str | None = None) -> "Talk":
        return Talk(self.http, self.conversation, mode, agent or self.agent)

    async def minimal(self, action: str, **adds: Any) -> Any:
        """With what the section requires, and nothing else."""
        assert set(adds) == request_of(f"{self.mode}.{action}").required
        return await self.done(action, adds)

    async def full(self, action: str, **adds: Any) -> Any:
        """With every member that the section has."""
        assert set(adds) == request_of(f"{self.mode}.{action}").names
        return await self.done(action, adds)

    async def done(self, action: str, adds: Json) -> Any:
        request_of(f"{self.mode}.{action}").check(adds)
        reply = await self.send({"mode": self.mode, "action": action, "agentSlug": self.agent, **adds})
        assert (reply.status_code, reply.json()["status"]) == (200, "completed"), reply.text
        result = reply.json()["result"]
        result_of(f"{self.mode}.{action}").check(result)
        return result

    async def refused(self, action: str, **adds: Any) -> tuple[int, str]:
        reply = await self.send({"mode": self.mode, "action": action, "agentSlug": self.agent, **adds})
        assert reply.json()["status"] == "failed"
        return reply.status_code, reply.json()["error"]["code"]

    async def send(self, body: Json) -> httpx2.Response:
        """To the single endpoint; whatever is answered has what every response has."""
        method, path = ENDPOINT.split()
        place = substituted(path, {":conversationId": self.conversation})
        reply = await self.http.request(method, place, json=body)
        Shape.parse(EVERY_RESPONSE).check(reply.json())
        assert reply.json()["conversationId"] == self.conversation
        return reply

    async def versions(self) -> tuple[str, str]:
        """A document of two versions, of which the second is current."""
        noun = await self.minimal("create", message="Write about tides")
        edited = await self.minimal("edit", editedContent="# Tides\n\nThey come and go.")
        return noun["version"]["id"], edited["version"]["id"]


def check_request(body: Json) -> None:
    Shape.parse(EVERY_REQUEST).check(body)
