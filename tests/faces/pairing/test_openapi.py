"""The calls of runtimes as a document: it says what is served, and what is answered is as it says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from parley.client import Client
from parley.faces.pairing.document import DOCUMENT
from parley.testing.servers import Server, serving
from tests.faces.pairing.conftest import edge
from tests.faces.pairing.runtime import Raw, attach, code_for, paired
from tests.faces.pairing.test_bodies import REPORT
from tests.faces.pairing.test_work import begin
from tests.permissions.walk import asked_of

Json = dict[str, Any]


async def document_of(http: httpx2.AsyncClient, server: Server) -> Json:
    reply = await http.get(server.url + DOCUMENT)
    assert reply.status_code == 200
    return reply.json()


class Checked:
    """Compares answers with the document, and notes which of its answers were seen."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self.seen: set[tuple[str, int]] = set()

    def __call__(self, operation: str, reply: httpx2.Response) -> httpx2.Response:
        said = next(one for _, _, one in operations(self._document) if one["operationId"] == operation)
        schema = said["responses"][str(reply.status_code)]["content"]["application/json"]["schema"]
        whole = {**schema, "components": self._document["components"]}
        OAS31Validator(whole).validate(reply.json())
        name = schema["$ref"].rpartition("/")[2]
        members = self._document["components"]["schemas"][name]["properties"]
        assert set(reply.json()) == set(members), operation
        self.seen.add((operation, reply.status_code))
        return reply


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            yield method.upper(), path, one


@pytest.fixture
async def server(tmp_path: Path) -> Any:
    async with serving(tmp_path / "data", [edge()]) as opened:
        yield opened


async def test_the_document_is_valid(server: Server, http: httpx2.AsyncClient) -> None:
    validate(await document_of(http, server), cls=OpenAPIV31SpecValidator)


async def test_the_document_lists_what_runtimes_can_call(server: Server, http: httpx2.AsyncClient) -> None:
    listed = {f"{method} {path}" for method, path, _ in operations(await document_of(http, server))}
    served = {
        one for one in asked_of(server.app)
        if one.split()[1].startswith(("/agent-runtimes/runtime/", "/agent-accounts/", "/task-runs/"))
    }  # fmt: skip
    assert listed == served


async def test_what_is_answered_is_as_the_document_says(server: Server, http: httpx2.AsyncClient) -> None:
    check = Checked(await document_of(http, server))
    attached = check("attach", await attach(http, server.url, await code_for(http, server.url, "far")))
    check("attach", await attach(http, server.url, "0000-0000"))
    runtime = Raw(http, server.url, attached.json())
    async with Client(server.agent("far")) as client:
        await begin(client, "one")
        await begin(client, "two")
        pulling = f"/agent-accounts/{runtime.agent}/task-runs/pull"
        first = check("pull", await runtime.post(pulling)).json()["task_runs"][0]
        at = f"/task-runs/{first['id']}"
        check("progress", await runtime.post(f"{at}/progress", {"text": "going on", "percent": 10}))
        check("writeArtifact", await runtime.post(f"{at}/artifacts", REPORT))
        check("writeArtifact", await runtime.post(f"{at}/artifacts", REPORT))
        listed = {"task_runs": [{"task_run_id": first["id"]}, {"task_run_id": "other"}]}
        check("heartbeat", await runtime.post("/agent-runtimes/runtime/heartbeat", listed))
        check("control", await runtime.post("/agent-runtimes/runtime/control", {"task_run_ids": [first["id"]]}))
        check("release", await runtime.post(f"{at}/release"))
        check("release", await runtime.post(f"{at}/release"))
        check("pull", await runtime.post(pulling, {"limit": 2}))
        check("complete", await runtime.post(f"{at}/complete", {"output": {"text": "done"}}))
        check("complete", await runtime.post(f"{at}/complete", {"output": {"text": "other"}}))
        check("complete", await runtime.post(f"{at}/complete", {"output": "text"}))
        check("fail", await runtime.post("/task-runs/none/fail", {"output": {"error": "no"}}))
    token = {"X-Runtime-Token": runtime.token}
    check("status", await http.get(f"{server.url}/agent-runtimes/runtime/status", headers=token))
    check("status", await http.get(f"{server.url}/agent-runtimes/runtime/status"))
    check("pull", await runtime.post("/agent-accounts/other/task-runs/pull"))
    check("detach", await runtime.post("/agent-runtimes/runtime/detach"))
    await paired(http, server.url, "far")
    check("heartbeat", await runtime.post("/agent-runtimes/runtime/heartbeat"))
    statuses = {status for _, status in check.seen}
    assert statuses == {200, 201, 400, 401, 403, 404, 409}
