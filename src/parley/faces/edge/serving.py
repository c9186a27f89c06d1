"""What the calls of this face share: reading them, waiting for something, and refusing in the contract's shape."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.errors import Invalid, InvalidJson, ParleyError, Unauthenticated
from parley.faces.http import ClientGone, Endpoint, Headers, answer, check_text, header, read_json, retry_headers
from parley.faces.refusals import status_of
from parley.security.credentials import bearer

T = TypeVar("T")
Reply = tuple[int, object]
Action = Callable[[Scope, Receive], Awaitable[Reply]]

_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PRIVATE: Headers = [(b"cache-control", b"no-store")]


def route(method: str, path: str, action: Action) -> Route:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, content = await action(scope, receive)
        except ParleyError as error:
            return await refuse(send, error)
        return await answer(send, status, content, _PRIVATE)

    return Route(path, Endpoint(handle), methods=[method])


async def refuse(send: Send, error: ParleyError) -> None:
    """`{"error": {"code", "message"}}`: the code is ours, in words."""
    status, _ = status_of(error)
    headers = [*_PRIVATE, *retry_headers(error)]
    await answer(send, status, {"error": {"code": error.code, "message": error.message}}, headers)


def token_of(scope: Scope) -> str:
    token = header(scope, b"x-runtime-token")
    if token is None and (authorization := header(scope, b"authorization")) is not None:
        token = bearer(authorization)
    if not token:
        raise Unauthenticated("This needs the runtime's token: X-Runtime-Token.")
    return token


def instance_of(scope: Scope) -> str:
    """The process of the runtime that asks; empty where it does not say."""
    name = header(scope, b"x-runtime-instance")
    if name is not None and _INSTANCE.fullmatch(name) is None:
        raise Invalid("X-Runtime-Instance has 1 to 64 letters, digits, '.', '_' and '-'.")
    return name or ""


async def body_of(receive: Receive, kind: type[T], limit: int) -> T:
    return decoded(await read_json(receive, limit), kind)


def decoded(body: bytes, kind: type[T], wrong: type[Invalid] = Invalid) -> T:
    check_text(body)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise wrong(str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise InvalidJson("The request is not JSON.") from None


@asynccontextmanager
async def watching(receive: Receive) -> AsyncGenerator["asyncio.Task[None]", None]:
    """A task that ends when the client hangs up: what is handed to nobody would be missed for as long as a lease."""
    gone = asyncio.get_running_loop().create_task(_disconnected(receive))
    try:
        yield gone
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def rung(bell: asyncio.Event, at_most_s: float, gone: "asyncio.Task[None]") -> None:
    """Until the bell rings, or the time is up; raises when nobody is left to answer."""
    ringing = asyncio.get_running_loop().create_task(bell.wait())
    try:
        await asyncio.wait({ringing, gone}, timeout=max(0.0, at_most_s), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ringing.cancel()
    if gone.done():
        raise ClientGone
