"""Routing of a path to an agent and a binding. It is written by hand for speed: these paths are requested most."""

from collections.abc import Awaitable, Collection, Iterable, Sequence
from typing import Any, Protocol, cast

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.faces.a2a.card import Cards, card_version
from parley.faces.a2a.downloads import Downloads, artifact_of
from parley.faces.a2a.jsonrpc import JsonRpc
from parley.faces.a2a.operations import Default
from parley.faces.a2a.rest import OLD_PATHS, PATHS, Rest, found_path
from parley.http.face import Method, Operation
from parley.http.requests import Endpoint, Headers, answer, asked_version, header
from parley.http.tracing import OTHER, ROUTE
from parley.runs.rules.access import Principal, may_use
from parley.runs.rules.agents import Agent
from parley.runs.service import Exchange

# Discovery of agents: cards at well-known paths, a catalog of all agents that a caller may see, and an index.

MAX_AGE_S = 300
CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Clients older than 0.3 use the second path."""
_VARY = (b"vary", b"Accept, Authorization, X-API-Key")


class LandingPages(Protocol):
    """Renders HTML pages of agents for browsers."""

    @property
    def headers(self) -> Headers: ...

    def index(self, agents: Sequence[Agent]) -> bytes: ...

    def agent(self, agent: Agent) -> bytes: ...


class Discovery:
    """Serves cards, the catalog and the index. With `modern`, cards have only the fields of A2A 1.0 for every client.
    `pages` renders what browsers get instead of JSON."""

    def __init__(
        self,
        exchange: Exchange,
        cards: Cards,
        base_url: str,
        default: Default,
        *,
        modern: bool = False,
        pages: LandingPages | None = None,
    ) -> None:
        self._modern = modern
        self._pages = pages
        self._exchange = exchange
        self._cards = cards
        self._base_url = base_url
        self._default = default

    def routes(self) -> list[Route]:
        return [
            Route("/.well-known/ai-catalog.json", Endpoint(self.catalog), methods=["GET"]),
            Route("/", Endpoint(self.index), methods=["GET"]),
        ]

    async def card(self, scope: Scope, receive: Receive, send: Send) -> None:
        slug = scope.get("path_params", {}).get("slug") or self._default()
        agent = self._visible(scope, slug)
        if agent is None:
            return await _no_agent(send, slug)
        version = card_version(asked_version(scope), modern=self._modern)
        found = await self._cards.public(agent, version)
        reach = b"public" if agent.visibility == "public" else b"private"
        headers = [
            (b"etag", found.etag),
            (b"last-modified", found.modified),
            (b"cache-control", b"%b, max-age=%d" % (reach, MAX_AGE_S)),
            (b"vary", b"A2A-Version, Authorization, X-API-Key"),
        ]
        if _matches(header(scope, b"if-none-match"), found.etag.decode()):
            return await answer(send, 304, b"", headers)
        return await answer(send, 200, found.body, headers)

    async def catalog(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the AI Catalog, which lists several agents of one host."""
        entries = [self._entry(agent) for agent in self._known(scope["principal"])]
        content = {"specVersion": "1.0", "host": {"displayName": "Parley", "url": self._base_url}, "entries": entries}
        await answer(send, 200, content, [(b"cache-control", b"private, max-age=60")])

    async def index(self, scope: Scope, receive: Receive, send: Send) -> None:
        agents = self._known(scope["principal"])
        if self._pages is not None and _is_browser(scope):
            return await self._page(send, self._pages, self._pages.index(agents))
        content = {"name": "parley", "agents": [self._summary(agent) for agent in agents]}
        return await answer(send, 200, content, [_VARY])

    async def agent(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a GET at an agent's address: a page for browsers, else a summary."""
        slug = scope["path_params"]["slug"]
        agent = self._visible(scope, slug)
        if agent is None:
            return await _no_agent(send, slug)
        if self._pages is not None and _is_browser(scope):
            return await self._page(send, self._pages, self._pages.agent(agent))
        return await answer(send, 200, self._summary(agent), [_VARY])

    async def _page(self, send: Send, pages: LandingPages, body: bytes) -> None:
        await answer(send, 200, body, [*pages.headers, _VARY], b"text/html; charset=utf-8")

    def _summary(self, agent: Agent) -> dict[str, str]:
        return {
            "slug": agent.slug,
            "name": agent.name,
            "description": agent.description,
            "url": self._address(agent),
            "card": self._address(agent) + CARD_PATHS[0],
        }

    def _visible(self, scope: Scope, slug: str | None) -> Agent | None:
        agent = self._exchange.agents.get(slug or "")
        return agent if agent is not None and may_use(scope["principal"], agent) else None

    def _known(self, principal: Principal | None) -> list[Agent]:
        return [agent for agent in self._exchange.agents.values() if may_use(principal, agent)]

    def _address(self, agent: Agent) -> str:
        return f"{self._base_url}/agents/{agent.slug}"

    def _entry(self, agent: Agent) -> dict[str, Any]:
        return {
            "identifier": self._address(agent),
            "displayName": agent.name,
            "description": agent.description,
            "version": agent.version,
            "type": "application/a2a-agent-card+json",
            "url": self._address(agent) + CARD_PATHS[0],
            "tags": sorted({tag for skill in agent.skills for tag in skill.tags}),
        }


async def _no_agent(send: Send, slug: str | None) -> None:
    await answer(
        send, 404, {"error": {"code": "agent_not_found", "message": f"There is no agent {slug!r} on this server."}}
    )


def _is_browser(scope: Scope) -> bool:
    """Return True if the client accepts HTML by name: browsers do, programs that accept anything do not."""
    return "text/html" in (header(scope, b"accept") or "")


def _matches(asked: str | None, etag: str) -> bool:
    """Compare entity tags weakly, as RFC 9110 requires."""
    if asked is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in asked.split(",")]
    return "*" in tags or etag.removeprefix("W/") in tags


