"""Code that the A2A bindings share: perform an operation in a dialect and write its result in the same dialect."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast

from msgspec import Raw, Struct
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from parley.errors import Invalid, ParleyError, VersionNotSupported
from parley.faces.a2a.dialect import Dialect, Operation, encode
from parley.faces.a2a.messages import A2ACall, PollParams, TaskPage, TaskShown
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.streams import A2AStream, StreamStep
from parley.faces.a2a.v1 import V1, HookListIn
from parley.faces.a2a.v11 import V11
from parley.http import sse
from parley.http.face import demanded
from parley.http.identity import challenge
from parley.http.requests import Headers, asked_version, header, headers_of, page_size, retry_headers
from parley.offload import LARGE, off_loop
from parley.runs.rules.access import Principal
from parley.telemetry import span, tell

T = TypeVar("T")
VERSIONS = ("0.3", "1.0", "1.1")


def version_of(scope: Scope) -> str:
    """Return the A2A version that the client asks for; 0.3 when it names none."""
    asked = asked_version(scope)
    if asked and asked not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise VersionNotSupported(f"A2A-Version {asked[:20]!r} is not supported; supported: {known}.")
    return asked or "0.3"


def call_of(
    scope: Scope,
    agent: str | None,
    principal: Principal | None = None,
    taken: Callable[[], None] | None = None,
) -> A2ACall:
    """Create a call of the given principal, or else of the authenticated principal of the request."""
    spoken = header(scope, b"a2a-extensions") or header(scope, b"x-a2a-extensions") or ""
    return A2ACall(
        agent,
        principal or demanded(scope),
        header(scope, b"idempotency-key"),
        header(scope, b"last-event-id"),
        frozenset(uri.strip() for uri in spoken.split(",") if uri.strip()) if spoken else frozenset(),
        scope.get("owner"),
        taken,
    )


def refusal_headers(error: ParleyError, scope: Scope) -> Headers:
    return [*retry_headers(error), *challenge(error, headers_of(scope))]


def addressed(call: A2ACall, params: Any) -> A2ACall:
    """Use the tenant of the request as the agent if the address names none."""
    tenant: str | None = getattr(params, "tenant", None)
    if not tenant or tenant == call.agent:
        return call
    if call.agent is not None:
        raise Invalid(f"tenant does not match the agent {call.agent!r} of this address.", field="tenant")
    return replace(call, agent=tenant)


async def perform(operations: Operations, dialect: Dialect, operation: Operation, call: A2ACall, params: Any) -> object:
    """Perform an operation that is no stream; return its result, ready to be encoded."""
    call = addressed(call, params)
    match operation:
        case "send":
            return await rendered(dialect.sent, await operations.send(call, dialect.ask(params)))
        case "get":
            shown = await operations.get(call, params)
            shared = is_poll(params) and shown.size <= LARGE
            return _written_once(dialect, shown) if shared else await rendered(dialect.task, shown)
        case "list":
            return await rendered(dialect.page, await operations.list_tasks(call, dialect.query(params)))
        case "cancel":
            return await rendered(dialect.task, await operations.cancel(call, params))
        case "set_hook":
            return dialect.hook_out(await operations.set_hook(call, dialect.hook(params)))
        case "get_hook":
            return dialect.hook_out(await operations.get_hook(call, dialect.hook_ref(params)))
        case "list_hooks":
            size, token = _page(params)
            return dialect.hooks_out(*await operations.list_hooks(call, dialect.hook_ref(params), size, token))
        case "delete_hook":
            return await operations.delete_hook(call, dialect.hook_ref(params))
        case "card":
            return Raw(await operations.card(call, dialect.version))
        case "fork" if isinstance(dialect, V1):
            return await rendered(dialect.task, await operations.fork(call, dialect.fork(params)))
        case _:
            raise Invalid(f"The operation {operation} is a stream, or A2A {dialect.version} does not have it.")


def is_poll(params: object) -> bool:
    """Return whether a request may wait for a change of its task."""
    return isinstance(params, PollParams) and params.current_generation is not None


_polled: dict[Dialect, tuple[TaskShown, Raw]] = {}
"""The last task that each dialect wrote for a long poll, cached: all that wait for a change get the same task."""


def _written_once(dialect: Dialect, shown: TaskShown) -> Raw:
    latest = _polled.get(dialect)
    if latest is None or latest[0] is not shown:
        latest = _polled[dialect] = shown, Raw(encode(dialect.task(shown)))
    return latest[1]


async def rendered(write: Callable[[T], object], shown: T) -> object:
    """Render a result in its dialect. A large result is also encoded, in a thread, to keep the event loop free."""
    size = size_of(shown)
    return write(shown) if size <= LARGE else await off_loop(size, lambda: Raw(encode(_in_pieces(write(shown)))))


def size_of(shown: object) -> int:
    """Return the approximate number of messages and parts of a result."""
    if isinstance(shown, TaskPage):
        return sum(one.size for one in shown.tasks)
    return shown.size if isinstance(shown, TaskShown) else 0


def _in_pieces(value: object) -> object:
    """Return the value with the members of its lists encoded one by one: a single call of the encoder would block all
    other threads."""
    if isinstance(value, list):
        return [Raw(encode(_in_pieces(one))) for one in cast(list[object], value)]
    if isinstance(value, Struct):
        fields: dict[str, object] = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {name: _in_pieces(one) for name, one in fields.items()}
        return replace(value, **changed)
    return value


async def open_stream(
    operations: Operations, dialect: Dialect, operation: Operation, call: A2ACall, params: Any
) -> A2AStream:
    """Open a stream. All checks that can refuse the request run here, before the stream starts."""
    call = addressed(call, params)
    if isinstance(dialect, V11):
        call = replace(call, generations=True)
    if operation == "stream":
        return await operations.stream(call, dialect.ask(params))
    return await operations.subscribe(call, params)


async def write_stream(
    receive: Receive,
    send: Send,
    stream: A2AStream,
    dialect: Dialect,
    wrap: tuple[bytes, bytes],
    failed: Callable[[ParleyError], bytes],
) -> None:
    """Write a stream, each frame between the two halves of `wrap`. An error in mid-stream becomes the last frame: it
    has no id and the event type `error`, by which HTTP clients recognize it."""
    with span("runtime.stream") as streamed:
        try:
            await sse.write(receive, send, stream.steps, partial(_written, dialect, wrap))
        except ParleyError as error:
            tell("stream.broken", code=error.code)
            streamed.outcome = "error"
            await sse.end(send, b"event: error\ndata: %b\n\n" % failed(error))
        finally:
            await stream.close()


_latest: dict[Dialect, tuple[StreamStep, list[tuple[int, bytes]]]] = {}
"""The last step that each dialect wrote, cached: all followers of a run get the same step at the same moment."""


def _written(dialect: Dialect, wrap: tuple[bytes, bytes], step: StreamStep) -> sse.Chunk | Awaitable[sse.Chunk]:
    latest = _latest.get(dialect)
    if latest is not None and latest[0] is step:
        return _joined(wrap, step, latest[1])
    if step.frames and size_of(step.frames[0].shown) > LARGE:
        return _written_off_loop(dialect, wrap, step)
    contents = _encoded(dialect, step)
    _latest[dialect] = step, contents
    return _joined(wrap, step, contents)


async def _written_off_loop(dialect: Dialect, wrap: tuple[bytes, bytes], step: StreamStep) -> sse.Chunk:
    return await asyncio.to_thread(lambda: _joined(wrap, step, _encoded(dialect, step)))


def _joined(wrap: tuple[bytes, bytes], step: StreamStep, contents: list[tuple[int, bytes]]) -> sse.Chunk:
    before, behind = wrap
    return b"".join(sse.frame(seq, before + content + behind) for seq, content in contents), step.last


def _encoded(dialect: Dialect, step: StreamStep) -> list[tuple[int, bytes]]:
    contents: list[tuple[int, bytes]] = []
    for frame in step.frames:
        content = dialect.frame(frame.shown, step.last and frame is step.frames[-1])
        if content is not None:
            content = _in_pieces(content) if size_of(frame.shown) > LARGE else content
            contents.append((frame.seq, encode(content)))
    return contents


def _page(params: Any) -> tuple[int | None, str]:
    if not isinstance(params, HookListIn):
        return None, ""
    return (None if params.page_size is None else page_size(params.page_size)), params.page_token or ""
