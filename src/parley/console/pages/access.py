"""Pages for API keys (create, show once, revoke), and for login, logout and theme."""

import msgspec

from parley.audit.rules import ACTIONS
from parley.audit.service import record
from parley.clock import now_ms
from parley.console.request import THEME, THEMES, ConsoleContext, Page, PageRequest
from parley.console.responses import PREFIX, PageReply, redirect
from parley.errors import Invalid, Unauthenticated
from parley.faces.admin import AuditParams, audit_query, expiry
from parley.runs.rules.access import ROLES


class KeyPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/operations/keys", self.list, "admin"),
            Page("POST", "/operations/keys", self.create, "admin"),
            Page("POST", "/operations/keys/{id}/revoke", self.revoke, "admin"),
        ]

    async def list(self, visit: PageRequest) -> PageReply:
        return await self._shown(visit, "")

    async def create(self, visit: PageRequest) -> PageReply:
        """Create a key. The token is only in this response: never in an address or a cookie."""
        form = await visit.form()
        agents = form.get("agents", "").replace(",", " ").split()
        key, token = await self._desk.gate.credentials.keys.create(
            form.get("name", "").strip(),
            agents=agents,
            expires_at=expiry(_days(form.get("days", "")), now_ms()),
            role=form.get("role", "user"),
            groups=filter(None, map(str.strip, form.get("groups", "").split(","))),
        )
        return await self._shown(visit, token, key.name)

    async def revoke(self, visit: PageRequest) -> PageReply:
        await visit.form()
        await self._desk.gate.credentials.keys.revoke(visit.path["id"])
        return redirect("/operations/keys")

    async def _shown(self, visit: PageRequest, token: str, name: str = "") -> PageReply:
        return visit.page(
            "keys.html",
            title="Keys",
            crumbs=[("Operations", "/operations")],
            token=token,
            name=name,
            keys=await self._desk.gate.credentials.keys.list(),
            roles=list(ROLES),
            now=now_ms(),
        )


def _days(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        raise Invalid('"Expires in (days)" must be a number.', field="days") from None


# The audit log.


class AuditPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [Page("GET", "/operations/audit", self.show, "admin")]

    async def show(self, visit: PageRequest) -> PageReply:
        """A page of the audit log, newest first; an empty filter counts as none."""
        given = {name: visit.query.get(name, "").strip() for name in AUDIT_FILTERS}
        query = audit_query(msgspec.convert({name: value for name, value in given.items() if value}, _AuditFilter))
        found = await self._desk.beside.audit.read(query)
        return visit.page(
            "audit.html",
            title="Audit log",
            crumbs=[("Operations", "/operations")],
            entries=found,
            actions=ACTIONS,
            chosen=given,
            more=str(found[-1].seq) if len(found) == query.limit else "",
        )


class _AuditFilter(AuditParams, frozen=True, rename=None):
    """The parameters of the page, in the spelling of its form."""


AUDIT_FILTERS = ("actor", "action", "target", "result", "since", "until", "page_token")

# Login and logout, the start page `/console`, and the theme.

_YEAR_S = 365 * 24 * 3600


class EntrancePages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "", self.home, None),
            Page("GET", "/", self.home, None),
            Page("GET", "/login", self.asked, None),
            Page("POST", "/login", self.login, None),
            Page("POST", "/logout", self.logout, None),
            Page("POST", "/theme", self.theme, None),
        ]

    async def home(self, visit: PageRequest) -> PageReply:
        return redirect("/inbox")

    async def asked(self, visit: PageRequest) -> PageReply:
        if visit.known:
            return redirect("/inbox")
        return self._form(visit, _place(visit.query.get("next", "")))

    async def login(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        credential, place = form.get("credential", "").strip(), _place(form.get("next", ""))
        try:
            principal = await self._desk.gate.credentials.principal_for(credential)
        except Unauthenticated as error:
            return self._form(visit, place, error.message, 401)
        await record("session.started", "console", actor=principal)
        visit.login(credential)
        return redirect(place or "/inbox")

    async def logout(self, visit: PageRequest) -> PageReply:
        await visit.form()
        if visit.session.credential and visit.known:
            await record("session.ended", "console")
        visit.logout()
        return redirect("/login" if self._desk.gate.auth == "required" else "/inbox")

    async def theme(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        chosen = form.get("theme", "")
        if chosen not in ("", *THEMES):
            raise Invalid("The theme must be light, dark, or empty to follow the system.", field="theme")
        visit.set_cookie(THEME, chosen, _YEAR_S if chosen else 0)
        return redirect(_place(form.get("next", "")) or "/inbox")

    def _form(self, visit: PageRequest, place: str, message: str = "", status: int = 200) -> PageReply:
        return visit.page("login.html", title="Sign in", status=status, place=place, message=message)


def _place(address: str) -> str:
    """The path to continue at after login; empty unless it is a page of the console."""
    path = address.removeprefix(PREFIX)
    ours = path != address and path.startswith("/") and address.isascii() and address.isprintable()
    return path if ours and "//" not in path and "\\" not in path else ""
