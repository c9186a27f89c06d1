"""Files of a local agent: artifacts like any other, written once, and had again with the caller's credentials."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.app import open_records
from parley.client import Client, Json
from parley.security.keys import ApiKeys
from parley.settings import Settings
from parley.testing.servers import Server, serving
from tests.faces.pairing.conftest import Site, edge
from tests.faces.pairing.runtime import Raw, Work, attach, error_of, paired
from tests.faces.pairing.test_work import begin

FILE = {
    "artifact_type": "report", "filename": "reports/result.md", "title": "Result Report", "summary": "short",
    "keywords": ["one", "two"], "mime_type": "text/markdown", "content_text": "# Report\n",
}  # fmt: skip


async def started(server: Server, http: httpx2.AsyncClient) -> tuple[Raw, Work]:
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        await begin(client)
    return runtime, await runtime.one()


async def task_of(server: Server, work: Work) -> Json:
    async with Client(server.agent("far")) as client:
        return await client.get(work.id)


async def test_a_file_is_an_artifact_with_an_address(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime, work = await started(server, http)
    reply = await runtime.about(work, "artifacts", **FILE)
    written = reply.json()
    assert reply.status_code == 201
    assert written == {
        **{name: FILE[name] for name in ("filename", "title", "mime_type", "artifact_type", "summary")},
        "artifact_id": written["artifact_id"], "size_bytes": 9,
        "url": f"{server.agent('far')}/tasks/{work.id}/artifacts/{written['artifact_id']}",
    }  # fmt: skip
    await runtime.complete(work, text="done")
    made = (await task_of(server, work))["artifacts"]
    assert made[0] == {
        "artifactId": written["artifact_id"], "name": "Result Report", "description": "short",
        "parts": [{"text": "# Report\n", "filename": "reports/result.md", "mediaType": "text/markdown"}],
        "metadata": {
            "artifactType": "report", "filename": "reports/result.md", "url": written["url"],
            "keywords": ["one", "two"],
        },
    }  # fmt: skip
    got = await http.get(written["url"])
    assert (got.status_code, got.text, got.headers["content-type"]) == (200, "# Report\n", "text/markdown")
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''result.md"
    assert got.headers["x-content-type-options"] == "nosniff"
    response = await http.get(f"{server.agent('far')}/tasks/{work.id}/artifacts/{made[1]['artifactId']}")
    assert response.text == "done"


async def test_the_same_file_again_is_the_same_artifact(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime, work = await started(server, http)
    first, again = [await runtime.about(work, "artifacts", **FILE) for _ in range(2)]
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    changed = await runtime.about(work, "artifacts", **{**FILE, "content_text": "# Other"})
    second = await runtime.about(work, "artifacts", **FILE, index=1)
    assert (changed.status_code, second.status_code) == (201, 201)
    assert changed.json()["artifact_id"] == first.json()["artifact_id"] != second.json()["artifact_id"]
    made = (await task_of(server, work))["artifacts"]
    assert [one["parts"][0]["text"] for one in made] == ["# Other", "# Report\n"]


async def test_a_large_file_lies_beside_the_log(site: Site, http: httpx2.AsyncClient, tmp_path: Path) -> None:
    server = await site.open()
    runtime, work = await started(server, http)
    content = "ä\x00🙂" * (1024 * 1024 // 7)
    written = await runtime.about(work, "artifacts", **{**FILE, "content_text": content})
    assert written.status_code == 201
    made = (await task_of(server, work))["artifacts"]
    assert made[0]["parts"][0]["text"] == content
    assert (await http.get(written.json()["url"])).content == content.encode()
    assert max(len(event.body or b"") for event in await server.exchange.store.read(work.id, 0, 99)) < 2000  # type: ignore[arg-type]
    over = await runtime.about(work, "artifacts", **{**FILE, "content_text": "x" * (1024 * 1024 + 1)})
    assert error_of(over) == (413, "payload_too_large")


@pytest.mark.parametrize(
    "wrong",
    [
        {"filename": "/etc/passwd"},
        {"filename": "../up.md"},
        {"filename": "a/../../b"},
        {"filename": "a//b"},
        {"filename": "C:/x"},
        {"filename": "a\\b"},
        {"filename": "a\nb"},
        {"filename": ""},
        {"filename": "x" * 501},
        {"filename": 7},
        {"mime_type": "markdown"},
        {"mime_type": "text/x\r\nset-cookie: a"},
        {"content_text": None},
        {"keywords": "one"},
        {"summary": "x" * 5000},
    ],
    ids=str,
)
async def test_what_is_no_file_is_refused(tmp_path: Path, http: httpx2.AsyncClient, wrong: dict[str, Any]) -> None:
    async with serving(tmp_path / "data", [edge()]) as server:
        runtime, work = await started(server, http)
        assert error_of(await runtime.about(work, "artifacts", **{**FILE, **wrong})) == (400, "invalid_artifact")
        assert "artifacts" not in await task_of(server, work)


async def test_a_turn_that_is_done_again_replaces_what_it_wrote(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime, work = await started(server, http)
    await runtime.about(work, "artifacts", **FILE)
    assert (await runtime.about(work, "release")).json() == {"task_run_id": work.id, "status": "queued"}
    assert error_of(await runtime.about(work, "artifacts", **{**FILE, "title": "x"})) == (409, "lease_lost")
    again = await runtime.one()
    assert (await runtime.about(again, "artifacts", **{**FILE, "content_text": "better"})).status_code == 201
    await runtime.complete(again)
    assert [one["parts"][0]["text"] for one in (await task_of(server, work))["artifacts"]] == ["better"]


async def test_a_file_is_for_those_who_may_see_its_task(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async with open_records(Settings.model_validate({"data_dir": tmp_path / "data"})) as records:
        keys = ApiKeys(records)
        tokens = {name: (await keys.create(name, scopes))[1] for name, scopes in _SCOPES.items()}
    async with serving(tmp_path / "data", [edge()], auth="required") as server:
        pairing = await http.post(f"{server.url}/admin/agents/far/pairing", headers=_as(tokens["ops"]))
        runtime = Raw(http, server.url, (await attach(http, server.url, pairing.json()["pairing_token"])).json())
        async with Client(server.agent("far"), token=tokens["ann"]) as client:
            await begin(client)
        work = await runtime.one()
        url = (await runtime.about(work, "artifacts", **FILE)).json()["url"]
        assert (await http.get(url, headers=_as(tokens["ann"]))).text == "# Report\n"
        assert (await http.get(url, headers=_as(tokens["ops"]))).status_code == 200
        assert (await http.get(url, headers=_as(tokens["bob"]))).status_code == 404
        assert (await http.get(url, headers=_as(runtime.token))).status_code == 401
        assert (await http.get(url)).status_code == 401


_SCOPES = {"ops": ["admin"], "ann": ["read", "send"], "bob": ["read", "send"]}


def _as(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_what_is_not_there_is_not_found(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime, work = await started(server, http)
    at = f"{server.agent('far')}/tasks/{work.id}/artifacts"
    file = (await runtime.about(work, "artifacts", **FILE)).json()["artifact_id"]
    for path, status in (
        (f"{at}/none", 404), (f"{at}/{file}?part=1", 404), (f"{at}/{file}?part=x", 400), (f"{at}/{file}?part=0", 200),
        (f"{server.agent('far')}/tasks/none/artifacts/{file}", 404),
        (f"{server.agent('no')}/tasks/{work.id}/artifacts/{file}", 404),
        (f"{server.url}/tasks/{work.id}/artifacts/{file}", 200),
    ):  # fmt: skip
        assert (await http.get(path)).status_code == status, path
