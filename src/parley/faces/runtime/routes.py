"""The operations of the contract: one table, from which routing, spans and the OpenAPI document come."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, NamedTuple

from msgspec import Struct
from starlette.types import Receive, Send

from parley.errors import MethodNotAllowed, NotFound
from parley.faces.runtime.requests import Reply, Request

PREFIX = "/internal/v1"

Streamed = Callable[[Receive, Send], Awaitable[None]]
"""Writes an answer that takes its time."""
Handler = Callable[[Request], Awaitable[Reply | Streamed]]
Span = Literal["runtime.ingest", "runtime.persist", "runtime.stream", "runtime.tool"]
Owner = Literal["none", "user", "user or guest"]


class Parameter(Struct, frozen=True):
    """Something in the query or a header that an operation reads."""

    name: str
    where: Literal["query", "header"]
    schema: dict[str, object]
    description: str
    required: bool = False


class Stream(NamedTuple):
    """An answer of server-sent events, each of this type."""

    event: type


class Operation(Struct, frozen=True):
    method: Literal["GET", "POST"]
    path: str
    name: str
    summary: str
    handler: Handler
    answers: Mapping[int, object]
    """By status: the type of the answer's body, or a stream."""
    span: Span | None = None
    """None where the exchange opens one itself."""
    body: type | None = None
    parameters: tuple[Parameter, ...] = ()
    owner: Owner = "none"
    """Whose run it must be, as the principal headers say."""


class Routes:
    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations = operations
        self._by_path: dict[str, dict[str, Operation]] = {}
        for operation in operations:
            self._by_path.setdefault(operation.path, {})[operation.method] = operation

    def find(self, method: str, path: str) -> tuple[Operation, str]:
        """The operation and the run that its path names. A run id may hold slashes."""
        methods, run_id = self._by_path.get(path), ""
        if methods is None and path.startswith("/runs/"):
            run_id, _, last = path.removeprefix("/runs/").rpartition("/")
            methods = self._by_path.get(f"/runs/{{run_id}}/{last}") if run_id else None
        if methods is None:
            raise NotFound("there is nothing at this path")
        if method not in methods:
            raise MethodNotAllowed("method not allowed", allow=", ".join(sorted(methods)))
        return methods[method], run_id
