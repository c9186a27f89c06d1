"""Routes of the console: every page is behind the same access check, and every error becomes a page."""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Protocol
from urllib.parse import quote

from msgspec import Struct
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.console.pages.access import AuditPages, EntrancePages, KeyPages, SessionPages
from parley.console.pages.agents import AddingPages, AgentPages, PairingPages
from parley.console.pages.api import ApiPages, redirects
from parley.console.pages.comparison import ComparisonPages
from parley.console.pages.conversations import ConversationPages, VersionPages
from parley.console.pages.inbox import InboxPages, count_waiting
from parley.console.pages.limits import LimitPages
from parley.console.pages.operations import OperationPages
from parley.console.pages.orchestrations import OrchestrationPages
from parley.console.pages.organisation import OrganisationPages
from parley.console.pages.runs import RunPages, RunsPages
from parley.console.pages.topology import TopologyPages
from parley.console.pages.usage import UsagePages
from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PREFIX, PageReply, PageStream, assets, edition, redirect
from parley.errors import MethodNotAllowed, NotFound, ParleyError, Unauthenticated
from parley.http.face import Operation, Proof
from parley.http.problems import status_of
from parley.http.requests import ClientGone, Endpoint, header
from parley.runs.rules.access import Principal, demand
from parley.runs.rules.access import Scope as Right
from parley.telemetry import tell

# The list of all pages, with their navigation entries. A new page is added only here.


class PageSet(Protocol):
    def pages(self) -> Sequence[Page]: ...


class Section(Struct, frozen=True):
    """Pages that belong together. A section without a label is not in the navigation."""

    name: str
    make: Callable[[ConsoleContext], PageSet]
    label: str = ""
    path: str = ""
    icon: str = ""
    right: Right = "read"
    count: Callable[[ConsoleContext, Principal], Awaitable[int]] | None = None
    """Counts the items that need attention; the number is shown next to the label."""


SECTIONS: list[Section] = [
    Section("entrance", EntrancePages),
    Section("inbox", InboxPages, "Inbox", "/inbox", "inbox", count=count_waiting),
    Section("runs", RunsPages, "Runs", "/runs", "runs"),
    Section("runs", ComparisonPages),
    Section("runs", RunPages),
    Section("agents", AddingPages),
    Section("agents", PairingPages),
    Section("agents", AgentPages, "Agents", "/agents", "agents"),
    Section("conversations", VersionPages),
    Section("conversations", ConversationPages, "Conversations", "/conversations", "conversations"),
    Section("orchestrations", OrchestrationPages, "Orchestrations", "/orchestrations", "orchestrations"),
    Section("organisation", OrganisationPages, "Organisation", "/organisation", "organisation"),
    Section("usage", UsagePages, "Usage", "/usage", "usage"),
    Section("limits", LimitPages, "Limits", "/limits", "key"),
    Section("topology", TopologyPages, "Topology", "/topology", "topology", "admin"),
    Section("operations", KeyPages),
    Section("operations", SessionPages),
    Section("operations", AuditPages),
    Section("operations", OperationPages, "Operations", "/operations", "operations", "admin"),
    Section("api", ApiPages, "API", "/docs", "file"),
]


_STATIC = f"{PREFIX}/static/{{edition}}/{{name}}"
_KEPT = [(b"cache-control", b"public, max-age=31536000, immutable")]
_MEDIA = {"css": b"text/css; charset=utf-8", "js": b"text/javascript; charset=utf-8", "svg": b"image/svg+xml"}


class Console:
    """Serves the pages. Each page checks the visitor's session itself."""

    proof: ClassVar[Proof] = "session"

    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk
        self._pages = [(section, page) for section in SECTIONS for page in section.make(desk).pages()]

    def operations(self) -> tuple[Operation, ...]:
        pages = [Operation(page.method, f"{PREFIX}{page.path}", permission=page.right) for _, page in self._pages]
        return (Operation("GET", "/docs", open=True), Operation("GET", _STATIC, open=True), *pages)

    def routes(self) -> list[Route]:
        return [
            *redirects(),
            Route(_STATIC, Endpoint(self._static), methods=["GET"]),
            *(self._route(section, page) for section, page in self._pages),
            Route(f"{PREFIX}/{{rest:path}}", Endpoint(self._nowhere)),
        ]

    def _route(self, section: Section, page: Page) -> Route:
        async def handle(scope: Scope, receive: Receive, send: Send) -> None:
            visit = PageRequest(self._desk, scope, receive)
            visit.section = section.name
            try:
                answer = await self._answered(visit, page)
            except ClientGone:
                return
            await self._give(visit, answer, receive, send)

        return Route(f"{PREFIX}{page.path}", Endpoint(handle), methods=[page.method])

    async def _answered(self, visit: PageRequest, page: Page) -> PageReply | PageStream:
        try:
            visit.check_cookie_size()
            await self._admit(visit, page)
            return await page.handler(visit)
        except Unauthenticated as error:
            return _to_login(visit, error)
        except ParleyError as error:
            return _refused(visit, error)

    async def _admit(self, visit: PageRequest, page: Page) -> None:
        try:
            await visit.identify()
        except Unauthenticated:
            visit.logout()
            if page.right is not None:
                raise
        if page.right is not None:
            demand(visit.principal, page.right)
        if visit.known:
            visit.nav = await self._navigation(visit)

    async def _navigation(self, visit: PageRequest) -> list[tuple[Section, int]]:
        """The navigation entries that this visitor may open, each with its count."""
        shown = [one for one in SECTIONS if one.label and visit.principal.may(one.right)]
        return [(one, await one.count(self._desk, visit.principal) if one.count else 0) for one in shown]

    async def _give(self, visit: PageRequest, answer: PageReply | PageStream, receive: Receive, send: Send) -> None:
        if isinstance(answer, PageStream):
            return await answer.write(receive, send, visit.given)
        return await answer.give(send, header(visit.scope, b"accept-encoding") or "", visit.given)

    async def _nowhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def nothing(visit: PageRequest) -> PageReply:
            if scope["method"] not in ("GET", "HEAD"):
                raise MethodNotAllowed("This address does not support this method.")
            raise NotFound("There is no page at this address.")

        visit = PageRequest(self._desk, scope, receive)
        await self._give(visit, await self._answered(visit, Page("GET", "", nothing)), receive, send)

    async def _static(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = scope["path_params"]
        content = assets().get(place["name"])
        if content is None:
            reply = PageReply(b"There is no such file.\n", 404, b"text/plain")
        else:
            kept = _KEPT if place["edition"] == edition() else [(b"cache-control", b"no-cache")]
            reply = PageReply(content, 200, _MEDIA[place["name"].rpartition(".")[2]], [*kept])
        await reply.give(send, header(scope, b"accept-encoding") or "", [])


def _to_login(visit: PageRequest, error: Unauthenticated) -> PageReply:
    if visit.wants_fragment or visit.scope["method"] != "GET":
        return _refused(visit, error)
    from_here = visit.here if visit.here != f"{PREFIX}/inbox" else ""
    return redirect("/login" + (f"?next={quote(from_here, safe='')}" if from_here else ""))


def _refused(visit: PageRequest, error: ParleyError) -> PageReply:
    try:
        status = status_of(error)[0]
    except ParleyError:
        tell("console.failed", code=error.code)
        status = 500
    if visit.wants_fragment:
        return visit.fragment("_refused.html", status=status, message=error.message, code=error.code)
    title = "Not found" if status == 404 else "Request failed"
    return visit.page("error.html", title=title, status=status, message=error.message, code=error.code)
