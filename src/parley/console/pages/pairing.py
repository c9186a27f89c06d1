"""Pairing an agent with a computer elsewhere: what to tell the assistant there, and whether it has come."""

from typing import Any

from parley.clock import now_ms
from parley.console.desk import Desk
from parley.console.pages.page import Page
from parley.console.replies import Reply, path_of, redirect
from parley.console.visits import Visit
from parley.faces.edge.runtimes import edge_agent
from parley.security.runtimes import Code


class PairingPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        at = "/agents/{slug}/pairing"
        return [
            Page("GET", at, self.show, "admin"),
            Page("POST", at, self.pair, "admin"),
            Page("GET", f"{at}/state", self.state, "admin"),
            Page("POST", f"{at}/revoke", self.revoke, "admin"),
        ]

    async def show(self, visit: Visit) -> Reply:
        return await self._page(visit)

    async def pair(self, visit: Visit) -> Reply:
        """The code is in this answer and nowhere else."""
        await visit.form()
        agent = edge_agent(self._desk.exchange, visit.path["slug"])
        code, words = await self._desk.newcomers.pairing.new_code(agent)
        return await self._page(visit, code, words)

    async def state(self, visit: Visit) -> Reply:
        """How the runtime fares, for a page that waits for one; `since` is when its code was made."""
        return visit.fragment("_runtime.html", **await self._state(visit))

    async def revoke(self, visit: Visit) -> Reply:
        await visit.form()
        agent = edge_agent(self._desk.exchange, visit.path["slug"])
        await self._desk.newcomers.pairing.take_away(agent)
        return redirect(path_of("agents", agent.slug, "pairing"))

    async def _page(self, visit: Visit, code: Code | None = None, words: str = "") -> Reply:
        agent = edge_agent(self._desk.exchange, visit.path["slug"])
        return visit.page(
            "pairing.html", title="Pair a runtime", agent=agent, code=code, words=words, now=now_ms(),
            crumbs=[("Agents", "/agents"), (agent.name, path_of("agents", agent.slug))], **await self._state(visit),
        )  # fmt: skip

    async def _state(self, visit: Visit) -> dict[str, Any]:
        agent = edge_agent(self._desk.exchange, visit.path["slug"])
        runtimes = self._desk.runtimes
        runtime = await runtimes.of(agent.slug)
        seen = await runtimes.last_seen(runtime) if runtime else None
        return {"runtime": runtime, "seen": seen, "online": seen is not None and runtimes.online(seen)}
