"""The bodies of the local adapter contract, literally: token and task name the holder, a lease id is optional."""

import asyncio
from typing import Any

import httpx2
import pytest

from parley.client import Client
from parley.testing.servers import Server
from tests.faces.pairing.conftest import Site
from tests.faces.pairing.runtime import Raw, Work, error_of, paired
from tests.faces.pairing.test_work import begin

REPORT = {
    "artifact_type": "report", "filename": "reports/result.md", "title": "Result Report",
    "summary": "short description", "keywords": ["optional"], "mime_type": "text/markdown",
    "content_text": "# Report content...",
}  # fmt: skip


async def pulled(server: Server, http: httpx2.AsyncClient) -> tuple[Raw, Work]:
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        await begin(client)
    return runtime, await runtime.one()


async def said(runtime: Raw, work: Work, what: str, **body: Any) -> httpx2.Response:
    return await runtime.post(f"/task-runs/{work.id}/{what}", body)


async def test_a_task_is_completed_with_the_contracts_own_bodies(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime, work = await pulled(server, http)
    progress = await said(runtime, work, "progress", text="writing", percent=50)
    assert (progress.status_code, progress.json()["cancel_requested"]) == (200, False)
    written = await said(runtime, work, "artifacts", **REPORT)
    assert written.status_code == 201
    assert (await said(runtime, work, "artifacts", **REPORT)).json() == written.json()
    reference = {"type": "artifact_ref", "artifact_id": written.json()["artifact_id"]}
    output = {"text": "short summary", "parts": [reference]}
    for idempotent in (False, True):
        ended = await said(runtime, work, "complete", output=output)
        assert ended.json() == {"task_run_id": work.id, "status": "completed", "idempotent": idempotent}
    assert error_of(await said(runtime, work, "complete", output={"text": "other"})) == (409, "task_run_ended")
    async with Client(server.agent("far")) as client:
        names = {one["name"] for one in (await client.get(work.id))["artifacts"]}
    assert names == {"Result Report", "response"}


async def test_a_task_is_failed_with_the_contracts_own_body(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime, work = await pulled(server, http)
    ended = await said(runtime, work, "fail", output={"error": "failure reason"})
    assert ended.json() == {"task_run_id": work.id, "status": "failed", "idempotent": False}
    async with Client(server.agent("far")) as client:
        status = (await client.get(work.id))["status"]
    assert status["message"]["parts"] == [{"text": "failure reason"}]


async def test_leases_are_renewed_and_given_back_without_their_names(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime, work = await pulled(server, http)
    beat = await runtime.post("/agent-runtimes/runtime/heartbeat", {"task_runs": [{"task_run_id": work.id}]})
    assert [one["lease_id"] for one in beat.json()["task_runs"]] == [work.wire["lease_id"]]
    assert (await said(runtime, work, "release")).json() == {"task_run_id": work.id, "status": "queued"}
    beat = await runtime.post("/agent-runtimes/runtime/heartbeat", {"task_runs": [{"task_run_id": work.id}]})
    assert beat.json()["lost_task_run_ids"] == [work.id]


@pytest.mark.parametrize("what", ["progress", "artifacts", "complete", "fail", "release"])
async def test_a_task_that_the_runtime_does_not_hold_is_not_reported_on(
    site: Site, http: httpx2.AsyncClient, what: str
) -> None:
    """Neither one that was never pulled, nor one that was given back."""
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        waiting = Work(await begin(client))
        await runtime.one()
        body = {**REPORT, "output": {"text": "done", "error": "no"}, "text": "going on"}
        assert (await said(runtime, waiting, "release")).status_code == 200
        assert error_of(await said(runtime, waiting, what, **body)) == (409, "lease_lost")
        other = Work(await begin(client))
        assert error_of(await said(runtime, other, what, **body)) == (409, "lease_lost")
        assert (await client.get(other.id))["status"]["state"] == "TASK_STATE_SUBMITTED"


async def test_a_lease_id_that_is_given_is_checked(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime, work = await pulled(server, http)
    await said(runtime, work, "release")
    again = await runtime.one()
    assert error_of(await runtime.about(work, "complete", output={"text": "old"})) == (409, "lease_lost")
    wrong = await said(runtime, again, "complete", output={"text": "x"}, lease_id="nonsense")
    assert error_of(wrong) == (409, "lease_lost")
    assert (await said(runtime, again, "complete", output={"text": "new"})).status_code == 200


async def test_a_replaced_runtime_cannot_report_without_a_lease(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    before, work = await pulled(server, http)
    now = await paired(http, server.url, "far")
    assert (await now.one()).id == work.id
    refused = await asyncio.gather(*(said(before, work, what, output={}) for what in ("complete", "fail")))
    assert [error_of(one) for one in refused] == [(401, "runtime_revoked")] * 2
