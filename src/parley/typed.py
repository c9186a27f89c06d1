"""Python classes that describe JSON: data classes, msgspec structs and pydantic models.

Models of pydantic are recognized by their methods, so that pydantic itself is not imported here.
"""

import dataclasses
from typing import Protocol, TypeGuard, TypeVar, cast

import msgspec
from msgspec import Raw

from parley.errors import AgentError
from parley.json_values import Fields, Json

T = TypeVar("T")


class _Model(Protocol):
    """The part of a pydantic model that is used."""

    def model_dump_json(self) -> str: ...


class _ModelClass(Protocol):
    """The part of the class of a pydantic model that is used."""

    @classmethod
    def model_json_schema(cls) -> Fields: ...

    @classmethod
    def model_validate(cls, obj: object) -> object: ...


def is_described(kind: object) -> TypeGuard[type]:
    """Return whether this is a class with a JSON Schema: a data class, a struct or a model."""
    known = dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__") or hasattr(kind, "model_json_schema")
    return isinstance(kind, type) and known


def schema_of(kind: type) -> Fields:
    """Return the JSON Schema of a class. Raise AgentError for a class that has none."""
    if not is_described(kind):
        raise AgentError(f"{kind.__name__} is not a data class, a msgspec Struct or a pydantic model.")
    if hasattr(kind, "model_json_schema"):
        return cast(_ModelClass, kind).model_json_schema()
    try:
        return msgspec.json.schema(kind)
    except TypeError as error:
        raise AgentError(f"{kind.__name__} cannot be described as a JSON Schema: {error}") from None


def json_of(value: object) -> Raw:
    """Return an instance of a described class as JSON."""
    if hasattr(value, "model_dump_json"):
        return Raw(cast(_Model, value).model_dump_json().encode())
    return Raw(msgspec.json.encode(value))


def instance_of(kind: type[T], value: Json) -> T:
    """Return a JSON value as an instance of a class. Raise AgentError if it does not fit."""
    try:
        if hasattr(kind, "model_validate"):
            return cast(T, cast(_ModelClass, kind).model_validate(value))
        return msgspec.convert(value, kind)
    except ValueError as error:
        # msgspec.ValidationError and pydantic.ValidationError are both ValueErrors.
        raise AgentError(f"The value is not a valid {kind.__name__}: {error}") from None
