"""Looking after a server over HTTP: API keys, signing keys, agents; and the public keys for everybody."""

from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.datastructures import QueryParams
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.clock import iso, now_ms
from parley.core.access import USER_SCOPES, Principal
from parley.core.access import Scope as Right
from parley.core.agents import Agent
from parley.core.artifacts import text_of
from parley.core.runs import State
from parley.core.views import View
from parley.engine.deliveries import Deliveries, Kept
from parley.engine.exchange import Exchange
from parley.engine.hooks import Entry, Hooks
from parley.engine.ports import Listing
from parley.errors import Invalid, InvalidJson, ParleyError
from parley.faces.a2a.reading import page_size, time_ms
from parley.faces.http import Endpoint, Headers, answer, check_text, read_json
from parley.faces.identity import demanded
from parley.faces.paging import page_cursor, page_token
from parley.faces.refusals import refuse
from parley.security.keys import ApiKey, ApiKeys
from parley.security.signing import SigningKeys

MAX_BODY = 64 * 1024
MAX_SAID = 500
DAY_MS = 24 * 3600 * 1000

T = TypeVar("T")
Reply = tuple[int, object]
Action = Callable[[Scope, Receive], Awaitable[Reply]]

_PRIVATE: Headers = [(b"cache-control", b"no-store")]
_PUBLIC: Headers = [(b"cache-control", b"public, max-age=300")]


