"""The console as routes: every page behind the same guard, and every error as a page."""

from urllib.parse import quote

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.console.desk import Desk
from parley.console.pages.page import Page
from parley.console.rendering import assets, edition
from parley.console.replies import PREFIX, Reply, Stream, redirect
from parley.console.sections import SECTIONS, Section
from parley.console.visits import Visit
from parley.core.access import demand
from parley.errors import MethodNotAllowed, NotFound, ParleyError, Unauthenticated
from parley.faces.http import ClientGone, Endpoint, header
from parley.faces.refusals import status_of
from parley.telemetry import tell

_KEPT = [(b"cache-control", b"public, max-age=31536000, immutable")]
_MEDIA = {"css": b"text/css; charset=utf-8", "js": b"text/javascript; charset=utf-8", "svg": b"image/svg+xml"}


class Console:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        found = [self._route(section, page) for section in SECTIONS for page in section.make(self._desk).pages()]
        return [
            Route(f"{PREFIX}/static/{{edition}}/{{name}}", Endpoint(self._static), methods=["GET"]),
            *found,
            Route(f"{PREFIX}/{{rest:path}}", Endpoint(self._nowhere)),
        ]

    def _route(self, section: Section, page: Page) -> Route:
        async def handle(scope: Scope, receive: Receive, send: Send) -> None:
            visit = Visit(self._desk, scope, receive)
            visit.section = section.name
            try:
                answer = await self._answered(visit, page)
            except ClientGone:
                return
            await self._give(visit, answer, receive, send)

        return Route(f"{PREFIX}{page.path}", Endpoint(handle), methods=[page.method])

    async def _answered(self, visit: Visit, page: Page) -> Reply | Stream:
        try:
            visit.check_cookie_size()
            await self._admit(visit, page)
            return await page.handler(visit)
        except Unauthenticated as error:
            return _to_login(visit, error)
        except ParleyError as error:
            return _refused(visit, error)

    async def _admit(self, visit: Visit, page: Page) -> None:
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

    async def _navigation(self, visit: Visit) -> list[tuple[Section, int]]:
        """The entries that this visitor may follow, each with its number."""
        shown = [one for one in SECTIONS if one.label and visit.principal.may(one.right)]
        return [(one, await one.count(self._desk, visit.principal) if one.count else 0) for one in shown]

    async def _give(self, visit: Visit, answer: Reply | Stream, receive: Receive, send: Send) -> None:
        if isinstance(answer, Stream):
            return await answer.write(receive, send, visit.given)
        return await answer.give(send, header(visit.scope, b"accept-encoding") or "", visit.given)

    async def _nowhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def nothing(visit: Visit) -> Reply:
            if scope["method"] not in ("GET", "HEAD"):
                raise MethodNotAllowed("There is nothing here that could be asked for like this.")
            raise NotFound("There is nothing at this address.")

        visit = Visit(self._desk, scope, receive)
        await self._give(visit, await self._answered(visit, Page("GET", "", nothing)), receive, send)

    async def _static(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = scope["path_params"]
        content = assets().get(place["name"])
        if content is None:
            reply = Reply(b"There is no such file.\n", 404, b"text/plain")
        else:
            kept = _KEPT if place["edition"] == edition() else [(b"cache-control", b"no-cache")]
            reply = Reply(content, 200, _MEDIA[place["name"].rpartition(".")[2]], [*kept])
        await reply.give(send, header(scope, b"accept-encoding") or "", [])


def _to_login(visit: Visit, error: Unauthenticated) -> Reply:
    if visit.wants_fragment or visit.scope["method"] != "GET":
        return _refused(visit, error)
    from_here = visit.here if visit.here != f"{PREFIX}/inbox" else ""
    return redirect("/login" + (f"?next={quote(from_here, safe='')}" if from_here else ""))


def _refused(visit: Visit, error: ParleyError) -> Reply:
    try:
        status = status_of(error)[0]
    except ParleyError:
        tell("console.failed", code=error.code)
        status = 500
    if visit.wants_fragment:
        return visit.fragment("_refused.html", status=status, message=error.message, code=error.code)
    title = "Not found" if status == 404 else "That did not work"
    return visit.page("error.html", title=title, status=status, message=error.message, code=error.code)
