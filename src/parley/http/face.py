"""A face as a table of operations: method, path, credential, body and handler of each.

Subclasses of `Face` mark their handlers with `@operation`. Routes, credentials, permissions, OpenAPI documents, metric
labels and the list of all routes are read from the marks."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import QueryParams
from starlette.routing import Route, compile_path
from starlette.types import Receive, Scope, Send

from parley.errors import Invalid, InvalidJson, MethodNotAllowed, NotFound, ParleyError, Unauthenticated
from parley.http.problems import problem_of
from parley.http.requests import (
    MAX_BODY,
    ClientGone,
    Endpoint,
    Headers,
    answer,
    check_text,
    header,
    read_json,
    retry_headers,
)
from parley.http.tracing import ROUTE
from parley.runs.rules.access import Principal, demand
from parley.runs.rules.access import Scope as Permission

C = TypeVar("C")
T = TypeVar("T")

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Proof = Literal["caller", "node", "runtime", "signature", "session"]
"""Proof of identity that a face requires: `caller`, a credential of this server; `node`, a credential or a node token;
`runtime`, the token of a paired runtime; `signature`, a signature on every request; `session`, a credential or the
cookie of the console. Only `caller` is checked before a request reaches its face; faces check the others themselves."""
JSON = b"application/json"
NO_STORE: Headers = [(b"cache-control", b"no-store")]


class _Id(Convertor[str]):
    """Converter for `{name:id}` in a path: an id, which may contain slashes."""

    regex = ".+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", _Id())


class Response(Struct, frozen=True):
    """A response that is complete and sent at once."""

    status: int
    content: object = b""
    headers: Sequence[tuple[bytes, bytes]] = ()
    media: bytes = JSON


Streamed = Callable[[Receive, Send], Awaitable[None]]
"""Writes a response piece by piece, such as a stream of events."""
Handler = Callable[..., Awaitable[Response | Streamed]]


def demanded(scope: Scope, permission: Permission | None = None) -> Principal:
    """Return the principal of a request; raise if there is none or it lacks the permission."""
    principal: Principal | None = scope["principal"]
    if principal is None:
        raise Unauthenticated("Credentials are required.")
    if permission is not None:
        demand(principal, permission)
    return principal


class Request(Generic[C]):
    """One request, as passed to handlers. `caller` is the value that `Face.authenticate` returned."""

    __slots__ = ("_body", "_query", "caller", "receive", "scope")
    caller: C

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self._body: bytes | None = None
        self._query: QueryParams | None = None

    @property
    def principal(self) -> Principal | None:
        """Principal of the credential in the request; None without a credential."""
        return self.scope["principal"]

    @property
    def path(self) -> dict[str, str]:
        """Path parameters by name."""
        return self.scope.get("path_params", {})

    @property
    def query(self) -> QueryParams:
        if self._query is None:
            self._query = QueryParams(self.scope.get("query_string", b""))
        return self._query

    def header(self, name: bytes) -> str | None:
        return header(self.scope, name)

    def demand(self, permission: Permission | None = None) -> Principal:
        """Return the principal; raise if there is none or it lacks the permission."""
        return demanded(self.scope, permission)

    def accept(self, caller: C) -> None:
        self.caller = caller

    async def body(self, limit: int) -> bytes:
        """Return the body, read once; raise if it exceeds the limit or is nested too deeply."""
        if self._body is None:
            self._body = await read_json(self.receive, limit)
        return self._body


class Operation(Struct, frozen=True):
    """One row of a face's table. `path` includes the prefix; `{name:id}` in it matches an id with slashes."""

    method: Method
    path: str
    handler: str = ""
    """Name of the method that handles the operation."""
    permission: Permission | None = None
    open: bool = False
    """True if no credential is required."""
    body: type | None = None
    """Type that the body is decoded to and passed to the handler as."""
    limit: int | None = None
    """Largest body in bytes; None for the limit of the face."""
    name: str = ""
    summary: str = ""
    answers: Mapping[int, Any] = {}
    """Type of the response body, by status."""
    refusals: tuple[int, ...] = ()
    """Error statuses of this operation beyond those that all operations of the face share."""
    parameters: tuple[Any, ...] = ()
    more: Any = None
    """Further data about the operation that only this face uses."""

    @property
    def template(self) -> str:
        """Path as documents and metrics show it."""
        return self.path.replace(":id}", "}")


F = TypeVar("F", bound=Handler)


