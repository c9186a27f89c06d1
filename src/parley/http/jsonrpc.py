"""Parser of JSON-RPC 2.0 requests, shared by all faces. Batches are refused."""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.errors import Invalid, InvalidJson

Id = str | int | float | None


class InvalidRequest(Invalid):
    """The body is not a JSON-RPC request."""

    code = "invalid_request"


class RpcRequest(Struct, frozen=True):
    jsonrpc: str
    method: str
    id: Id | UnsetType = UNSET
    params: Raw | UnsetType = UNSET


class _OnlyId(Struct, frozen=True):
    id: Id = None


_request = msgspec.json.Decoder(RpcRequest)
_only_id = msgspec.json.Decoder(_OnlyId)


def parse(body: bytes) -> RpcRequest:
    try:
        request = _request.decode(body)
    except msgspec.ValidationError as error:
        batch = body.lstrip().startswith(b"[")
        reason = "Batches are not supported; send single requests." if batch else f"Not a JSON-RPC request: {error}"
        raise InvalidRequest(reason) from None
    except msgspec.DecodeError as error:
        raise InvalidJson(f"The request is not JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("Not a JSON-RPC request: nested too deeply.") from None
    if request.jsonrpc != "2.0":
        raise InvalidRequest('`jsonrpc` must be "2.0".')
    return request


def id_of(body: bytes) -> Id:
    """Return the id of a body that is otherwise not a valid request; None without one."""
    try:
        return _only_id.decode(body).id
    except (msgspec.MsgspecError, RecursionError):
        return None
