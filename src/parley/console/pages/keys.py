"""API keys: made here, shown once, revoked."""

from parley.clock import now_ms
from parley.console.desk import Desk
from parley.console.pages.page import Page
from parley.console.replies import Reply, redirect
from parley.console.visits import Visit
from parley.core.access import Scope
from parley.errors import Invalid
from parley.faces.admin import expiry

SCOPES: tuple[Scope, ...] = ("read", "send", "admin")


class KeyPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/operations/keys", self.list, "admin"),
            Page("POST", "/operations/keys", self.create, "admin"),
            Page("POST", "/operations/keys/{id}/revoke", self.revoke, "admin"),
        ]

    async def list(self, visit: Visit) -> Reply:
        return await self._shown(visit, "")

    async def create(self, visit: Visit) -> Reply:
        """The token is on this one answer, and nowhere else: neither in an address nor in a cookie."""
        form = await visit.form()
        scopes = [scope for scope in SCOPES if f"scope-{scope}" in form]
        agents = form.get("agents", "").replace(",", " ").split()
        key, token = await self._desk.gate.credentials.keys.create(
            form.get("name", "").strip(), scopes, agents, expiry(_days(form.get("days", "")), now_ms())
        )
        return await self._shown(visit, token, key.name)

    async def revoke(self, visit: Visit) -> Reply:
        await visit.form()
        await self._desk.gate.credentials.keys.revoke(visit.path["id"])
        return redirect("/operations/keys")

    async def _shown(self, visit: Visit, token: str, name: str = "") -> Reply:
        return visit.page(
            "keys.html", title="Keys", crumbs=[("Operations", "/operations")], token=token, name=name,
            keys=await self._desk.gate.credentials.keys.list(), scopes=SCOPES, now=now_ms(),
        )  # fmt: skip


def _days(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        raise Invalid("In how many days it expires is a number.", field="days") from None