class NewKey(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    scopes: list[str] | UnsetType = UNSET
    agents: list[str] = []
    expires_days: float | None = None


class RunQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    agent: str | None = None
    principal: str | None = None
    context_id: str | None = None
    state: str | None = None
    since: str | None = None
    page_size: int | None = None
    page_token: str = ""


class Admin:
    def __init__(
        self, exchange: Exchange, keys: ApiKeys, signing: SigningKeys, hooks: Hooks, deliveries: Deliveries
    ) -> None:
        self._exchange = exchange
        self._keys = keys
        self._signing = signing
        self._hooks = hooks
        self._deliveries = deliveries

    def routes(self) -> list[Route]:
        return [
            _route("GET", "/admin/whoami", self.whoami),
            _route("GET", "/admin/keys", self.keys, "admin"),
            _route("POST", "/admin/keys", self.create_key, "admin"),
            _route("DELETE", "/admin/keys/{id}", self.revoke_key, "admin"),
            _route("POST", "/admin/signing/rotate", self.rotate, "admin"),
            _route("GET", "/admin/agents", self.agents, "admin"),
            _route("GET", "/admin/push", self.push, "admin"),
            _route("POST", "/admin/push/{task}/{id:path}/redrive", self.redrive, "admin"),
            _route("GET", "/admin/deliveries", self.deliveries, "admin"),
            _route("GET", "/admin/runs", self.runs, "admin"),
            Route("/.well-known/jwks.json", Endpoint(self.jwks), methods=["GET"]),
        ]

    async def whoami(self, scope: Scope, receive: Receive) -> Reply:
        principal: Principal = scope["principal"]
        return 200, {
            "principal": str(principal), "kind": principal.kind, "name": principal.name,
            "scopes": sorted(principal.scopes), "agents": sorted(principal.agents),
        }  # fmt: skip

    async def keys(self, scope: Scope, receive: Receive) -> Reply:
        return 200, {"keys": [key_view(key) for key in await self._keys.list()]}

    async def create_key(self, scope: Scope, receive: Receive) -> Reply:
        wanted = _decoded(await read_json(receive, MAX_BODY), NewKey)
        scopes = USER_SCOPES if wanted.scopes is UNSET else wanted.scopes
        expires_at = expiry(wanted.expires_days, now_ms())
        key, token = await self._keys.create(wanted.name, scopes, wanted.agents, expires_at)
        return 201, {**key_view(key), "token": token}

    async def revoke_key(self, scope: Scope, receive: Receive) -> Reply:
        return 200, key_view(await self._keys.revoke(scope["path_params"]["id"]))

    async def rotate(self, scope: Scope, receive: Receive) -> Reply:
        key = await self._signing.rotate()
        return 200, {"kid": key.kid, "createdAt": iso(key.created_at)}

    async def agents(self, scope: Scope, receive: Receive) -> Reply:
        return 200, {"agents": [agent_view(agent) for agent in self._exchange.agents.values()]}

    async def push(self, scope: Scope, receive: Receive) -> Reply:
        """A page of them: `dead=true` for those that were given up, `after=TASK/ID` to go on."""
        query = QueryParams(scope["query_string"])
        task, _, id_ = query.get("after", "").partition("/")
        entries, more = await self._hooks.page((task, id_), dead=query.get("dead") == "true")
        return 200, {"push": [push_view(entry) for entry in entries], "next": "/".join(more) if more else None}

    async def redrive(self, scope: Scope, receive: Receive) -> Reply:
        place = scope["path_params"]
        return 200, push_view(await self._hooks.redrive(place["task"], place["id"]))

    async def deliveries(self, scope: Scope, receive: Receive) -> Reply:
        """What providers told about what was sent, in the order of their ids; `after=ID` to go on."""
        kept = await self._deliveries.page(QueryParams(scope["query_string"]).get("after", ""))
        return 200, {"deliveries": [delivery_view(one) for one in kept]}

    async def runs(self, scope: Scope, receive: Receive) -> Reply:
        """Everybody's runs, latest status first, by pages."""
        query = _query(scope)
        size = page_size(query.page_size)
        listing = Listing(
            query.principal, query.agent, query.context_id, _state(query.state),
            None if query.since is None else time_ms(query.since, "since"), page_cursor(query.page_token), size,
        )  # fmt: skip
        found, total = await self._exchange.store.list_runs(listing)
        views = [await self._exchange.view(run.id) for run in found]
        runs = [run_view(view, await self._latest(view)) for view in views]
        return 200, {"runs": runs, "nextPageToken": page_token(found, size), "totalSize": total}

    async def _latest(self, view: View) -> str:
        """What was said last."""
        said = view.status.said or (view.history[-1] if view.history else None)
        return text_of(await self._exchange.attachments.loaded(said.parts)) if said else ""

    async def jwks(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            published = await self._signing.jwks()
        except ParleyError as error:
            return await refuse(send, error)
        return await answer(send, 200, published, _PUBLIC)


def key_view(key: ApiKey) -> dict[str, object]:
    """Everything about a key but what it is recognised by."""
    return {
        "id": key.id, "name": key.name, "scopes": sorted(key.scopes), "agents": sorted(key.agents),
        "createdAt": iso(key.created_at),
        "expiresAt": None if key.expires_at is None else iso(key.expires_at),
        "lastUsedAt": None if key.last_used_at is None else iso(key.last_used_at),
    }  # fmt: skip


def push_view(entry: Entry) -> dict[str, object]:
    """How a push notification configuration fares; nothing of what it is authenticated with."""
    due = entry.record.due
    return {
        "task": entry.hook.task, "id": entry.hook.id, "receiver": entry.hook.receiver, "version": entry.hook.version,
        "state": entry.state, "delivered": entry.kept.cursor, "attempts": entry.kept.attempts,
        "rejected": entry.kept.rejected, "reason": entry.kept.reason, "since": iso(entry.record.at),
        "nextAt": iso(due) if due is not None and entry.state == "retrying" else None,
    }  # fmt: skip


def delivery_view(kept: Kept) -> dict[str, object]:
    delivery = kept.delivery
    return {
        "eventId": delivery.id, "provider": delivery.provider, "deliveryState": delivery.state,
        "about": delivery.about, "payload": delivery.payload, "receivedAt": iso(kept.at),
    }  # fmt: skip


def run_view(view: View, latest: str) -> dict[str, object]:
    run, origin = view.run, view.run.origin
    return {
        "id": run.id, "agent": run.agent, "principal": run.principal, "contextId": run.conversation,
        "state": run.state.value, "createdAt": iso(run.created_at), "statusAt": iso(run.status_at),
        "parent": run.parent, "origin": None if origin is None else {"task": origin.run, "at": origin.seq},
        "said": latest[:MAX_SAID],
    }  # fmt: skip


def agent_view(agent: Agent) -> dict[str, object]:
    return {
        "slug": agent.slug, "name": agent.name, "description": agent.description, "version": agent.version,
        "visibility": agent.visibility, "allow": agent.allow, "model": agent.model, "tools": agent.tools,
        "capabilities": agent.capabilities, "limits": agent.limits, "rescue": agent.rescue, "replies": agent.replies,
    }  # fmt: skip


def expiry(days: float | None, now: int) -> int | None:
    if days is None:
        return None
    if not 0 < days <= 36_500:
        raise Invalid("A key expires in more than 0 and at most 36500 days.", field="expiresDays")
    return now + int(days * DAY_MS)


def _route(method: str, path: str, action: Action, right: Right | None = None) -> Route:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            demanded(scope, right)
            status, content = await action(scope, receive)
        except ParleyError as error:
            return await refuse(send, error, _PRIVATE)
        return await answer(send, status, content, _PRIVATE)

    return Route(path, Endpoint(handle), methods=[method])


def _query(scope: Scope) -> RunQuery:
    given = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
    try:
        return msgspec.convert(given, RunQuery, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from None


def _state(name: str | None) -> State | None:
    try:
        return State(name) if name else None
    except ValueError:
        raise Invalid(f"The state is one of {', '.join(State)}.", field="state") from None


def _decoded(body: bytes, kind: type[T]) -> T:
    check_text(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from None
    except msgspec.DecodeError as error:
        raise InvalidJson(f"The request is not JSON: {error}") from None
