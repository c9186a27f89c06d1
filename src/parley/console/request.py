"""A browser's request to the console, and the services that pages use to answer it."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import httpx2
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope

from parley.audit.service import AuditLog, enter
from parley.console.responses import HTML, PageReply, PageStream, off_loop, render
from parley.console.uploads import UploadForm, parse_multipart
from parley.definitions.added import Added
from parley.definitions.watcher import Definitions
from parley.documents.conversations import Conversations, Exported
from parley.documents.service import Documents
from parley.errors import AgentNotFound, CookieTooLarge, ForgedRequest, Invalid, SessionEnded, Unauthenticated
from parley.execution.admission import WorkControl
from parley.faces.pairing.codes import PairingCalls
from parley.http.face import Method
from parley.http.requests import header, read_body
from parley.nodes.service import Nodes
from parley.paired.claims import PairedClaims
from parley.paired.runtimes import Runtimes
from parley.push.hooks import Hooks
from parley.runs.rules.access import Principal, may_see, may_use
from parley.runs.rules.access import Scope as Right
from parley.runs.rules.agents import Agent
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.runs.tracebacks import Tracebacks
from parley.runs.usage_reports import UsageReports
from parley.security.credentials import Gate
from parley.security.secrets import BrowserSession, Sessions
from parley.security.sessions import StoredSession, StoredSessions
from parley.security.sign_in import SignIn
from parley.settings import Settings
from parley.telemetry.metrics import Samples

# Services that pages use, passed in once.


class ApiDocument(Struct, frozen=True):
    """An OpenAPI document that a face serves."""

    name: str
    title: str
    about: str
    path: str
    access: str
    """Credentials needed to read the document, as text."""
    make: Callable[[], bytes]
    public: bool = False
    """Served to everyone, without credentials."""


class Beside(Struct, frozen=True):
    """Services next to the exchange: documents, conversations, nodes, push notifications, settings."""

    documents: Documents
    conversations: Conversations
    link: Callable[[str, Exported], str]
    """Returns the address of an exported file."""
    nodes: Nodes
    hooks: Hooks
    settings: Settings
    definitions: Definitions | None
    """Definitions of agents, if this server reads them from files."""
    api: Sequence[ApiDocument]
    tracebacks: Tracebacks
    audit: AuditLog
    control: WorkControl


class Newcomers(Struct, frozen=True):
    """Services that add and pair agents."""

    pairing: PairingCalls
    added: Added
    open_client: Callable[[], httpx2.AsyncClient]
    """HTTP client for addresses that users enter: it connects only to allowed hosts."""


class ConsoleContext(Struct, frozen=True):
    exchange: Exchange
    gate: Gate
    sessions: Sessions
    stored: StoredSessions
    sign_in: SignIn | None
    """Sign-in at the identity provider, if one is configured."""
    runtimes: Runtimes
    elsewhere: PairedClaims
    base_url: str
    platform: str
    """The server's display name."""
    version: str
    beside: Beside
    samples: Samples
    newcomers: Newcomers
    usage: UsageReports

    def agents(self, principal: Principal) -> list[Agent]:
        """The agents that a principal may use, sorted by name."""
        known = [agent for agent in self.exchange.agents.values() if may_use(principal, agent)]
        return sorted(known, key=lambda agent: agent.name.lower())

    def agent(self, slug: str, principal: Principal) -> Agent:
        agent = self.exchange.agents.get(slug)
        if agent is None or not may_use(principal, agent):
            raise AgentNotFound(f"There is no agent {slug!r} here.")
        return agent

    def name_of(self, slug: str) -> str:
        """An agent's display name; its slug if it is no longer served."""
        agent = self.exchange.agents.get(slug)
        return agent.name if agent else slug

    def owner(self, principal: Principal) -> str | None:
        """The owner whose runs a principal may list; None (all owners) for an operator."""
        return None if principal.may("operate") else str(principal)

    def sees(self, principal: Principal, run: Run) -> bool:
        return not run.gone and may_see(principal, run.principal)


COOKIE = "parley_console"
SIGN_IN = "parley_sign_in"
"""Cookie of a sign-in that has begun."""
CALLBACK = "/login/callback"
"""Page that the identity provider sends browsers back to, below `/console`."""
HOST = "__Host-"
"""Prefix of cookies that a browser takes over TLS only, and never from another host of the same site."""
THEME = "parley_theme"
THEMES = ("light", "dark")
MAX_FORM = 1024 * 1024
MAX_COOKIE = 8 * 1024
"""Bytes of a Cookie header: twice what a browser keeps in one cookie."""

