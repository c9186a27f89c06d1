"""What the calls of this face share."""

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.errors import ParleyError
from parley.faces.http import Endpoint, answer
from parley.faces.proxy.faults import answer_of
from parley.faces.registry.serving import PRIVATE, Action, refuse


def route(method: str, path: str, action: Action) -> Route:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await action(scope, receive)
        except ParleyError as error:
            return await refused(send, error)
        return await answer(send, reply.status, reply.content, [*PRIVATE, *reply.headers])

    return Route(path, Endpoint(handle), methods=[method])


async def refused(send: Send, error: ParleyError) -> None:
    """In the words of calls through this server where they have any, else in those of the registry."""
    if (other := answer_of(error)) is not None:
        status, content, headers = other
        return await answer(send, status, content, [*PRIVATE, *headers])
    return await refuse(send, error)
