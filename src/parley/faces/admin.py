"""Operations for administrators and monitoring over HTTP: API keys, signing keys, runs, push, probes and metrics."""

import asyncio
from collections import Counter
from typing import ClassVar, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from parley.audit.rules import ACTIONS, AuditEntry, AuditQuery
from parley.audit.service import AuditLog, record
from parley.budgets.rules import LimitValues
from parley.budgets.service import StoredLimits, entry_limits_view, limits_view, tree_view
from parley.clock import iso, now_ms
from parley.errors import Invalid, ParleyError, Stopping
from parley.execution.admission import STOPPING_WAIT_S, Stop, StopKind, WorkControl
from parley.http.face import Face, Request, Response, operation
from parley.http.requests import Headers, page_cursor, page_size, page_token, place_token, time_ms
from parley.push.hooks import HookEntry, Hooks
from parley.runs.frames import MailDeliveries, StoredDelivery
from parley.runs.listing import UsageQuery, UsageSum, sum_principals, sum_runs, sum_tree
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import text_of
from parley.runs.rules.state import State
from parley.runs.rules.usage import shown
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.runs.store import Listing, Readiness
from parley.security.groups import GroupMember, GroupRules, Groups, Memberships
from parley.security.keys import ApiKey, ApiKeys
from parley.security.sessions import StoredSessions
from parley.security.signing import SigningKeys
from parley.telemetry.metrics import MEDIA, Gauge, Metrics

MAX_SAID = 500
MAX_MEMBERS = 1000
"""Groups, or members of a group, in one response."""
MAX_SUMMED = 200
"""Members of a group whose usage is added up."""
Query = TypeVar("Query", bound=Struct)
DAY_MS = 24 * 3600 * 1000


