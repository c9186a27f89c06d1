"""`/workspaces/{id}/delegate`: one node hands something to another, and asks later what became of it."""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.routing import Route
from starlette.types import Receive, Scope

from parley.clock import iso
from parley.core.delegations import PREVIEW
from parley.core.nodes import check_id
from parley.core.runs import WAITING
from parley.engine.delegations import Delegated, Delegations
from parley.faces.proxy.serving import route
from parley.faces.registry.callers import Callers, owner_of
from parley.faces.registry.serving import Reply, body_of, id_of

MAX_TASK = 1024 * 1024

Named = Annotated[str, Meta(min_length=1, max_length=128)]
Words = Annotated[str, Meta(min_length=1)]


class DelegateIn(Struct, frozen=True):
    target_id: str
    task: Words
    idempotency_key: str | None = None


class RecordIn(Struct, frozen=True):
    target_id: str
    task: Words
    delegation_id: Named | None = None


class UpdateIn(Struct, frozen=True):
    status: Literal["completed", "failed"]
    response_preview: str = ""
    error: str = ""


class DelegationCalls:
    """For the node itself, and for administrators."""

    def __init__(self, delegations: Delegations, callers: Callers) -> None:
        self._delegations = delegations
        self._callers = callers

    def routes(self) -> list[Route]:
        one = "/workspaces/{id}/delegations/{delegation}"
        return [
            route("POST", "/workspaces/{id}/delegate", self.delegate),
            route("GET", "/workspaces/{id}/delegations", self.newest),
            route("POST", "/workspaces/{id}/delegations/record", self.record),
            route("GET", one, self.get),
            route("POST", f"{one}/update", self.update),
            route("POST", f"{one}/cancel", self.cancel),
        ]

    async def delegate(self, scope: Scope, receive: Receive) -> Reply:
        source = await self._source(scope)
        asked = await body_of(receive, DelegateIn, MAX_TASK)
        found, hit = await self._delegations.delegate(
            source, check_id(asked.target_id), asked.task, asked.idempotency_key
        )
        shown = {"delegation_id": found.id, "status": "delegated", "target_id": found.delegation.target}
        if not hit:
            return Reply(202, shown)
        return Reply(200, {**shown, "status": found.status, "idempotent_hit": True})

    async def newest(self, scope: Scope, receive: Receive) -> Reply:
        source = await self._source(scope)
        return Reply(200, [delegation_view(one) for one in await self._delegations.newest(source)])

    async def get(self, scope: Scope, receive: Receive) -> Reply:
        source = await self._source(scope)
        found = await self._delegations.get(source, scope["path_params"]["delegation"])
        return Reply(200, {**delegation_view(found), "task": found.delegation.task, "response": found.response})

    async def record(self, scope: Scope, receive: Receive) -> Reply:
        source = await self._source(scope)
        told = await body_of(receive, RecordIn, MAX_TASK)
        found = await self._delegations.record(source, check_id(told.target_id), told.task, told.delegation_id)
        return Reply(201, {"delegation_id": found.id, "status": found.status, "target_id": found.delegation.target})

    async def update(self, scope: Scope, receive: Receive) -> Reply:
        source = await self._source(scope)
        told = await body_of(receive, UpdateIn, MAX_TASK)
        words = told.error if told.status == "failed" else told.response_preview
        found = await self._delegations.update(source, scope["path_params"]["delegation"], told.status, words)
        return Reply(200, delegation_view(found))

    async def cancel(self, scope: Scope, receive: Receive) -> Reply:
        source = await self._source(scope)
        return Reply(200, delegation_view(await self._delegations.cancel(source, scope["path_params"]["delegation"])))

    async def _source(self, scope: Scope) -> str:
        id_ = id_of(scope)
        owner_of(await self._callers.asking(scope, id_), id_)
        return id_


def delegation_view(one: Delegated) -> dict[str, object]:
    waits = one.run.state in WAITING and not one.delegation.id
    return {
        "delegation_id": one.id,
        "source_id": one.delegation.source,
        "target_id": one.delegation.target,
        "status": one.status,
        "summary": one.delegation.task[:PREVIEW],
        "response_preview": one.response[:PREVIEW],
        "error_code": one.code or None,
        "task_id": one.run.id,
        "input_required": waits,
        "created_at": iso(one.run.created_at),
        "updated_at": iso(one.run.updated_at),
    }
