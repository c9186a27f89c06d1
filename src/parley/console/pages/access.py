"""Pages for API keys (create, show once, revoke), sessions and the audit log, and for sign-in, sign-out and theme."""

import msgspec

from parley.audit.rules import ACTIONS
from parley.audit.service import record
from parley.clock import now_ms
from parley.console.request import CALLBACK, SIGN_IN, THEME, THEMES, ConsoleContext, Page, PageRequest
from parley.console.responses import PREFIX, PageReply, redirect
from parley.errors import Invalid, IssuerUnavailable, NoRole, NotFound, SignInExpired, SignInRefused, Unauthenticated
from parley.faces.admin import AuditParams, audit_query, expiry
from parley.http.problems import status_of
from parley.http.tracing import REFUSAL
from parley.runs.rules.access import ROLES
from parley.security.secrets import check_length
from parley.security.sign_in import STARTED_S, SignIn


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

# Sessions of the console.


class SessionPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/operations/sessions", self.list, "admin"),
            Page("POST", "/operations/sessions/revoke", self.revoke, "admin"),
        ]

    async def list(self, visit: PageRequest) -> PageReply:
        wanted = visit.query.get("principal", "").strip()
        found = await self._desk.stored.list(wanted or None)
        return visit.page(
            "sessions.html",
            title="Sessions",
            crumbs=[("Operations", "/operations")],
            sessions=found[:MAX_SESSIONS],
            total=len(found),
            wanted=wanted,
            own=visit.session.token.partition(".")[0],
        )

    async def revoke(self, visit: PageRequest) -> PageReply:
        """End one session, or all of a principal."""
        form = await visit.form()
        await self._desk.stored.revoke(form.get("session", ""))
        return redirect("/operations/sessions")


MAX_SESSIONS = 500
"""Sessions on the page."""

# Sign-in and sign-out, the start page `/console`, and the theme.

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
            Page("GET", "/login/provider", self.begin, None),
            Page("GET", CALLBACK, self.complete, None),
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
        check_length(credential)
        visit.login(credential, await self._desk.stored.begin(principal))
        return redirect(place or "/inbox")

    async def begin(self, visit: PageRequest) -> PageReply:
        """Send the browser to the identity provider."""
        place = _place(visit.query.get("next", ""))
        if visit.known:
            return redirect(place or "/inbox")
        address, cookie = await self._provider().begin(place)
        # The provider sends the browser back from another site, where a strict cookie would not come along.
        visit.set_cookie(SIGN_IN, cookie, STARTED_S, same_site="Lax")
        return PageReply(status=303, headers=[(b"location", address.encode())])

    async def complete(self, visit: PageRequest) -> PageReply:
        """Sign in the user whom the provider has sent back."""
        provider, desk = self._provider(), self._desk
        cookie = visit.cookie(SIGN_IN)
        if not cookie and visit.known:
            return redirect("/inbox")
        visit.set_cookie(SIGN_IN, "", 0, same_site="Lax")
        try:
            found = await provider.complete(visit.query, cookie)
        except (SignInExpired, SignInRefused, NoRole, IssuerUnavailable) as error:
            visit.scope[REFUSAL] = error.code
            return self._form(visit, "", error.message, status_of(error)[0])
        hint = provider.hint(found.id_token)
        visit.login("", await desk.stored.begin(found.principal, provider.issuer, found.scopes, hint))
        return visit.page("onward.html", title="Signed in", target=f"{PREFIX}{found.place or '/inbox'}")

    async def logout(self, visit: PageRequest) -> PageReply:
        await visit.form()
        ended = await self._desk.stored.end(visit.session.token) if visit.session.token else None
        if ended is None and visit.session.credential and visit.known:
            await record("session.ended", "console")
        visit.logout()
        if ended is not None and ended.issuer and self._desk.sign_in is not None:
            address = await self._desk.sign_in.sign_out_address(ended.id_token)
            if address is not None:
                # Not a redirect: the policy of the page that has sent the form allows none to another site.
                return visit.page("onward.html", title="Signed out", target=address)
        return redirect("/login" if self._desk.gate.auth == "required" else "/inbox")

    async def theme(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        chosen = form.get("theme", "")
        if chosen not in ("", *THEMES):
            raise Invalid("The theme must be light, dark, or empty to follow the system.", field="theme")
        visit.set_cookie(THEME, chosen, _YEAR_S if chosen else 0)
        return redirect(_place(form.get("next", "")) or "/inbox")

    def _provider(self) -> SignIn:
        if self._desk.sign_in is None:
            raise NotFound("There is no sign-in at an identity provider here.")
        return self._desk.sign_in

    def _form(self, visit: PageRequest, place: str, message: str = "", status: int = 200) -> PageReply:
        provider = self._desk.sign_in.name if self._desk.sign_in else ""
        where = f"{PREFIX}{place}" if place else ""
        return visit.page("login.html", title="Sign in", status=status, place=where, message=message, provider=provider)


def _place(address: str) -> str:
    """The path to continue at after login; empty unless it is a page of the console."""
    path = address.removeprefix(PREFIX)
    ours = path != address and path.startswith("/") and address.isascii() and address.isprintable()
    return path if ours and "//" not in path and "\\" not in path else ""
