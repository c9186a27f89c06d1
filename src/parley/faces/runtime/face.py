"""`/internal/v1`: who asks is proved by a signature on every route; what is asked is handed to its operation."""

from contextlib import nullcontext

from starlette.types import Receive, Scope, Send

from parley.core.canonical import fields_of
from parley.errors import MethodNotAllowed, ParleyError
from parley.faces.http import ClientGone, Headers, answer, header, read_json, retry_headers
from parley.faces.runtime.faults import crashed, refuse
from parley.faces.runtime.requests import Reply, Request, query_values, read
from parley.faces.runtime.routes import PREFIX, Operation, Routes
from parley.faces.tracing import ROUTE
from parley.security.signatures import BODY_SHA256, KEY_ID, SIGNATURE, Carried, Signatures, user_id_of
from parley.telemetry import span


class Runtime:
    def __init__(self, signatures: Signatures, routes: Routes, max_body: int) -> None:
        self._signatures = signatures
        self._routes = routes
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        except ParleyError as error:
            await refuse(send, error, _headers(error))
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - the contract has an envelope for this too
            await crashed(send, error)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation, request = await self._admitted(scope, receive)
        with span(operation.span) if operation.span else nullcontext():
            reply = await operation.handler(request)
            if isinstance(reply, Reply):
                return await answer(send, reply.status, reply.content)
            return await reply(receive, send)

    async def _admitted(self, scope: Scope, receive: Receive) -> tuple[Operation, Request]:
        """The contract's order: a token that is refused for any reason has not used up its nonce."""
        signatures = self._signatures
        claims = signatures.check(header(scope, SIGNATURE), header(scope, KEY_ID))
        operation, run_id = self._routes.find(scope["method"], scope["path"].removeprefix(PREFIX))
        scope[ROUTE] = PREFIX + operation.path
        body = await read_json(receive, self._max_body)
        signatures.check_body(header(scope, BODY_SHA256), body)
        request = read(scope, run_id, body)
        signatures.bind(claims, carried(request))
        await signatures.burn(claims)
        return operation, request


def carried(request: Request) -> Carried:
    """Every place in which a request names a run, a thread or a principal. None stands for another: whichever of them a
    handler reads, it has been bound."""
    path = (request.run_id,) if request.run_id else ()
    return Carried(
        (*path, *_named(request, "run_id")),
        _named(request, "thread_id"),
        user_id_of(request.header(b"x-oa-user-id")),
        request.header(b"x-oa-guest-scope") or None,
    )


def _named(request: Request, name: str) -> tuple[str, ...]:
    """All that the query, the body and a tool request in the body say under a name. What is no text is no id, and is
    refused by whoever reads it."""
    fields = request.fields or {}
    said = [*query_values(request.scope, name), fields.get(name), fields_of(fields.get("request")).get(name)]
    return tuple(one for one in said if isinstance(one, str))


def _headers(error: ParleyError) -> Headers:
    if isinstance(error, MethodNotAllowed):
        return [(b"allow", str(error.details.get("allow", "")).encode())]
    return retry_headers(error)
