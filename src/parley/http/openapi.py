"""OpenAPI documents, made from the tables of operations of faces."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from parley.http.face import Operation

Json = dict[str, Any]


class Parameter(Struct, frozen=True):
    """A parameter of an operation in the path, the query or a header."""

    name: str
    where: Literal["path", "query", "header"]
    schema: Json
    description: str = ""
    required: bool = False


class EventStream(NamedTuple):
    """A response of server-sent events, each of this type."""

    event: type


class OpenApi(Struct, frozen=True, kw_only=True):
    """Content of an OpenAPI document beyond its table of operations."""

    title: str
    about: str
    credential: str
    """Name of the security scheme."""
    scheme: Json
    statuses: Mapping[int, str]
    refusal: type
    """Type of the body of every error response."""
    refusals: Callable[[Operation], Iterable[int]]
    """Returns the error statuses of an operation."""
    parameters: Callable[[Operation], Iterable[Parameter]]
    """Returns the parameters of an operation in its query and headers."""

    def document(self, operations: Iterable[Operation], version: str) -> Json:
        rows = tuple(operations)
        refs, schemas = described(type_ for row in rows for type_ in self._types(row))
        paths: Json = {}
        for row in rows:
            paths.setdefault(row.template, {})[row.method.lower()] = self._operation(row, refs)
        return {
            "openapi": "3.1.0",
            "info": {"title": self.title, "version": version, "description": self.about},
            "security": [{self.credential: []}],
            "paths": paths,
            "components": {"schemas": schemas, "securitySchemes": {self.credential: self.scheme}},
        }

    def answers(self, row: Operation) -> dict[int, Any]:
        """Return the type of every possible response, by status."""
        return dict(sorted({**row.answers, **dict.fromkeys(self.refusals(row), self.refusal)}.items()))

    def _types(self, row: Operation) -> Iterator[type]:
        if row.body is not None:
            yield row.body
        for of in self.answers(row).values():
            type_ = of.event if isinstance(of, EventStream) else of
            if type_ is not dict:
                yield type_

    def _operation(self, row: Operation, refs: dict[type, Json]) -> Json:
        said: Json = {
            "operationId": row.name,
            "summary": row.summary,
            "parameters": [_parameter(one) for one in (*_in_path(row), *self.parameters(row))],
            "responses": {str(status): self._response(status, of, refs) for status, of in self.answers(row).items()},
        }
        if row.open:
            said["security"] = []
        if row.body is not None:
            said["requestBody"] = {"required": True, "content": {"application/json": {"schema": refs[row.body]}}}
        return said

    def _response(self, status: int, of: Any, refs: dict[type, Json]) -> Json:
        """Describe one response. The schema of a stream is that of its events."""
        if isinstance(of, EventStream):
            content: Json = {"text/event-stream": {"schema": refs[of.event]}}
        else:
            content = {"application/json": {"schema": {"type": "object"} if of is dict else refs[of]}}
        return {"description": self.statuses[status], "content": content}


def described(types: Iterable[type]) -> tuple[dict[type, Json], Json]:
    """Return a reference to each type, and the schemas of all types and of the types that they contain."""
    ordered = sorted(set(types), key=lambda type_: type_.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    return dict(zip(ordered, schemas, strict=True)), components


def _in_path(row: Operation) -> Iterator[Parameter]:
    for name in re.findall(r"{(\w+)}", row.template):
        yield Parameter(name, "path", {"type": "string", "minLength": 1}, required=True)


def _parameter(one: Parameter) -> Json:
    about = {"description": one.description} if one.description else {}
    return {"name": one.name, "in": one.where, "required": one.required, **about, "schema": one.schema}
