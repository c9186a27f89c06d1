"""Nodes for the console's demo data, over the registry's own wire."""

import uuid
from typing import Any

import httpx2

from tests.console.conftest import Running


class Family:
    """A root with two children, one of which has a child of its own."""

    def __init__(self, server: Running) -> None:
        self.url = server.url
        self.name = uuid.uuid4().hex[:4]
        self.top = self.create("Harbour", "Looks after the others")
        self.left = self.create("Crane", "Lifts", self.top)
        self.right = self.create("Ferry", "Carries", self.top)
        self.low = self.create("Hook", "Holds", self.left)

    def create(self, name: str, role: str, parent: str | None = None) -> str:
        made = self.ask("POST", "/workspaces", {"name": f"{name} {self.name}", "role": role, "parent_id": parent})
        return str(made["id"])

    def online(self, id_: str) -> dict[str, str]:
        body = {"id": id_, "url": "http://127.0.0.1:9", "agent_card": {"name": "x", "skills": [], "version": "1"}}
        token = self.ask("POST", "/registry/register", body)["auth_token"]
        return {"X-Workspace-ID": id_, "Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
        reply = httpx2.request(method, f"{self.url}{path}", json=body, headers=headers)
        assert reply.is_success, reply.text
        return reply.json()
