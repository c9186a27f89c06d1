"""Every setting, from the one class that reads them."""

from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from dev.docsite.reference.writing import code, table, whole
from parley.settings import PREFIX, Settings

_WORDS = {str: "text", int: "number", float: "number", bool: "true or false", Path: "path", SecretStr: "secret"}
_INTRODUCTION = """\
What each of them is for is told in [settings](../settings.md); this is how it is written. In `parley.toml` a
setting stands under its name, in the environment under the name in capitals, lists and tables there as JSON.
`parley config` prints what holds, and where it came from."""


def page() -> str:
    rows = (_row(name, field) for name, field in Settings.model_fields.items())
    return whole("Settings", _INTRODUCTION, table(("setting", "environment", "type", "default", ""), rows))


def _row(name: str, field: FieldInfo) -> tuple[str, ...]:
    written = _type(field.annotation) + _bounds(field)
    return code(name), code(PREFIX + name.upper()), written, _default(field.default), field.description or ""


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return ", ".join(code(str(word)) for word in arguments)
    if origin in (Union, UnionType):
        return _type(next(one for one in arguments if one is not NoneType))
    if origin is list:
        return f"list of {_plural(_type(arguments[0]))}"
    if origin is dict:
        return "table" if arguments[1] is Any else f"table of {_plural(_type(arguments[1]))}"
    return "table" if issubclass(annotation, BaseModel) else _WORDS[annotation]


def _plural(word: str) -> str:
    return f"{word}s"


def _bounds(field: FieldInfo) -> str:
    """The limits of a number, wherever pydantic has put them: in the field, or in what it is annotated with."""
    found = [*field.metadata, *(one for part in get_args(field.annotation) for one in getattr(part, "metadata", ()))]
    words = [_bound(one) for one in found if isinstance(one, Gt | Ge | Le)]
    return f", {', '.join(words)}" if words else ""


def _bound(one: Gt | Ge | Le) -> str:
    if isinstance(one, Gt):
        return f"over {one.gt}"
    return f"from {one.ge}" if isinstance(one, Ge) else f"up to {one.le}"


def _default(value: object) -> str:
    if value is None:
        return "–"
    if value in ([], {}):
        return "none"
    return code(str(value).lower() if isinstance(value, bool) else str(value))
