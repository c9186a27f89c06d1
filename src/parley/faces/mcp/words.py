"""MCP's words, as far as this face reads them. The dates are revisions of its specification."""

from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from parley.errors import Invalid

HANDSHAKE = ("2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions in which a client says `initialize` first, and cancels by a notification."""
MODERN = ("2026-07-28",)
"""Revisions in which every request stands for itself, and to hang up is to cancel."""
PRIMED = "2025-11-25"
"""From here on a client understands an event without data, which is there to be resumed from."""

SESSION = b"mcp-session-id"
VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"

PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SERVER = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
KEY = "parley/idempotencyKey"
"""In a call's `_meta`: the same as the header `Idempotency-Key`."""

CallId = str | int
"""What a request is known by; other than in JSON-RPC itself, no fraction and no null."""
Token = str | int | None


class About(Struct, frozen=True):
    """What a request says of itself, in `_meta`."""

    token: Token = field(default=None, name="progressToken")
    key: str | None = field(default=None, name=KEY)
    protocol: str | UnsetType = field(default=UNSET, name=PROTOCOL)
    capabilities: Raw | UnsetType = field(default=UNSET, name=CAPABILITIES)


class Params(Struct, frozen=True):
    about: About = field(default=About(), name="_meta")
    name: str | None = None
    uri: str | None = None


class Hello(Struct, frozen=True, rename="camel"):
    protocol_version: str


class CallParams(Struct, frozen=True):
    name: str
    arguments: Raw = Raw(b"{}")


class ReadParams(Struct, frozen=True):
    uri: str


class CancelParams(Struct, frozen=True, rename="camel"):
    request_id: CallId
    reason: Annotated[str, msgspec.Meta(max_length=500)] | None = None


class Wanted(Struct, frozen=True, rename="camel"):
    """The changes that somebody wants to hear of; we know of one kind."""

    tools_list_changed: bool | None = None


class ListenParams(Struct, frozen=True):
    notifications: Wanted


T = TypeVar("T")


def read(kind: type[T], given: bytes | Raw, what: str = "params") -> T:
    try:
        return msgspec.json.decode(given, type=kind)
    except msgspec.MsgspecError as error:
        raise Invalid(f"Invalid {what}: {error}", field=what) from None
    except RecursionError:
        raise Invalid(f"Invalid {what}: nested too deep.", field=what) from None