class NewKey(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    scopes: list[str] | UnsetType = UNSET
    role: str | None = None
    groups: list[str] = []
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


class GroupQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str | None = None


class AuditParams(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    result: str | None = None
    since: str | None = None
    until: str | None = None
    page_size: int | None = None
    page_token: str = ""


class LimitQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    task: str | None = None


class Erasure(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    principal: str


class NewStop(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    kind: StopKind
    name: str
    reason: str = ""


class UsageParams(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    principal: str | None = None
    group: str | None = None
    conversation: str | None = None
    task: str | None = None
    since: str | None = None
    until: str | None = None
    page_token: str = ""


class Admin(Face[Principal]):
    max_body = 64 * 1024

    def __init__(
        self,
        exchange: Exchange,
        keys: ApiKeys,
        groups: Groups,
        sessions: StoredSessions,
        signing: SigningKeys,
        hooks: Hooks,
        deliveries: MailDeliveries,
        audit: AuditLog,
        control: WorkControl,
    ) -> None:
        self._exchange = exchange
        self._keys = keys
        self._groups = groups
        self._sessions = sessions
        self._signing = signing
        self._hooks = hooks
        self._deliveries = deliveries
        self._audit = audit
        self._limits, self._switch = control.limits, control.switch

    @operation("GET", "/admin/whoami")
    async def whoami(self, request: Request[Principal]) -> Response:
        principal = request.caller
        return Response(
            200,
            {
                "principal": str(principal),
                "kind": principal.kind,
                "name": principal.name,
                "scopes": sorted(principal.scopes),
                "agents": sorted(principal.agents),
                "role": principal.role,
                "groups": sorted(principal.groups),
            },
        )

    @operation("GET", "/admin/keys", permission="admin")
    async def keys(self, request: Request[Principal]) -> Response:
        return Response(200, {"keys": [key_view(key) for key in await self._keys.list()]})

    @operation("POST", "/admin/keys", permission="admin", body=NewKey)
    async def create_key(self, request: Request[Principal], wanted: NewKey) -> Response:
        scopes = None if wanted.scopes is UNSET else wanted.scopes
        expires_at = expiry(wanted.expires_days, now_ms())
        key, token = await self._keys.create(
            wanted.name, scopes, wanted.agents, expires_at, role=wanted.role, groups=wanted.groups
        )
        return Response(201, {**key_view(key), "token": token})

    @operation("DELETE", "/admin/keys/{id}", permission="admin")
    async def revoke_key(self, request: Request[Principal]) -> Response:
        return Response(200, key_view(await self._keys.revoke(request.path["id"])))

    @operation("GET", "/admin/groups", permission="operate")
    async def groups(self, request: Request[Principal]) -> Response:
        """List the groups of keys and of users that were seen, each with its role; with `name`, the members of one."""
        name = _query(request, GroupQuery).name
        if name is None:
            return Response(200, groups_view(await self._groups.memberships(), self._groups.rules))
        found = await self._groups.members(name)
        members = sorted(found.members, key=lambda one: one.principal)
        view = {
            "name": name,
            "role": self._groups.rules.roles.get(name),
            "members": [member_view(one) for one in members[:MAX_MEMBERS]],
            "complete": found.complete and len(members) <= MAX_MEMBERS,
        }
        return Response(200, view)

    @operation("POST", "/admin/signing/rotate", permission="admin")
    async def rotate(self, request: Request[Principal]) -> Response:
        key = await self._signing.rotate()
        await record("signing.rotated", "key", key.kid)
        return Response(200, {"kid": key.kid, "createdAt": iso(key.created_at)})

    @operation("GET", "/admin/audit", permission="admin")
    async def audit(self, request: Request[Principal]) -> Response:
        """List entries of the audit log by page, newest first."""
        query = audit_query(_query(request, AuditParams))
        found = await self._audit.read(query)
        more = found[-1].seq if len(found) == query.limit else None
        return Response(
            200, {"entries": [entry_view(one) for one in found], "nextPageToken": str(more) if more else ""}
        )

    @operation("POST", "/admin/audit/erase", permission="admin", body=Erasure)
    async def erase(self, request: Request[Principal], wanted: Erasure) -> Response:
        """Erase a principal from the audit log, its groups and its sessions. The entry about it does not name the
        principal."""
        if not wanted.principal:
            raise Invalid("principal must not be empty.", field="principal")
        count = await self._audit.erase(wanted.principal)
        await self._groups.forget(wanted.principal)
        await self._sessions.forget(wanted.principal)
        await record("audit.erased", count=count)
        return Response(200, {"erased": count})

    @operation("GET", "/admin/stops", permission="operate")
    async def stops(self, request: Request[Principal]) -> Response:
        return Response(200, {"stops": [stop_view(stop) for stop in await self._switch.list()]})

    @operation("POST", "/admin/stops", permission="operate", body=NewStop)
    async def stop(self, request: Request[Principal], wanted: NewStop) -> Response:
        """Cancel all unfinished tasks of a principal, a group or an agent, and refuse new ones."""
        stop, count = await self._switch.stop(wanted.kind, wanted.name, str(request.caller), wanted.reason)
        return Response(201, {**stop_view(stop), "canceled": count})

    @operation("DELETE", "/admin/stops/{kind}/{name:path}", permission="operate")
    async def allow(self, request: Request[Principal]) -> Response:
        return Response(200, stop_view(await self._switch.allow(request.path["kind"], request.path["name"])))

    @operation("GET", "/admin/limits")
    async def limits(self, request: Request[Principal]) -> Response:
        """List the limits of all subjects, or those that hold for the caller, with what is left of their budgets. With
        `task`, what a task and the tasks that it started have spent, and the budgets that hold for it."""
        task = _query(request, LimitQuery).task
        if task is not None:
            run = await self._exchange.visible(task, request.caller)
            spent, budgets = await self._limits.of_tree(self._exchange.budgets, run)
            return Response(200, tree_view(run, spent, budgets))
        found = await self._limits.visible(request.caller)
        return Response(200, {"limits": [limits_view(one) for one in found]})

    @operation("PUT", "/admin/limits/{kind}/{name:path}", permission="admin", body=LimitValues)
    async def set_limits(self, request: Request[Principal], wanted: LimitValues) -> Response:
        """Set the limits of a subject, in place of those that were set before; `*` stands for every name."""
        kind, name = request.path["kind"], request.path["name"]
        return Response(200, entry_limits_view(await self._limits.set(kind, name, wanted, str(request.caller))))

    @operation("DELETE", "/admin/limits/{kind}/{name:path}", permission="admin")
    async def remove_limits(self, request: Request[Principal]) -> Response:
        kind, name = request.path["kind"], request.path["name"]
        return Response(200, entry_limits_view(await self._limits.remove(kind, name)))

    @operation("GET", "/admin/agents", permission="operate")
    async def agents(self, request: Request[Principal]) -> Response:
        return Response(200, {"agents": [agent_view(agent) for agent in self._exchange.agents.values()]})

    @operation("GET", "/admin/push", permission="operate")
    async def push(self, request: Request[Principal]) -> Response:
        """List push notification configurations by page: `dead=true` for those that failed for good, `after=TASK/ID`
        for the next page."""
        query = request.query
        task, _, id_ = query.get("after", "").partition("/")
        entries, more = await self._hooks.page((task, id_), dead=query.get("dead") == "true")
        return Response(
            200, {"push": [push_view(entry) for entry in entries], "next": "/".join(more) if more else None}
        )

    @operation("POST", "/admin/push/{task}/{id:path}/redrive", permission="operate")
    async def redrive(self, request: Request[Principal]) -> Response:
        place = request.path
        return Response(200, push_view(await self._hooks.redrive(place["task"], place["id"])))

    @operation("GET", "/admin/deliveries", permission="operate")
    async def deliveries(self, request: Request[Principal]) -> Response:
        """List delivery events of providers in the order of their ids; `after=ID` for the next page."""
        kept = await self._deliveries.page(request.query.get("after", ""))
        return Response(200, {"deliveries": [delivery_view(one) for one in kept]})

    @operation("GET", "/admin/runs", permission="operate")
    async def runs(self, request: Request[Principal]) -> Response:
        """List the runs of all principals by page, latest status first."""
        query = _query(request, RunQuery)
        size = page_size(query.page_size)
        listing = Listing(
            query.principal,
            query.agent,
            query.context_id,
            _state(query.state),
            None if query.since is None else time_ms(query.since, "since"),
            page_cursor(query.page_token),
            size,
        )
        found, total = await self._exchange.store.list_runs(listing)
        views = [await self._exchange.view(run.id) for run in found]
        runs = [run_view(view, await self._latest(view)) for view in views]
        return Response(200, {"runs": runs, "nextPageToken": page_token(found, size), "totalSize": total})

    @operation("GET", "/admin/usage", permission="operate")
    async def usage(self, request: Request[Principal]) -> Response:
        """Add up tokens and cost: of the runs of a principal, a group or a conversation that were created in a time
        range, or of one `task` and the runs that it started."""
        query = _query(request, UsageParams)
        if query.group is not None:
            if query.principal is not None or query.task is not None or query.page_token:
                raise Invalid("group cannot be combined with principal, task or pageToken.", field="group")
            found = await self._group_usage(query.group, _usage_query(query))
        elif query.task is None:
            found = await sum_runs(self._exchange.store, _usage_query(query))
        elif any((query.principal, query.conversation, query.since, query.until, query.page_token)):
            raise Invalid("task cannot be combined with other filters.", field="task")
        else:
            run = await self._exchange.visible(query.task, request.caller)
            found = await sum_tree(self._exchange.store, run)
        return Response(
            200,
            {
                "runs": found.runs,
                "usage": shown(found.totals),
                "complete": found.complete,
                "nextPageToken": place_token(found.after),
            },
        )

    async def _group_usage(self, group: str, query: UsageQuery) -> UsageSum:
        """Add up the runs of the present members of a group."""
        found = await self._groups.members(group)
        names = sorted({one.principal for one in found.members})
        if len(names) > MAX_SUMMED:
            raise Invalid(f"The group has more than {MAX_SUMMED} members, too many to add up.", field="group")
        return await sum_principals(self._exchange.store, query, names)

    async def _latest(self, view: View) -> str:
        """Return the text of the last message of a run."""
        said = view.status.said or (view.history[-1] if view.history else None)
        return text_of(await self._exchange.attachments.loaded(said.parts)) if said else ""


class PublicKeys(Face[None]):
    """Serves the public keys that verify cards, webhooks and tokens of this server."""

    headers: ClassVar[Headers] = [(b"cache-control", b"public, max-age=300")]

    def __init__(self, signing: SigningKeys) -> None:
        self._signing = signing

    @operation("GET", "/.well-known/jwks.json", open=True)
    async def jwks(self, request: Request[None]) -> Response:
        return Response(200, await self._signing.jwks())


def key_view(key: ApiKey) -> dict[str, object]:
    """Render an API key without its secret."""
    return {
        "id": key.id,
        "name": key.name,
        "role": key.principal.role,
        "scopes": sorted(key.principal.scopes),
        "groups": sorted(key.groups),
        "agents": sorted(key.agents),
        "createdAt": iso(key.created_at),
        "expiresAt": None if key.expires_at is None else iso(key.expires_at),
        "lastUsedAt": None if key.last_used_at is None else iso(key.last_used_at),
    }


def audit_query(params: AuditParams, limit: int | None = None) -> AuditQuery:
    """Return the query of a page, newest first; its token is the number of the last entry."""
    if params.action is not None and params.action not in ACTIONS:
        raise Invalid(f"action must be one of: {', '.join(ACTIONS)}.", field="action")
    if params.result not in (None, "done", "refused"):
        raise Invalid("result must be done or refused.", field="result")
    after = params.page_token
    if after and not (after.isascii() and after.isdigit() and len(after) < 19):
        raise Invalid("pageToken is not valid.", field="pageToken")
    return AuditQuery(
        params.actor,
        params.action,
        params.target,
        params.result,
        None if params.since is None else time_ms(params.since, "since"),
        None if params.until is None else time_ms(params.until, "until"),
        int(after) if after else None,
        limit=limit or page_size(params.page_size),
    )


def entry_view(entry: AuditEntry) -> dict[str, object]:
    """Render an entry. `actor`, `address` and `person` are null if they were erased."""
    return {
        "seq": entry.seq,
        "at": iso(entry.at),
        "action": entry.action,
        "result": entry.result,
        "code": entry.code,
        "kind": entry.kind,
        "target": entry.target,
        "count": entry.count,
        "actor": entry.actor,
        "address": entry.address,
        "person": entry.person,
        "hash": entry.hash.hex(),
    }


def stop_view(stop: Stop) -> dict[str, object]:
    return {"kind": stop.kind, "name": stop.name, "reason": stop.reason, "by": stop.by, "at": iso(stop.at)}


def groups_view(found: Memberships, rules: GroupRules) -> dict[str, object]:
    """Render all groups: those that have members, and those that the settings give a role."""
    counts = Counter(group for one in found.members for group in one.groups)
    counts.update(dict.fromkeys(rules.roles, 0))
    groups = [{"name": name, "role": rules.roles.get(name), "members": counts[name]} for name in sorted(counts)]
    return {"groups": groups[:MAX_MEMBERS], "complete": found.complete and len(groups) <= MAX_MEMBERS}


def member_view(member: GroupMember) -> dict[str, object]:
    return {"principal": member.principal, "seenAt": None if member.seen_at is None else iso(member.seen_at)}


def push_view(entry: HookEntry) -> dict[str, object]:
    """Render the state of a push notification configuration, without its credentials."""
    due = entry.record.due
    return {
        "task": entry.hook.task,
        "id": entry.hook.id,
        "receiver": entry.hook.receiver,
        "version": entry.hook.version,
        "state": entry.state,
        "delivered": entry.kept.cursor,
        "attempts": entry.kept.attempts,
        "rejected": entry.kept.rejected,
        "reason": entry.kept.reason,
        "since": iso(entry.record.at),
        "nextAt": iso(due) if due is not None and entry.state == "retrying" else None,
    }


def delivery_view(kept: StoredDelivery) -> dict[str, object]:
    delivery = kept.delivery
    return {
        "eventId": delivery.id,
        "provider": delivery.provider,
        "deliveryState": delivery.state,
        "about": delivery.about,
        "payload": delivery.payload,
        "receivedAt": iso(kept.at),
    }


def run_view(view: View, latest: str) -> dict[str, object]:
    run, origin = view.run, view.run.origin
    return {
        "id": run.id,
        "agent": run.agent,
        "principal": run.principal,
        "contextId": run.conversation,
        "state": run.state.value,
        "createdAt": iso(run.created_at),
        "statusAt": iso(run.status_at),
        "parent": run.parent,
        "origin": None if origin is None else {"task": origin.run, "at": origin.seq},
        "said": latest[:MAX_SAID],
    }


def agent_view(agent: Agent) -> dict[str, object]:
    return {
        "slug": agent.slug,
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "visibility": agent.visibility,
        "allow": agent.allow,
        "model": agent.model,
        "tools": agent.tools,
        "capabilities": agent.capabilities,
        "limits": agent.limits,
        "rescue": agent.rescue,
        "replies": agent.replies,
    }


def expiry(days: float | None, now: int) -> int | None:
    if days is None:
        return None
    if not 0 < days <= 36_500:
        raise Invalid("expiresDays must be more than 0 and at most 36500.", field="expiresDays")
    return now + int(days * DAY_MS)


def _query(request: Request[Principal], kind: type[Query]) -> Query:
    try:
        return msgspec.convert(dict(request.query), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from None


def _usage_query(query: UsageParams) -> UsageQuery:
    return UsageQuery(
        query.principal,
        query.conversation,
        None if query.since is None else time_ms(query.since, "since"),
        None if query.until is None else time_ms(query.until, "until"),
        page_cursor(query.page_token),
    )


def _state(name: str | None) -> State | None:
    try:
        return State(name) if name else None
    except ValueError:
        raise Invalid(f"state must be one of {', '.join(State)}.", field="state") from None


class Probes(Face[None]):
    """Health probes: the process answers, and it can accept work."""

    headers: ClassVar[Headers] = []

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._readiness = Readiness(exchange.store)

    @operation("GET", "/healthz", open=True)
    async def health(self, request: Request[None]) -> Response:
        return Response(200, {"status": "ok"})

    @operation("GET", "/readyz", open=True)
    async def ready(self, request: Request[None]) -> Response:
        """Answer 200 if the store can be read and written, so that work can be accepted."""
        if self._exchange.admission.stopping:
            wait = [(b"retry-after", b"%d" % STOPPING_WAIT_S)]
            return Response(503, {"status": "stopping", "code": Stopping.code}, wait)
        if (error := await self._readiness.error()) is not None:
            return Response(503, {"status": "unavailable", "code": error.code})
        return Response(200, {"status": "ok"})


# `GET /metrics` for Prometheus. It shows which agents exist and how busy they are, so it requires admin.

MOST_WAITING = 1000
"""Queues are counted up to this length; a longer queue needs action in any case."""
BUDGET_LEFT = "Share of a budget of an agent or a group that is left, from 0 to 1."
STORE_S = 2.0
"""Longest time to wait for the database."""


class Siblings(Protocol):
    """The other workers of this server."""

    async def with_siblings(self, own: bytes) -> tuple[bytes, list[Gauge]]:
        """Return the metrics of all workers, labelled, and gauges about the workers."""
        ...


class MetricsFace(Face[Principal]):
    headers: ClassVar[Headers] = []

    def __init__(
        self, metrics: Metrics, exchange: Exchange, limits: StoredLimits, siblings: Siblings | None = None
    ) -> None:
        self._limits = limits
        self.metrics = metrics
        self._exchange = exchange
        self._siblings = siblings

    @operation("GET", "/metrics", permission="operate")
    async def show(self, request: Request[Principal]) -> Response:
        gauges = await self._kept()
        if self._siblings is None:
            text = await asyncio.to_thread(self.metrics.text, [*self._here(), *gauges])
        else:
            text, more = await self._siblings.with_siblings(await self.text())
            text += self.metrics.gauges([*more, *gauges])
        return Response(200, text, media=MEDIA)

    async def text(self) -> bytes:
        """Return the metrics of this process, without those of the store."""
        return await asyncio.to_thread(self.metrics.text, self._here())

    def _here(self) -> list[Gauge]:
        exchange, members = self._exchange, self._exchange.membership
        return [
            Gauge("parley_followers", "Open streams and waiting callers.", {"": exchange.streams.followers}),
            Gauge("parley_runs_under_way", "Turns that run in this process.", exchange.execution.busy),
            Gauge("parley_replicas", "Replicas that are alive, this one included.", {"": len(members.alive)}),
            Gauge("parley_leads", "1 if this replica is the leader, else 0.", {"": int(members.leads)}),
        ]

    async def _kept(self) -> list[Gauge]:
        """Return the gauges of the store. Monitoring gets an answer even if the database does not answer."""
        about = "1 if the database answered this request, else 0."
        try:
            async with asyncio.timeout(STORE_S):
                waiting, size = await self._waiting(), await self._exchange.store.size()
                shares = await self._limits.shares()
        except (ParleyError, TimeoutError):
            return [Gauge("parley_store_up", about, {"": 0})]
        return [
            Gauge("parley_store_up", about, {"": 1}),
            Gauge("parley_store_bytes", "Size of the database in bytes.", {"": size}),
            Gauge("parley_runs_waiting", "Runs that wait for a slot of their agent.", waiting),
            *([Gauge("parley_budget_left_ratio", BUDGET_LEFT, shares, "budget")] if shares else []),
        ]

    async def _waiting(self) -> dict[str, int]:
        """Return the number of waiting runs by agent; only for agents with a limit: runs of others do not wait long."""
        store, agents = self._exchange.store, self._exchange.agents.values()
        limited = [agent.slug for agent in agents if agent.limits.max_concurrent is not None]
        return {slug: len(await store.runs_in(State.SUBMITTED, agent=slug, limit=MOST_WAITING)) for slug in limited}
