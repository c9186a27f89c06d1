"""Protobuf's JSON may name a field as JSON does or as its schema does: `taskId` and `task_id` are the same.

Structs read the first. Where the second occurs it is rewritten, in the places that a struct knows and nowhere else:
what a caller keeps in `data` and `metadata` is left alone.
"""

import re
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.inspect import ListType, StructType, Type, UnionType, VarTupleType, type_info

_SNAKE = re.compile(rb'"[a-z0-9]+_[a-z0-9_]+"\s*:')

_object = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode


def camel(kind: type[Struct], given: bytes | Raw) -> bytes:
    """The same JSON with the names that the struct reads."""
    text = bytes(given)
    return _renamed(kind, text) if _SNAKE.search(text) else text


class _Field(Struct, frozen=True):
    name: str
    """As the struct reads it."""
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
    """By either name."""
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
