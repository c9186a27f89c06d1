"""Where agents are found: cards at their well-known places, a catalog of all that a caller may see, and an index."""

from collections.abc import Sequence
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from parley.core.access import Principal, may_use
from parley.core.agents import Agent
from parley.engine.exchange import Exchange
from parley.faces.a2a.card import Cards
from parley.faces.a2a.operations import Default
from parley.faces.http import Headers, answer, asked_version, header

MAX_AGE_S = 300
CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The second is where clients before 0.3 look."""
_VARY = (b"vary", b"Accept, Authorization, X-API-Key")


class Pages(Protocol):
    """Renders addresses for browsers."""

    @property
    def headers(self) -> Headers: ...

    def index(self, agents: Sequence[Agent]) -> bytes: ...

    def agent(self, agent: Agent) -> bytes: ...


class Discovery:
    """`modern`: cards carry the fields of A2A 1.0 alone, whoever asks. `pages`: what browsers get instead of JSON."""

    def __init__(
        self, exchange: Exchange, cards: Cards, base_url: str, default: Default, *, modern: bool = False,
        pages: Pages | None = None,
    ) -> None:  # fmt: skip
        self._modern = modern
        self._pages = pages
        self._exchange = exchange
        self._cards = cards
        self._base_url = base_url
        self._default = default

    async def card(self, scope: Scope, receive: Receive, send: Send) -> None:
        slug = scope.get("path_params", {}).get("slug") or self._default()
        agent = self._visible(scope, slug)
        if agent is None:
            return await _no_agent(send, slug)
        version = "1.0" if self._modern or asked_version(scope) == "1.0" else "0.3"
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
        """The AI Catalog, in which several agents on one host can be found."""
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
        """An agent's address, opened instead of called."""
        slug = scope["path_params"]["slug"]
        agent = self._visible(scope, slug)
        if agent is None:
            return await _no_agent(send, slug)
        if self._pages is not None and _is_browser(scope):
            return await self._page(send, self._pages, self._pages.agent(agent))
        return await answer(send, 200, self._summary(agent), [_VARY])

    async def _page(self, send: Send, pages: Pages, body: bytes) -> None:
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
    await answer(send, 404, {"error": {"code": "agent_not_found", "message": f"There is no agent {slug!r} here."}})


def _is_browser(scope: Scope) -> bool:
    """Browsers name HTML in what they accept; programs that take anything do not."""
    return "text/html" in (header(scope, b"accept") or "")


def _matches(asked: str | None, etag: str) -> bool:
    """Weak comparison, as RFC 9110 asks for here."""
    if asked is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in asked.split(",")]
    return "*" in tags or etag.removeprefix("W/") in tags