_PREFIX = "/agents/"
AGENT, ARTIFACT = "/agents/{slug}", "/tasks/{id}/artifacts/{artifact}"
_FIRST = frozenset(row.path.partition("/")[0] for row in PATHS)
OPERATIONS = (
    Operation("GET", "/", open=True),
    Operation("POST", "/"),
    Operation("POST", AGENT),
    Operation("GET", AGENT, open=True),
    *(Operation("GET", f"{at}{path}", open=True) for at in ("", AGENT) for path in CARD_PATHS),
    *(Operation("GET", f"{at}/.well-known/{{rest:path}}", open=True) for at in ("", AGENT)),
    Operation("GET", AGENT + ARTIFACT.replace("{artifact}", "{artifact:id}")),
    *(
        Operation(cast("Method", method), f"{at}/{row.path}")
        for at, rows in ((AGENT, PATHS), (f"{AGENT}/v1", OLD_PATHS))
        for row in rows
        for method in row.operations
    ),
)
"""Operations at an agent's address, for the table of operations; `Addresses` routes the requests by hand."""


def below_agents(operations: Iterable[Operation]) -> frozenset[str]:
    """Return the first steps below an agent's address at which other faces have operations."""
    return frozenset(row.path.split("/", 4)[3] for row in operations if row.path.startswith(f"{AGENT}/"))


class Addresses:
    """Routes `/agents/{slug}` and the paths below it, the same paths at the root for the default agent, and
    `/{tenant}/…` of the HTTP binding."""

    def __init__(
        self,
        exchange: Exchange,
        rpc: JsonRpc,
        rest: Rest,
        discovery: Discovery,
        others: ASGIApp,
        passed: Collection[str] = (),
    ) -> None:
        """`others` answers all other paths, and those below an agent's address that begin with a step in `passed`."""
        self._exchange = exchange
        self._rpc = rpc
        self._rest = rest
        self._discovery = discovery
        self._downloads = Downloads(exchange)
        self._others = others
        self._passed = passed

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Return the handler's awaitable instead of awaiting it: otherwise each event of each stream would pass through
        one more layer."""
        path: str = scope["path"] if scope["type"] == "http" else ""
        if path.startswith(_PREFIX):
            slug, _, rest = path[len(_PREFIX) :].partition("/")
            if rest.partition("/")[0] in self._passed:
                return self._others(scope, receive, send)
        else:
            slug, rest = self._at_root(path)
        if slug == "" or rest is None:
            return self._others(scope, receive, send)
        method: str = scope["method"]
        if slug is None and not rest and method != "POST":
            return self._others(scope, receive, send)
        scope[ROUTE] = _template(slug, rest)
        scope["path_params"] = {"slug": slug, "rest": rest}
        if not rest and method == "POST":
            return self._rpc(scope, receive, send)
        if not rest and slug is not None and method in ("GET", "HEAD"):
            return self._discovery.agent(scope, receive, send)
        if f"/{rest}" in CARD_PATHS and method in ("GET", "HEAD"):
            return self._discovery.card(scope, receive, send)
        if method == "GET" and artifact_of(rest) is not None:
            return self._downloads(scope, receive, send)
        return self._rest(scope, receive, send)

    def _at_root(self, path: str) -> tuple[str | None, str | None]:
        """Return the agent of a path without the prefix (None for the default agent) and the rest of the path (None if
        the path is not routed here)."""
        if path == "/" or path in CARD_PATHS:
            return None, path[1:]
        head, _, rest = path[1:].partition("/")
        if head in _FIRST or (head == "v1" and rest):
            return None, path[1:]
        if rest.partition("/")[0] in _FIRST and head in self._exchange.agents:
            return head, rest
        return None, None


def _template(slug: str | None, rest: str) -> str:
    """Return the path template for metrics; it contains nothing that comes from the client."""
    if not rest:
        return "/" if slug is None else AGENT
    return ("" if slug is None else AGENT) + _below(rest)


def _below(rest: str) -> str:
    if f"/{rest}" in CARD_PATHS:
        return f"/{rest}"
    if artifact_of(rest) is not None:
        return ARTIFACT
    found = found_path(rest)
    return f"{'/v1' if rest.startswith('v1/') else ''}/{found[0].path if found else OTHER}"
