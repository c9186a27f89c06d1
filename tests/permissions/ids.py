"""Every id that anything there is to ask for takes, found in the application itself: in its paths, in what bodies are
read into, and in the names that forms and queries are asked for."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, inspect

import parley.console.pages
import parley.faces
from parley.faces.a2a.grpc import SERVICES
from parley.faces.a2a.jsonrpc import METHODS
from parley.faces.a2a.v03rest import V03Rest
from parley.faces.a2a.v1 import V1
from parley.faces.actions.messages import PREFIX as MODES
from parley.faces.actions.params import NewConversation
from parley.faces.actions.table import ACTIONS
from parley.faces.mcp.tools import TEMPLATES, Arguments
from tests.permissions.walk import operation_of, routes_of

_ID = re.compile(r"(?:^|_)(?:ids?|conversation|task|thread|agent|slug|node|parent|token)$")
_PLACE = re.compile(r"\{\??(\w+)(?::\w+)?\}")
_READ = re.compile(r"""(?:form|query|query_of\(scope\))\.get\(\s*["'](\w+)["']""")


def ids_of(app: Any, asked: str) -> list[str]:
    """The names of the ids that one line of the walk takes, each once."""
    kind, _, rest = asked.partition(" ")
    if kind in ("RPC", "REST", "gRPC"):
        return _a2a(kind, rest)
    if kind == "002":
        row = next(one for one in ACTIONS if f"{one.mode}.{one.name}" == rest)
        return ["conversationId", *_named(row.params)]
    if kind == "MCP":
        if rest.startswith("tasks/") and rest != "tasks/list":
            return ["taskId"]
        return {"tools/call": ["name", *_named(Arguments)], "resources/read": _templates()}.get(rest, [])
    if asked == f"POST {MODES}/conversations":
        return _named(NewConversation)
    found = [*_PLACE.findall(rest), *(name for type_ in _read_into(app, asked) for name in _named(type_))]
    return list(dict.fromkeys(found))


def read_names() -> set[str]:
    """Names of form and query fields that any page or face reads."""
    folders = [Path(str(package.__file__)).parent for package in (parley.console.pages, parley.faces)]
    return {name for folder in folders for file in folder.rglob("*.py") for name in _READ.findall(file.read_text())}


def _a2a(kind: str, rest: str) -> list[str]:
    if kind == "RPC":
        dialect, operation = METHODS[rest]
    elif kind == "REST":
        version, _, operation = rest.partition(" ")
        dialect = V1() if version == "1.0" else V03Rest()
    else:
        service, _, method = rest.rpartition("/")
        operation = SERVICES[service][1][method].operation
        dialect = V1() if service.startswith("lf.") else V03Rest()
    return ["slug", *_named(dialect.params[operation])]  # type: ignore[index]


def _templates() -> list[str]:
    return sorted({name for one in TEMPLATES for name in _PLACE.findall(str(one["uriTemplate"]))})


def _read_into(app: Any, asked: str) -> Iterator[type[Struct]]:
    """The structs that a route is read into: that of its face's table, or those that the function behind it names."""
    found = routes_of(app).get(asked)
    _, row = operation_of(found)
    if row is not None:
        yield from () if row.body is None else (row.body,)
        return
    for function in _functions(found):
        for name in function.__code__.co_names:
            type_ = function.__globals__.get(name)
            if isinstance(type_, type) and issubclass(type_, Struct) and _can_be_read(type_):
                yield type_


def _can_be_read(type_: type[Struct]) -> bool:
    """True if values of this type can be in a request; for example, a reply with a lazy body cannot."""
    try:
        msgspec.json.Decoder(type_)
    except TypeError:
        return False
    return True


def _functions(found: Any, depth: int = 0) -> Iterator[Any]:
    """Through what wraps it, down to the function that a face has written for this route."""
    function = getattr(found, "_handler", found)
    function = getattr(function, "__func__", function)
    if isinstance(function, partial):
        for held in filter(callable, function.args):
            yield from _functions(held, depth + 1)
    if depth > 4 or not hasattr(function, "__code__"):
        return
    yield function
    for cell in function.__closure__ or ():
        held = cell.cell_contents
        if callable(held) and not isinstance(held, type):
            yield from _functions(held, depth + 1)


def _named(type_: type[Any]) -> list[str]:
    """The members that are named as ids are, as they stand on the wire, also inside of others."""
    found: dict[str, None] = {}
    seen: set[Any] = set()

    def look(kind: inspect.Type) -> None:
        match kind:
            case inspect.StructType(cls=cls, fields=fields) if cls not in seen:
                seen.add(cls)
                for field in fields:
                    if _ID.search(field.name):
                        found[field.encode_name] = None
                    look(field.type)
            case inspect.UnionType(types=types):
                for one in types:
                    look(one)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                look(item)
            case inspect.Metadata(type=inner):
                look(inner)
            case _:
                pass

    look(msgspec.inspect.type_info(type_))
    return list(found)
