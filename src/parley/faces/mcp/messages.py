"""Messages of MCP that this face reads. The dates are revisions of its specification."""

from base64 import b64decode
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from starlette.types import Scope

from parley.errors import (
    Forbidden,
    Invalid,
    InvalidJson,
    MediaTypeNotSupported,
    NestedTooDeep,
    NotFound,
    ParleyError,
    PayloadTooLarge,
    RateLimited,
    Stopping,
    StoreUnavailable,
    Unauthenticated,
    UnknownMethod,
    VersionNotSupported,
)
from parley.http.jsonrpc import Id, InvalidRequest
from parley.http.requests import header, headers_of

HANDSHAKE = ("2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions in which a client first sends `initialize`, and cancels with a notification."""
MODERN = ("2026-07-28",)
"""Revisions in which requests are independent of each other, and a disconnect cancels the call."""
PRIMED = "2025-11-25"
"""Revision from which clients understand an event without data, which sets the cursor for resuming."""

SESSION = b"mcp-session-id"
VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"

PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SERVER = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
KEY = "parley/idempotencyKey"
"""Member of a call's `_meta` with the same meaning as the header `Idempotency-Key`."""

ELICITS = ".e"
"""End of the id of a session whose client answers elicitations. A session has no other state."""
MOST_TASKS = 100
"""Number of tasks whose changes a client can subscribe to at once."""

CallId = str | int
"""Id of a request. Unlike in JSON-RPC itself, fractions and null are not allowed."""
Token = str | int | None


class RequestAbout(Struct, frozen=True):
    """Members of `_meta` in the params of a request."""

    token: Token = field(default=None, name="progressToken")
    key: str | None = field(default=None, name=KEY)
    protocol: str | UnsetType = field(default=UNSET, name=PROTOCOL)
    capabilities: Raw | UnsetType = field(default=UNSET, name=CAPABILITIES)


class McpParams(Struct, frozen=True):
    about: RequestAbout = field(default=RequestAbout(), name="_meta")
    name: str | None = None
    uri: str | None = None


class Hello(Struct, frozen=True, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Raw] = {}


class ClientCapabilities(Struct, frozen=True):
    extensions: dict[str, Raw] = {}


class CallParams(Struct, frozen=True):
    name: str
    arguments: Raw = Raw(b"{}")
    task: dict[str, Raw] | None = None
    """Given if the call is to be a task, in revision 2025-11-25."""


class ReadParams(Struct, frozen=True):
    uri: str


class McpCancelParams(Struct, frozen=True, rename="camel"):
    request_id: CallId
    reason: Annotated[str, msgspec.Meta(max_length=500)] | None = None


class WantedChanges(Struct, frozen=True, rename="camel"):
    """Changes that a client subscribes to."""

    tools_list_changed: bool | None = None
    task_ids: Annotated[list[str], msgspec.Meta(max_length=MOST_TASKS)] = []


class ListenParams(Struct, frozen=True):
    notifications: WantedChanges


T = TypeVar("T")


def read(kind: type[T], given: bytes | Raw, what: str = "params") -> T:
    try:
        return msgspec.json.decode(given, type=kind)
    except msgspec.MsgspecError as error:
        raise Invalid(f"Invalid {what}: {error}", field=what) from None
    except RecursionError:
        raise Invalid(f"Invalid {what}: nested too deeply.", field=what) from None


# Parley's errors in MCP: the JSON-RPC code and the HTTP status.

_PARAMS = -32602
_MISSING = -32002
"""Code of a missing resource up to revision 2025-11-25."""


class HeaderMismatch(Invalid):
    """A header does not match the body of its request."""

    code = "header_mismatch"


_FAULTS: list[tuple[type[ParleyError], int, int]] = [
    (InvalidJson, -32700, 400),
    (PayloadTooLarge, -32600, 413),
    (NestedTooDeep, -32600, 400),
    (MediaTypeNotSupported, -32600, 415),
    (InvalidRequest, -32600, 400),
    (UnknownMethod, -32601, 404),
    (HeaderMismatch, -32020, 400),
    (VersionNotSupported, -32022, 400),
    (Unauthenticated, -31401, 401),
    (Forbidden, -31403, 403),
    (StoreUnavailable, -32603, 503),
    (Stopping, -32603, 503),
    (RateLimited, -31429, 429),
    (ParleyError, _PARAMS, 400),
]
_ASKED_WRONG = frozenset((-32601, _PARAMS, _MISSING))
BROKEN = (Unauthenticated, Forbidden, StoreUnavailable, Stopping, RateLimited)
"""Errors that a model cannot fix by changing its tool call."""


def failure(id_: Id, error: ParleyError, *, modern: bool) -> tuple[int, bytes]:
    """Return the HTTP status and the body for an error. Clients of older revisions read a body only if the status is
    200."""
    code, status = next((code, status) for kind, code, status in _FAULTS if isinstance(error, kind))
    if isinstance(error, NotFound) and not modern:
        code = _MISSING
    said = {"code": code, "message": error.message, "data": {"reason": error.code, **error.details}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "error": said}, enc_hook=str)
    return 200 if code in _ASKED_WRONG and not modern else status, body


# A request of revision 2026-07-28 repeats facts of its body in its headers: both must match.

_NAMED = {"tools/call": "name", "resources/read": "uri"}
_ROUTING = (VERSION, METHOD, NAME)


def is_modern(scope: Scope) -> bool:
    """Return True for clients of revision 2026-07-28. A client that names no revision is older; a client that names an
    unknown revision counts as modern, so that it gets the list of supported ones."""
    version = header(scope, VERSION)
    return version is not None and version not in HANDSHAKE


def check_version(version: str) -> None:
    if version not in MODERN:
        raise VersionNotSupported("Unsupported protocol version.", supported=list(MODERN), requested=version)


def check(scope: Scope, method: str, params: McpParams) -> None:
    about = params.about
    if not isinstance(about.protocol, str) or not about.capabilities:
        raise Invalid(f"params._meta must have {PROTOCOL} and {CAPABILITIES}.", field="params._meta")
    names = [name for name, _ in scope["headers"]]
    twice = next((name for name in _ROUTING if names.count(name) > 1), None)
    if twice is not None:
        raise HeaderMismatch(f"The header {twice.decode()} appears more than once.")
    _agree(VERSION, header(scope, VERSION), about.protocol)
    _agree(METHOD, header(scope, METHOD), method)
    wanted = {"name": params.name, "uri": params.uri}.get(_NAMED.get(method, ""))
    if wanted is not None:
        _agree(NAME, _plain(headers_of(scope).get(NAME, b"")), wanted)
    check_version(about.protocol)


def _agree(name: bytes, told: str | None, said: str) -> None:
    if told != said:
        raise HeaderMismatch(f"The header {name.decode()} does not match the body of the request.")


def _plain(value: bytes) -> str | None:
    """Decode a header value. Text that headers cannot contain is sent as `=?base64?…?=`."""
    text = value.decode("latin-1").strip()
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return b64decode(text[9:-2], validate=True).decode()
    except ValueError:
        return None
