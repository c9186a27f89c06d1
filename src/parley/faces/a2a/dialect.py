"""Dialects: the formats of requests and results in one version of A2A on one binding."""

import re
from functools import cache
from typing import Any, ClassVar, Literal, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.inspect import ListType, StructType, Type, UnionType, VarTupleType, type_info

from parley.errors import Invalid
from parley.faces.a2a.messages import Ask, HookRef, Query, ReplyShown, Shown, TaskPage, TaskShown
from parley.push.hooks import Hook

# Protobuf's JSON accepts a field name in camel case or as in the schema: `taskId` and `task_id` are the same.
#
# Structs read camel case. Snake case is rewritten, but only in fields that a struct defines: the caller's own content
# in `data` and `metadata` stays unchanged.

_SNAKE = re.compile(rb'"[a-z0-9]+_[a-z0-9_]+"\s*:')

_object = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode


def camel(kind: type[Struct], given: bytes | Raw) -> bytes:
    """Return the same JSON with the field names that the struct reads."""
    text = bytes(given)
    return _renamed(kind, text) if _SNAKE.search(text) else text


class _Field(Struct, frozen=True):
    name: str
    """Name that the struct reads."""
    of: type[Struct] | None = None
    many: bool = False


def _renamed(kind: type[Struct], text: bytes) -> bytes:
    if not text.lstrip().startswith(b"{"):
        return text
    fields = _fields(kind)
    members: dict[str, Raw] = {}
    for name, value in _object.decode(text).items():
        field = fields.get(name)
        members[field.name if field else name] = Raw(_inner(field, bytes(value))) if field else value
    return _encode(members)


def _inner(field: _Field, value: bytes) -> bytes:
    if field.of is None:
        return value
    if not field.many:
        return _renamed(field.of, value)
    if not value.lstrip().startswith(b"["):
        return value
    return _encode([Raw(_renamed(field.of, bytes(one))) for one in _list.decode(value)])


@cache
def _fields(kind: type[Struct]) -> dict[str, _Field]:
    """Return the fields of a struct by both names."""
    info: Any = type_info(kind)
    found: dict[str, _Field] = {}
    for field in info.fields:
        of, many = _struct_in(field.type)
        found[field.name] = found[field.encode_name] = _Field(field.encode_name, of, many)
    return found


def _struct_in(kind: Type) -> tuple[type[Struct] | None, bool]:
    match kind:
        case StructType():
            return kind.cls, False
        case ListType() | VarTupleType():
            return _struct_in(kind.item_type)[0], True
        case UnionType():
            inner = [_struct_in(one) for one in kind.types]
            return next((one for one in inner if one[0] is not None), (None, False))
        case _:
            return None, False


Operation = Literal[
    "send", "stream", "get", "list", "cancel", "subscribe",
    "set_hook", "get_hook", "list_hooks", "delete_hook", "card", "fork",
]  # fmt: skip
STREAMING: frozenset[Operation] = frozenset(("stream", "subscribe"))


class Dialect(Protocol):
    """Format of one version of A2A. Params are of the struct that `params` has for an operation; results are structs
    ready to be encoded."""

    version: ClassVar[str]
    params: ClassVar[dict[Operation, type[Any]]]

    def ask(self, params: Any) -> Ask: ...

    def query(self, params: Any) -> Query: ...

    def hook(self, params: Any) -> Hook: ...

    def hook_ref(self, params: Any) -> HookRef: ...

    def sent(self, shown: TaskShown | ReplyShown) -> object: ...

    def task(self, shown: TaskShown) -> object: ...

    def frame(self, shown: Shown, last: bool) -> object:
        """Render a frame of a stream; None if the dialect does not show it. `last` is True for the final frame."""
        ...

    def page(self, page: TaskPage) -> object: ...

    def hook_out(self, hook: Hook) -> object: ...

    def hooks_out(self, hooks: list[Hook], next_token: str) -> object: ...


encode = msgspec.json.Encoder().encode


def read(kind: type[Any], given: bytes | msgspec.Raw) -> Any:
    """Decode params from JSON; raise Invalid with the reason."""
    try:
        return _decoder(kind).decode(camel(kind, given))
    except msgspec.ValidationError as error:
        raise Invalid(f"Invalid params: {error}", field=_field(error)) from None
    except msgspec.DecodeError as error:
        raise Invalid(f"Invalid params: {error}", field="params") from None
    except RecursionError:
        raise Invalid("Invalid params: nested too deeply.", field="params") from None


def convert(kind: type[Any], given: dict[str, object]) -> Any:
    """Convert params from a path and a query, in which every value is text."""
    try:
        return msgspec.convert({_camel(name): value for name, value in given.items()}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"Invalid parameters: {error}", field=_field(error)) from None


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder


def _field(error: msgspec.ValidationError) -> str:
    """Return the path of the field from the parser's message: `$.message.parts[0]` as `message.parts[0]`."""
    _, found, path = str(error).rpartition("`$")
    return (found and path.rstrip("`").lstrip(".")) or "params"
