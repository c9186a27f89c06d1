"""Convert external JSON to structs. A value that does not fit is reported with its path, and keeps its default."""

from collections.abc import Callable
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct, structs

S = TypeVar("S", bound=Struct)
Wrong = Callable[[str, str], None]
"""Called with the path of a value that does not fit, and the reason."""

MAX_DEPTH = 40


def ignored(path: str, message: str) -> None:
    """Ignore the problem, for callers that use whatever fits."""


def shaped(kind: type[S], value: object, wrong: Wrong = ignored, path: str = "") -> S:
    """Convert a value to a struct whose fields all have defaults. A null counts as missing."""
    if not is_object(value):
        wrong(path, f"must be an object, not {_named(value)}")
    given = members_of(value)
    found: dict[str, Any] = {}
    for field in structs.fields(kind):
        one = given.get(field.encode_name)
        if one is not None:
            found[field.name] = _fitted(field, one, wrong, joined(path, field.encode_name))
    return kind(**found)


def is_object(value: object) -> bool:
    return isinstance(value, dict)


def members_of(value: object) -> dict[str, object]:
    """Return the members of an object; an empty dict for any other value."""
    return cast(dict[str, object], value) if isinstance(value, dict) else {}


def items_of(value: object) -> list[object]:
    """Return the items of a list; an empty list for any other value."""
    return cast(list[object], value) if isinstance(value, list) else []


def joined(path: str, step: str) -> str:
    return f"{path}.{step}" if path else step


def _fitted(field: structs.FieldInfo, value: object, wrong: Wrong, path: str) -> Any:
    struct = _struct(field.type)
    if struct is not None:
        return shaped(struct, value, wrong, path)
    inner = _struct_in(field.type)
    if inner is not None and is_object(value):
        return {name: shaped(inner, one, wrong, joined(path, name)) for name, one in members_of(value).items()}
    if inner is not None:
        return tuple(shaped(inner, one, wrong, f"{path}[{place}]") for place, one in enumerate(items_of(value)))
    try:
        return msgspec.convert(value, field.type, strict=False)
    except msgspec.ValidationError as error:
        wrong(path, str(error).partition(" - at")[0].lower())
        return _default(field)


def _struct(kind: object) -> type[Struct] | None:
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def _struct_in(kind: object) -> type[Struct] | None:
    """Return the struct type of the values of a mapping or a tuple."""
    if get_origin(kind) not in (dict, tuple):
        return None
    return next((found for one in get_args(kind) if (found := _struct(one)) is not None), None)


def _default(field: structs.FieldInfo) -> Any:
    return field.default if field.default is not NODEFAULT else field.default_factory()


def _named(value: object) -> str:
    return {"str": "text", "list": "a list", "bool": "true or false"}.get(type(value).__name__, "a number")


def decoded(content: bytes) -> object:
    """Parse JSON. Raises ValueError with a message that does not contain the content."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"is not complete JSON: {error}") from None
