"""Python classes that describe JSON: data classes, msgspec structs and pydantic models.

Models of pydantic are recognized by their methods, so that pydantic itself is not imported here.
"""

import dataclasses
from typing import Protocol, TypedDict, TypeGuard, TypeVar, cast

import msgspec
from msgspec import Raw

from parley.errors import AgentError
from parley.json_values import Fields, Json

T = TypeVar("T")


class _Model(Protocol):
    """The part of a pydantic model that is used."""

    def model_dump_json(self, *, by_alias: bool) -> str: ...


class _ModelClass(Protocol):
    """The part of the class of a pydantic model that is used."""

    @classmethod
    def model_json_schema(cls, *, mode: str) -> Fields: ...

    @classmethod
    def model_validate(cls, obj: object) -> object: ...


class _ModelFault(TypedDict):
    loc: tuple[str | int, ...]
    msg: str


class _ModelError(Protocol):
    """The part of a pydantic error that is used."""

    def errors(self, *, include_url: bool, include_input: bool) -> list[_ModelFault]: ...


def is_described(kind: object) -> TypeGuard[type]:
    """Return whether this is a class with a JSON Schema: a data class, a struct or a model."""
    known = dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__") or hasattr(kind, "model_json_schema")
    return isinstance(kind, type) and known


def schema_of(kind: type, *, output: bool = False) -> Fields:
    """Return the JSON Schema of a class. Raise AgentError for a class that has none. The schema of a pydantic model as
    `output` includes its computed fields."""
    if not is_described(kind):
        raise AgentError(f"{kind.__name__} is not a data class, a msgspec Struct or a pydantic model.")
    if hasattr(kind, "model_json_schema"):
        return cast(_ModelClass, kind).model_json_schema(mode="serialization" if output else "validation")
    try:
        return msgspec.json.schema(kind)
    except TypeError as error:
        raise AgentError(f"{kind.__name__} cannot be described as a JSON Schema: {error}") from None


def json_of(value: object) -> Raw:
    """Return an instance of a described class as JSON. Raise AgentError if it does not fit its own class: only models
    check their values when they are made."""
    if hasattr(value, "model_dump_json"):
        return Raw(cast(_Model, value).model_dump_json(by_alias=True).encode())
    try:
        # msgspec leaves out the defaults of a data class that it has made itself.
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            body = msgspec.json.encode(dataclasses.asdict(value))
        else:
            body = msgspec.json.encode(value)
        msgspec.json.decode(body, type=type(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise _unfit(type(value), error) from None
    return Raw(body)


def instance_of(kind: type[T], value: Json) -> T:
    """Return a JSON value as an instance of a class. Raise AgentError if it does not fit."""
    try:
        if hasattr(kind, "model_validate"):
            return cast(T, cast(_ModelClass, kind).model_validate(value))
        return msgspec.convert(value, kind)
    except ValueError as error:
        # msgspec.ValidationError and pydantic.ValidationError are both ValueErrors.
        raise _unfit(kind, error) from None


def _unfit(kind: type, error: Exception) -> AgentError:
    return AgentError(f"The value is not a valid {kind.__name__}: {_reason(error)}")


def _reason(error: Exception) -> str:
    """Return the reason without the values: they may be secret. The text of a pydantic error contains them."""
    if not hasattr(error, "errors"):
        return str(error)
    faults = cast(_ModelError, error).errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in faults)
