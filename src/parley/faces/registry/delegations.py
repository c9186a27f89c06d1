"""Routes of delegations, `/workspaces/{id}/delegate`: a node delegates a task to another and reads its status later."""

from parley.faces.registry.face import Caller, Callers, CallFace, id_of
from parley.faces.registry.messages import DelegateIn, RecordIn, UpdateIn, delegation_view
from parley.http.face import Request, Response, operation
from parley.nodes.delegations import Delegations
from parley.nodes.rules import check_id

_ALL = "/workspaces/{id}/delegations"
_ONE = f"{_ALL}/{{delegation}}"


class DelegationFace(CallFace):
    """Operations on delegations, for the node itself and for administrators."""

    max_body = 1024 * 1024

    def __init__(self, delegations: Delegations, callers: Callers) -> None:
        super().__init__(callers)
        self._delegations = delegations

    @operation("POST", "/workspaces/{id}/delegate", more="owner", body=DelegateIn)
    async def delegate(self, request: Request[Caller], given: DelegateIn) -> Response:
        target, key = check_id(given.target_id), given.idempotency_key
        found, hit = await self._delegations.delegate(id_of(request), target, given.task, key)
        shown = {"delegation_id": found.id, "status": "delegated", "target_id": found.delegation.target}
        if not hit:
            return Response(202, shown)
        return Response(200, {**shown, "status": found.status, "idempotent_hit": True})

    @operation("GET", _ALL, more="owner")
    async def newest(self, request: Request[Caller]) -> Response:
        return Response(200, [delegation_view(one) for one in await self._delegations.newest(id_of(request))])

    @operation("POST", f"{_ALL}/record", more="owner", body=RecordIn)
    async def record(self, request: Request[Caller], given: RecordIn) -> Response:
        target = check_id(given.target_id)
        found = await self._delegations.record(id_of(request), target, given.task, given.delegation_id)
        return Response(201, {"delegation_id": found.id, "status": found.status, "target_id": found.delegation.target})

    @operation("GET", _ONE, more="owner")
    async def get(self, request: Request[Caller]) -> Response:
        found = await self._delegations.get(id_of(request), request.path["delegation"])
        return Response(200, {**delegation_view(found), "task": found.delegation.task, "response": found.response})

    @operation("POST", f"{_ONE}/update", more="owner", body=UpdateIn)
    async def update(self, request: Request[Caller], given: UpdateIn) -> Response:
        response = given.error if given.status == "failed" else given.response_preview
        place = id_of(request), request.path["delegation"]
        return Response(200, delegation_view(await self._delegations.update(*place, given.status, response)))

    @operation("POST", f"{_ONE}/cancel", more="owner")
    async def cancel(self, request: Request[Caller]) -> Response:
        found = await self._delegations.cancel(id_of(request), request.path["delegation"])
        return Response(200, delegation_view(found))
