"""Pages for limits: what holds, what is left of each budget, and the stops of the kill switch."""

from collections.abc import Mapping

from parley.budgets.rules import KINDS, LIMIT_NAMES, LimitValues
from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PageReply, redirect
from parley.errors import Invalid
from parley.execution.admission import StopKind

STOP_KINDS: tuple[StopKind, ...] = ("principal", "group", "agent")
_WHOLE = frozenset(name for name in LIMIT_NAMES if "cost" not in name and name != "per_second")


class LimitPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/limits", self.show),
            Page("POST", "/limits", self.set, "admin"),
            Page("POST", "/limits/remove", self.remove, "admin"),
            Page("POST", "/stops", self.stop, "operate"),
            Page("POST", "/stops/remove", self.allow, "operate"),
        ]

    async def show(self, visit: PageRequest) -> PageReply:
        """Show the visitor's own limits; to operators, those of all subjects and the stops."""
        control, every = self._desk.beside.control, visit.principal.may("operate")
        found = await control.limits.all() if every else await control.limits.of(visit.principal)
        return visit.page(
            "limits.html",
            title="Limits",
            found=found,
            every=every,
            changes=visit.principal.may("admin"),
            stops=await control.switch.list() if every else [],
            names=LIMIT_NAMES,
            kinds=KINDS,
            stop_kinds=STOP_KINDS,
        )

    async def set(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        kind, name = form.get("kind", ""), form.get("name", "").strip()
        await self._desk.beside.control.limits.set(kind, name, limit_values(form), str(visit.principal))
        return redirect("/limits")

    async def remove(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        await self._desk.beside.control.limits.remove(form.get("kind", ""), form.get("name", ""))
        return redirect("/limits")

    async def stop(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        kind: StopKind | None = next((one for one in STOP_KINDS if one == form.get("kind")), None)
        if kind is None:
            raise Invalid(f"kind must be one of: {', '.join(STOP_KINDS)}.", field="kind")
        name, reason = form.get("name", "").strip(), form.get("reason", "").strip()
        await self._desk.beside.control.switch.stop(kind, name, str(visit.principal), reason)
        return redirect("/limits")

    async def allow(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        await self._desk.beside.control.switch.allow(form.get("kind", ""), form.get("name", ""))
        return redirect("/limits")


def limit_values(form: Mapping[str, str]) -> LimitValues:
    """Return the limits of a form. An empty field is no limit."""
    given: dict[str, float | int] = {}
    for name in LIMIT_NAMES:
        text = form.get(name, "").strip()
        if text:
            given[name] = _number(name, text)
    return LimitValues(**given)  # pyright: ignore[reportArgumentType]


def _number(name: str, text: str) -> float | int:
    try:
        return int(text) if name in _WHOLE else float(text)
    except ValueError:
        kind = "a whole number" if name in _WHOLE else "a number"
        raise Invalid(f"{name} must be {kind}.", field=name) from None
