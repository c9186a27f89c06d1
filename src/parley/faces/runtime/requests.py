"""One request as the handlers see it, and how its parts become typed values with the contract's sentences."""

from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.types import Scope

from parley.core.access import Principal
from parley.errors import Invalid, Unauthenticated
from parley.faces.http import header
from parley.faces.sentences import flaw_of
from parley.security.signatures import principal_of

T = TypeVar("T")


class Reply(NamedTuple):
    status: int
    content: object


class Request(Struct, frozen=True):
    """`run_id` is the one of the path, if the path has one; `fields` what the body holds, if that is an object."""

    scope: Scope
    run_id: str
    query: dict[str, str]
    fields: dict[str, Any] | None
    principal: Principal | None

    def body(self, type_: type[T]) -> T:
        if self.fields is None:
            raise Invalid("request body must be a JSON object")
        return converted(self.fields, type_)

    def thread_id(self) -> str:
        """Of the query, for requests without a body."""
        if not (thread := self.query.get("thread_id")):
            raise Invalid("thread_id is required")
        return thread

    def caller(self) -> Principal:
        if self.principal is None:
            raise Unauthenticated("missing or invalid principal headers")
        return self.principal

    def header(self, name: bytes) -> str | None:
        return header(self.scope, name)


def read(scope: Scope, run_id: str, body: bytes) -> Request:
    return Request(scope, run_id, query_of(scope), _fields(body), _principal(scope))


def query_of(scope: Scope) -> dict[str, str]:
    return dict(_query(scope))


def query_values(scope: Scope, name: str) -> list[str]:
    """All values of a query parameter, also where it is given more than once."""
    return [value for given, value in _query(scope) if given == name]


def _query(scope: Scope) -> list[tuple[str, str]]:
    raw: bytes = scope.get("query_string", b"")
    return parse_qsl(raw.decode("latin-1"), keep_blank_values=True) if raw else []


def _principal(scope: Scope) -> Principal | None:
    return principal_of(header(scope, b"x-oa-user-id"), header(scope, b"x-oa-guest-scope"))


def _fields(body: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(body, type=dict[str, Any]) if body else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def converted(fields: dict[str, Any], type_: type[T]) -> T:
    try:
        return msgspec.convert(fields, type_)
    except msgspec.ValidationError as error:
        flaw = flaw_of(str(error))
        raise Invalid(f"{flaw.place or 'request'} {flaw.sentence}") from None