def operation(method: Method, path: str, **given: Any) -> Callable[[F], F]:
    """Mark a method of a `Face` as the handler of an operation; the arguments are the fields of `Operation`."""

    def mark(handler: F) -> F:
        rows: list[Operation] = getattr(handler, "operations", [])
        rows.append(Operation(method, path, handler.__name__, **given))
        handler.operations = rows  # type: ignore[attr-defined]
        return handler

    return mark


class Face(Generic[C]):
    """Operations that share authentication, decoding and error format. The defaults are those of Parley's own API."""

    proof: ClassVar[Proof] = "caller"
    prefix: ClassVar[str] = ""
    """Path below which only this face answers: unknown paths and methods are refused in its format too."""
    headers: ClassVar[Headers] = NO_STORE
    """Headers of every response that is not a stream."""
    head: ClassVar[bool] = True
    """True if HEAD is answered where GET is."""
    max_body: int = MAX_BODY

    @classmethod
    @cache
    def operations(cls) -> tuple[Operation, ...]:
        """Return the table, in the order of the code."""
        members = [vars(kind) for kind in reversed(cls.__mro__)]
        return tuple(row for names in members for one in names.values() for row in getattr(one, "operations", ()))

    async def authenticate(self, request: Request[C], operation: Operation) -> C:
        """Return the caller; raise if the operation is not allowed for it."""
        found: Any = None if operation.open else request.demand(operation.permission)
        return found

    def decode(self, body: bytes, type_: type[T]) -> T:
        return decoded(body, type_)

    async def handle(self, request: Request[C], row: Operation, handler: Handler) -> Response | Streamed:
        """Pass a request to its handler, with the decoded body if the operation takes one."""
        if row.body is None:
            return await handler(request)
        body = await request.body(row.limit or self.max_body)
        return await handler(request, self.decode(body, row.body))

    def refuse(self, request: Request[C], error: ParleyError) -> Response:
        """Render an error in the format of this face. Raise it again if the format has no response for it."""
        return Response(*problem_of(error), headers=allow_headers(error))

    def crash(self, request: Request[C], error: Exception) -> Response:
        """Render a defect in the format of this face. The default raises it again: the server then answers 500."""
        raise error

    def routes(self) -> list[Route]:
        rows = [self._route(row) for row in self.operations()]
        if not self.prefix:
            return rows
        return [*rows, Route(f"{self.prefix}/{{rest:path}}", Endpoint(partial(self._answer, _UNKNOWN, self._nothing)))]

    def _route(self, row: Operation) -> Route:
        handler = partial(self._answer, row, getattr(self, row.handler))
        route = Route(row.path, Endpoint(handler), methods=[row.method])
        if not self.head and route.methods:
            route.methods.discard("HEAD")
        return route

    async def _answer(self, row: Operation, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ROUTE] = row.template
        request = Request[C](scope, receive)
        try:
            request.accept(await self.authenticate(request, row))
            reply = await self.handle(request, row, handler)
        except ParleyError as error:
            reply = self.refuse(request, error)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - raised again, unless the face has a response for it
            reply = self.crash(request, error)
        if isinstance(reply, Response):
            return await answer(send, reply.status, reply.content, [*self.headers, *reply.headers], reply.media)
        return await reply(receive, send)

    async def _nothing(self, request: Request[C]) -> Response:
        path = request.scope["path"]
        rows = [row for row in self.operations() if match(row, path) is not None]
        if rows:
            request.scope[ROUTE] = rows[0].template
            methods = sorted({row.method for row in rows})
            raise MethodNotAllowed("This path does not support this method.", allow=", ".join(methods))
        raise NotFound("There is no resource at this path.")


_UNKNOWN = Operation("GET", "other")


def match(row: Operation, path: str) -> dict[str, str] | None:
    """Return the parameters in a path; None if the path does not belong to this operation."""
    found = _pattern(row.path).match(path)
    return None if found is None else found.groupdict()


@cache
def _pattern(path: str) -> Any:
    return compile_path(path)[0]


def decoded(
    body: bytes, type_: type[T], invalid: type[Invalid] = Invalid, malformed: str = "The request is not JSON."
) -> T:
    """Decode the body as a type; raise an error that says what is wrong with it."""
    check_text(body)
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise InvalidJson(malformed) from None


def allow_headers(error: ParleyError) -> Headers:
    """Return the headers that HTTP requires with some errors: `Allow`, `Retry-After`."""
    if isinstance(error, MethodNotAllowed):
        return [(b"allow", str(error.details.get("allow", "")).encode())]
    return retry_headers(error)
