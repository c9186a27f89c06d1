"""One request of a browser: who asks, what for, and how a page answers."""

from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope

from parley.console.desk import Desk
from parley.console.rendering import render
from parley.console.replies import HTML, Reply
from parley.core.access import Principal
from parley.errors import CookieTooLarge, ForgedRequest, Invalid, Unauthenticated
from parley.faces.http import header, read_body
from parley.security.sessions import Session

COOKIE = "parley_console"
THEME = "parley_theme"
THEMES = ("light", "dark")
MAX_FORM = 1024 * 1024
MAX_COOKIE = 8 * 1024
"""Bytes of a Cookie header: twice what a browser keeps in one cookie."""

Crumbs = list[tuple[str, str]]
Form = dict[str, str]


class Visit:
    def __init__(self, desk: Desk, scope: Scope, receive: Receive) -> None:
        self.desk = desk
        self.scope = scope
        self.receive = receive
        self.query = QueryParams(scope.get("query_string", b""))
        self.path: dict[str, str] = scope.get("path_params", {})
        cookie = header(scope, b"cookie") or ""
        self._cookie_size = len(cookie)
        self.cookies = _cookies(cookie) if self._cookie_size <= MAX_COOKIE else {}
        self.section = ""
        """The entry of the navigation that this page belongs to."""
        self.nav: list[Any] = []
        self.given: list[tuple[bytes, bytes]] = []
        """Cookies to be set with the answer."""
        self._principal: Principal | None = scope["principal"]
        found = self.desk.sessions.opened(self.cookies[COOKIE]) if COOKIE in self.cookies else None
        self.session: Session = found or self._begin("")

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
        """Whether a script of ours asks, which puts the answer into its page."""
        return header(self.scope, b"x-requested-with") == "parley"

    def check_cookie_size(self) -> None:
        """Raise CookieTooLarge for a header over the limit, and keep the session that the browser has."""
        if self._cookie_size > MAX_COOKIE:
            self.given.clear()
            raise CookieTooLarge(
                f"The Cookie header is over the limit of {MAX_COOKIE} bytes. Delete the cookies of this site.",
                limit=MAX_COOKIE,
            )

    async def identify(self) -> None:
        """By what the browser showed at login, if the request itself showed nothing."""
        if self._principal is None and self.session.credential:
            self._principal = await self.desk.gate.credentials.principal_for(self.session.credential)

    def login(self, credential: str) -> None:
        self.session = self._begin(credential)

    def logout(self) -> None:
        self.session = self._begin("")

    async def form(self) -> Form:
        """The fields of a form that came from a page of ours, in this browser."""
        body = await read_body(self.receive, MAX_FORM)
        kind = (header(self.scope, b"content-type") or "").partition(";")[0].strip()
        if kind != "application/x-www-form-urlencoded":
            raise Invalid("A form is application/x-www-form-urlencoded.")
        try:
            form = dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100))
        except ValueError:
            raise Invalid("The form cannot be read.") from None
        token = form.pop("csrf", "") or header(self.scope, b"x-csrf-token") or ""
        site = header(self.scope, b"sec-fetch-site") or "same-origin"
        if site != "same-origin" or not self.desk.sessions.is_csrf(self.session, token):
            raise ForgedRequest("This form is too old, or is not one of ours. Load the page again and repeat it.")
        return form

    def page(self, template: str, *, title: str, crumbs: Crumbs | None = None, status: int = 200, **more: Any) -> Reply:
        """A whole page in the frame."""
        context = self._shared() | {"title": title, "crumbs": crumbs or [], **more}
        return Reply(partial(_rendered, template, context), status)

    def fragment(self, template: str, *, status: int = 200, **more: Any) -> Reply:
        """A piece of a page, for a script of ours."""
        return Reply(partial(_rendered, template, self._shared() | more), status, HTML)

    def piece(self, template: str, **more: Any) -> str:
        return render(template, self._shared() | more)

    def _shared(self) -> dict[str, Any]:
        return {
            "nav": self.nav, "section": self.section, "csrf_token": self.desk.sessions.csrf(self.session),
            "theme": self.theme, "principal": self._principal, "signed_in": bool(self.session.credential),
            "platform": self.desk.platform, "version": self.desk.version, "here": self.here,
            "name_of": self.desk.name_of,
        }  # fmt: skip

    @property
    def theme(self) -> str:
        """What the reader chose; empty for what their machine says."""
        chosen = self.cookies.get(THEME, "")
        return chosen if chosen in THEMES else ""

    @property
    def here(self) -> str:
        query = self.scope.get("query_string", b"").decode("latin-1")
        return f"{self.scope['path']}?{query}" if query else str(self.scope["path"])

    def set_cookie(self, name: str, value: str, life_s: int, *, hidden: bool = True) -> None:
        secure = self._by_https or self.desk.base_url.startswith("https:")
        flags = f"{'; HttpOnly' if hidden else ''}{'; Secure' if secure else ''}"
        cookie = f"{name}={value}; Path=/console; Max-Age={life_s}; SameSite=Strict{flags}"
        self.given.append((b"set-cookie", cookie.encode()))

    @property
    def _by_https(self) -> bool:
        """Whether the browser uses TLS, as the connection or a proxy says.

        A header that no proxy wrote can only add the flag, which harms nobody but who sent it.
        """
        said = (header(self.scope, b"x-forwarded-proto") or "").partition(",")[0].strip().lower()
        return "https" in (self.scope.get("scheme"), said)

    def _begin(self, credential: str) -> Session:
        session, cookie = self.desk.sessions.begin(credential)
        self.given = [one for one in self.given if not one[1].startswith(COOKIE.encode())]
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
        if (name := name.strip()) in (COOKIE, THEME):
            found.setdefault(name, value.strip())
    return found
