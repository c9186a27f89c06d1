"""The contract as a document: it says what is served, holds for what is answered, and only grows."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from parley.faces.control.document import API
from parley.faces.control.face import PREFIX, ControlFace
from parley.testing.openapi_changes import taken_away
from parley.testing.servers import Server
from tests.faces.control.snapshot import current, kept, refresh
from tests.faces.control.wire import Json, Wire

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def operations_of(document: Json) -> Iterator[tuple[str, str]]:
    for path, methods in document["paths"].items():
        for method in methods:
            yield method.upper(), path.removeprefix(PREFIX)


async def test_the_document_lists_what_is_routed() -> None:
    document = await current()
    routed = {(row.method, row.template.removeprefix(PREFIX)): row for row in ControlFace.operations()}
    assert sorted(operations_of(document)) == sorted(routed)
    for (method, path), row in routed.items():
        described = document["paths"][PREFIX + path][method.lower()]
        assert described["operationId"] == row.name
        answers = {int(status) for status in described["responses"]}
        assert answers == set(API.answers(row)) >= {*row.answers, *row.refusals}


async def test_nothing_else_is_served(wire: Wire) -> None:
    listed = set(operations_of((await wire.get("/openapi.json")).json()))
    for path in {path for _, path in listed}:
        for method in METHODS:
            reply = await wire.send(method, path.replace("{run_id}", "nothing"))
            assert (reply.status_code != 405) == ((method, path) in listed), (method, path)


async def test_the_document_is_valid() -> None:
    validate(await current(), cls=OpenAPIV31SpecValidator)


async def test_the_contract_changes_by_addition_only() -> None:
    assert taken_away(kept(), await current()) == []


async def test_a_document_that_takes_something_away_is_not_kept(tmp_path: Path) -> None:
    file, document = tmp_path / "openapi.json", kept()
    assert refresh(document, file) == []
    smaller = msgspec.json.decode(file.read_bytes())
    del smaller["paths"]["/internal/v1/health"]
    assert refresh(smaller, file) == ["/internal/v1/health is gone."]
    assert kept(file) == document


async def test_a_body_that_is_too_large_is_refused(server: Server, wire: Wire) -> None:
    run = await wire.new_run()
    reply = await wire.frame(run, {"frame_id": "f", "payload": {"text": "x" * (10 * 1024 * 1024)}})
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "invalid_request")
