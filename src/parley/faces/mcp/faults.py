"""How our errors look to MCP clients: the JSON-RPC code and the HTTP status."""

import msgspec

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
from parley.faces.rpc import Id, InvalidRequest

_PARAMS = -32602
_MISSING = -32002
"""What a resource that is not there was called until 2025-11-25."""


class HeaderMismatch(Invalid):
    """A header says something else than the request that it announces."""

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
"""What nobody mends by calling a tool in another way."""


def failure(id_: Id, error: ParleyError, *, modern: bool) -> tuple[int, bytes]:
    """The HTTP status and the answer. Clients of the older revisions look into an answer only if it is a 200."""
    code, status = next((code, status) for kind, code, status in _FAULTS if isinstance(error, kind))
    if isinstance(error, NotFound) and not modern:
        code = _MISSING
    said = {"code": code, "message": error.message, "data": {"reason": error.code, **error.details}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "error": said}, enc_hook=str)
    return 200 if code in _ASKED_WRONG and not modern else status, body