Crumbs = list[tuple[str, str]]
Form = dict[str, str]


class PageRequest:
    def __init__(self, desk: ConsoleContext, scope: Scope, receive: Receive) -> None:
        self.desk = desk
        self.scope = scope
        self.receive = receive
        self.query = QueryParams(scope.get("query_string", b""))
        self.path: dict[str, str] = scope.get("path_params", {})
        cookie = header(scope, b"cookie") or ""
        self._cookie_size = len(cookie)
        self.cookies = _cookies(cookie) if self._cookie_size <= MAX_COOKIE else {}
        self.section = ""
        """Navigation entry that this page belongs to."""
        self.nav: list[Any] = []
        self.given: list[tuple[bytes, bytes]] = []
        """`Set-Cookie` headers for the response."""
        self._principal: Principal | None = scope["principal"]
        kept = self.cookie(COOKIE)
        self.session: BrowserSession = (self.desk.sessions.opened(kept) if kept else None) or self._begin()

    @property
    def principal(self) -> Principal:
        if self._principal is None:
            raise Unauthenticated("Sign in first.")
        return self._principal

    @property
    def known(self) -> bool:
        return self._principal is not None

    @property
    def wants_fragment(self) -> bool:
        """True if a script of the console asks, which inserts the response into its page."""
        return header(self.scope, b"x-requested-with") == "parley"

    def check_cookie_size(self) -> None:
        """Raise CookieTooLarge for a header over the limit, and keep the session that the browser has."""
        if self._cookie_size > MAX_COOKIE:
            self.given.clear()
            raise CookieTooLarge(
                f"The Cookie header is over the limit of {MAX_COOKIE} bytes. Delete the cookies of this site.",
                limit=MAX_COOKIE,
            )

    @property
    def signed_in(self) -> bool:
        return bool(self.session.credential or self.session.token)

    async def identify(self) -> None:
        """Identify the caller by the session from login, if the request itself has no credential."""
        if self._principal is None and self.signed_in:
            self._principal = await self._owner()
            self.scope["principal"] = self._principal
            enter(self.desk.beside.audit, self.scope.get("client"), self._principal)

    async def _owner(self) -> Principal:
        """The principal of the session: that of its credential, or the user whom the provider has signed in."""
        found = await self.desk.stored.check(self.session.token) if self.session.token else None
        if found is None or not found.issuer:
            return await self.desk.gate.credentials.principal_for(self.session.credential)
        return self._user(found)

    def _user(self, session: StoredSession) -> Principal:
        sign_in = self.desk.sign_in
        if sign_in is None or sign_in.issuer != session.issuer:
            raise SessionEnded("Your session belongs to another identity provider. Sign in again.")
        return sign_in.principal_of(session.principal.partition(":")[2], session.scopes, session.groups)

    def login(self, credential: str, token: str) -> None:
        self.session = self._begin(credential, token)

    def logout(self) -> None:
        self.session, self._principal, self.nav = self._begin(), None, []

    async def form(self) -> Form:
        """The fields of a form. Raises ForgedRequest if it was not sent by a page of the console in this browser."""
        body = await read_body(self.receive, MAX_FORM)
        if self._form_type != "application/x-www-form-urlencoded":
            raise Invalid("The form must be sent as application/x-www-form-urlencoded.")
        try:
            form = dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100))
        except ValueError:
            raise Invalid("The form cannot be read.") from None
        return self._own(form)

    async def upload(self) -> UploadForm:
        """The fields of a form, and its files."""
        if self._form_type != "multipart/form-data":
            return UploadForm(await self.form(), [])
        body = await read_body(self.receive, self.desk.beside.settings.max_body_bytes)
        # Splitting a large body takes some milliseconds.
        form = await off_loop(lambda: parse_multipart(header(self.scope, b"content-type") or "", body))
        return UploadForm(self._own(form.fields), form.files)

    @property
    def _form_type(self) -> str:
        return (header(self.scope, b"content-type") or "").partition(";")[0].strip()

    def _own(self, form: Form) -> Form:
        """The form without its token. Raises ForgedRequest if the token is not of this browser's session."""
        token = form.pop("csrf", "") or header(self.scope, b"x-csrf-token") or ""
        site = header(self.scope, b"sec-fetch-site") or "same-origin"
        if site != "same-origin" or not self.desk.sessions.is_csrf(self.session, token):
            raise ForgedRequest("This form has expired or came from another site. Reload the page and try again.")
        return form

    def page(
        self, template: str, *, title: str, crumbs: Crumbs | None = None, status: int = 200, **more: Any
    ) -> PageReply:
        """A full page."""
        context = self._shared() | {"title": title, "crumbs": crumbs or [], **more}
        return PageReply(partial(_rendered, template, context), status)

    def fragment(self, template: str, *, status: int = 200, **more: Any) -> PageReply:
        """A part of a page, for a script of the console."""
        return PageReply(partial(_rendered, template, self._shared() | more), status, HTML)

    def piece(self, template: str, **more: Any) -> str:
        return render(template, self._shared() | more)

    def _shared(self) -> dict[str, Any]:
        return {
            "nav": self.nav,
            "section": self.section,
            "csrf_token": self.desk.sessions.csrf(self.session),
            "theme": self.theme,
            "principal": self._principal,
            "signed_in": self.signed_in,
            "platform": self.desk.platform,
            "version": self.desk.version,
            "here": self.here,
            "name_of": self.desk.name_of,
        }

    @property
    def theme(self) -> str:
        """The theme that the visitor chose; empty to follow the system."""
        chosen = self.cookie(THEME)
        return chosen if chosen in THEMES else ""

    @property
    def here(self) -> str:
        query = self.scope.get("query_string", b"").decode("latin-1")
        return f"{self.scope['path']}?{query}" if query else str(self.scope["path"])

    def cookie(self, name: str) -> str:
        """The value of a cookie that only this host can have set, if the browser uses TLS; empty without one."""
        return self.cookies.get(f"{HOST}{name}" if self._secure else name, "")

    def set_cookie(self, name: str, value: str, life_s: int, *, same_site: str = "Strict") -> None:
        """Set a cookie that `cookie` returns."""
        name, path, secure = (f"{HOST}{name}", "/", "; Secure") if self._secure else (name, "/console", "")
        self.given = [one for one in self.given if not one[1].startswith(f"{name}=".encode())]
        cookie = f"{name}={value}; Path={path}; Max-Age={life_s}; SameSite={same_site}; HttpOnly{secure}"
        self.given.append((b"set-cookie", cookie.encode()))

    @property
    def _secure(self) -> bool:
        return self._by_https or self.desk.base_url.startswith("https:")

    @property
    def _by_https(self) -> bool:
        """True if the browser uses TLS, according to the connection or a proxy's header.

        A forged header can only add the `Secure` flag, which affects only the sender's own cookie.
        """
        said = (header(self.scope, b"x-forwarded-proto") or "").partition(",")[0].strip().lower()
        return "https" in (self.scope.get("scheme"), said)

    def _begin(self, credential: str = "", token: str = "") -> BrowserSession:
        session, cookie = self.desk.sessions.begin(credential, token)
        self.set_cookie(COOKIE, cookie, self.desk.sessions.life_s)
        return session


def _rendered(template: str, context: dict[str, Any]) -> bytes:
    return render(template, context).encode(errors="replace")


def _cookies(text: str) -> dict[str, str]:
    """Return the console's own cookies; the first of a name wins, since browsers send the closest path first.

    Not `http.cookies`: it takes quadratic time on backslashes before CPython 3.11.10 and 3.12.6 (CVE-2024-7592).
    """
    found: dict[str, str] = {}
    for pair in text.split(";"):
        name, _, value = pair.partition("=")
        if (name := name.strip()).removeprefix(HOST) in (COOKIE, SIGN_IN, THEME):
            found.setdefault(name, value.strip())
    return found


# One page or action: its path, required scope and handler.

Handler = Callable[[PageRequest], Awaitable[PageReply | PageStream]]


class Page(Struct, frozen=True):
    method: Method
    path: str
    """Path below `/console`, as a Starlette pattern: `/runs/{id:path}`."""
    handler: Handler
    right: Right | None = "read"
    """Required scope; None for pages that need no login."""
