"""Pairing: a code that works once, a token that only its runtime has, and one runtime for each agent."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import Turn, agent
from parley.app import open_records
from parley.client import Client
from parley.security.keys import ApiKeys
from parley.settings import Settings
from parley.testing.servers import serving
from tests.faces.pairing.conftest import Site, edge
from tests.faces.pairing.runtime import attach, code_for, error_of, paired
from tests.faces.pairing.test_work import SOON, begin

STATUS = "/agent-runtimes/runtime/status"


@agent("here")
async def here(turn: Turn) -> str:
    """Works in this process."""
    return "here"


async def test_a_code_comes_with_everything_an_assistant_needs(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge(), here, platform_name="A2A", platform_origin="a2a.example")
    reply = await http.post(f"{server.url}/admin/agents/far/pairing", json={})
    told = reply.json()
    assert reply.status_code == 201
    assert re.fullmatch(r"([0-9A-HJKMNP-TV-Z]{4}-){3}[0-9A-HJKMNP-TV-Z]{4}", told["pairing_token"])
    assert {name: told[name] for name in ("agent_id", "agent_name", "api_base", "expires_in_seconds")} == {
        "agent_id": "far", "agent_name": "Far", "api_base": server.url, "expires_in_seconds": 600,
    }  # fmt: skip
    for words in (
        "A2A", '"Far"', server.url, told["pairing_token"], f'pip install "{told["package_url"]}"', "a2a-runtime start",
        f"a2a-runtime pair --api-base {server.url} --code {told['pairing_token']}",
    ):  # fmt: skip
        assert words in told["instruction"]
    attached = (await attach(http, server.url, told["pairing_token"])).json()
    assert attached["platform"] == {"name": "A2A", "origin": "a2a.example"}
    assert re.fullmatch(r"[\w-]{43}", attached["runtime_token"])
    assert {name: attached[name] for name in attached if name.endswith("seconds")} == {
        "heartbeat_interval_seconds": 30, "pull_interval_seconds": 1, "lease_seconds": 60,
    }  # fmt: skip


async def test_only_an_edge_agent_is_paired(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge(), here)
    assert error_of(await http.post(f"{server.url}/admin/agents/nobody/pairing")) == (404, "agent_not_found")
    assert error_of(await http.post(f"{server.url}/admin/agents/here/pairing")) == (409, "not_an_edge_agent")


async def test_a_code_is_read_as_people_write_it(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    for write in (str.lower, lambda code: code.replace("-", ""), lambda code: code.replace("0", "o").replace("1", "l")):
        code = await code_for(http, server.url, "far")
        assert (await attach(http, server.url, f" {write(code)} ")).status_code == 200


async def test_a_code_works_once_however_many_come_with_it(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    code = await code_for(http, server.url, "far")
    replies = await asyncio.gather(*(attach(http, server.url, code) for _ in range(10)))
    assert sorted(reply.status_code for reply in replies) == [200] + [401] * 9
    refused = next(reply for reply in replies if reply.status_code == 401)
    assert refused.json() == {"error": {"code": "invalid_pairing_token", "message": "Invalid pairing token"}}


async def test_a_code_belongs_to_the_database_that_issued_it(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async with serving(tmp_path / "a", [edge()]) as one, serving(tmp_path / "b", [edge()]) as other:
        code = await code_for(http, one.url, "far")
        assert error_of(await attach(http, other.url, code)) == (401, "invalid_pairing_token")
        assert (await attach(http, one.url, code)).status_code == 200


async def test_whoever_guesses_codes_is_slowed_down(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    code = await code_for(http, server.url, "far")
    wrong = [error_of(await attach(http, server.url, "0000-0000-0000-0000")) for _ in range(20)]
    assert set(wrong) == {(401, "invalid_pairing_token")}
    refused = await attach(http, server.url, "0000-0000-0000-0000")
    assert error_of(refused) == (429, "rate_limited")
    assert 0 < int(refused.headers["retry-after"]) <= 61
    assert (await attach(http, server.url, code)).status_code == 200, "guesses do not keep a right code out"


async def test_neither_code_nor_token_is_in_the_database(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async with serving(tmp_path / "data", [edge()]) as server:
        codes = [await code_for(http, server.url, "far") for _ in range(2)]
        token = (await attach(http, server.url, codes[0])).json()["runtime_token"]
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("parley.db*"))
    for secret in (token, *codes, *(code.replace("-", "") for code in codes)):
        assert secret.encode() not in stored


async def test_a_new_pairing_takes_the_others_place(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    old = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        await begin(client)
        work = await old.one()
        waiting = asyncio.create_task(old.post("/agent-accounts/far/task-runs/pull", {"wait_ms": 25_000}))
        watching = asyncio.create_task(
            old.post("/agent-runtimes/runtime/control", {"wait_ms": 25_000, "task_run_ids": [work.id]})
        )
        await asyncio.sleep(0.05)
        new = await paired(http, server.url, "far")
        for call in (waiting, watching):
            assert error_of(await asyncio.wait_for(call, SOON)) == (401, "runtime_revoked")
        refused = await old.about(work, "complete", output={"text": "late"})
        assert refused.status_code == 401
        assert refused.json()["error"] == {
            "code": "runtime_revoked", "message": "This runtime was replaced by a newer pairing.",
        }  # fmt: skip
        again = await new.one()
        assert (again.id, again.wire["attempt"]) == (work.id, 1)
        await new.complete(again, text="done")


async def test_an_operator_sees_and_revokes_the_runtime(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    address = f"{server.url}/admin/agents/far/runtime"
    assert (await http.get(address)).json() == {"agent_id": "far", "paired": False, "online": False, "runtime": None}
    assert error_of(await http.delete(address)) == (404, "not_found")
    runtime = await paired(http, server.url, "far")
    seen = (await http.get(address)).json()
    assert (seen["paired"], seen["online"], seen["runtime"]["status"]) == (True, True, "ready")
    assert seen["runtime"]["runtime_id"] == runtime.attached["runtime_id"]
    await runtime.post("/agent-runtimes/runtime/detach")
    seen = (await http.get(address)).json()
    assert (seen["paired"], seen["online"], seen["runtime"]["status"]) == (True, False, "detached")
    await runtime.heartbeat()
    assert (await http.get(address)).json()["online"] is True
    assert (await http.delete(address)).json()["revoked"] is True
    refused = await runtime.post("/agent-runtimes/runtime/heartbeat")
    assert error_of(refused) == (401, "runtime_revoked")


async def test_a_runtime_learns_how_it_stands(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        for _ in range(3):
            await begin(client)
    await runtime.one()
    status = (await http.get(server.url + STATUS, headers={"Authorization": f"Bearer {runtime.token}"})).json()
    expected = {"agent_id": "far", "agent_name": "Far", "active": True, "queued": 2, "running": 1}
    assert expected.items() <= status.items()
    assert set(status) == {*expected, "runtime_id", "platform", "attached_at", "last_seen_at"}


async def test_what_a_runtime_holds_goes_back_when_it_takes_its_leave(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open()
    runtime = await paired(http, server.url, "far")
    async with Client(server.agent("far")) as client:
        await begin(client)
    work = await runtime.one()
    reply = await runtime.post("/agent-runtimes/runtime/detach")
    assert reply.json() == {"runtime_id": runtime.attached["runtime_id"], "detached": True}
    again = await runtime.one()
    assert (again.id, again.wire["attempt"]) == (work.id, 1)


@pytest.mark.parametrize("auth", ["required", "local", "none"])
async def test_runtimes_have_credentials_of_their_own(tmp_path: Path, http: httpx2.AsyncClient, auth: str) -> None:
    keys = await _keys(tmp_path / "data")
    async with serving(tmp_path / "data", [edge(), edge("other")], auth=auth) as server:
        admin = {"X-API-Key": keys["admin"]}
        reply = await http.post(f"{server.url}/admin/agents/far/pairing", headers=admin)
        if auth == "none":
            assert error_of(reply) == (403, "permission_denied")
            return
        if auth == "required":
            assert (await http.post(f"{server.url}/admin/agents/far/pairing")).status_code == 401
            plain = await http.post(f"{server.url}/admin/agents/far/pairing", headers={"X-API-Key": keys["plain"]})
            assert error_of(plain) == (403, "permission_denied")
        token = (await attach(http, server.url, reply.json()["pairing_token"])).json()["runtime_token"]
        ours = {"X-Runtime-Token": token}
        for name, foreign in (("X-Runtime-Token", "x" * 43), ("X-Runtime-Token", keys["admin"]), ("X-API-Key", token)):
            refused = await http.get(server.url + STATUS, headers={name: foreign})
            assert error_of(refused) == (401, "unauthenticated")
        assert error_of(await http.get(server.url + STATUS)) == (401, "unauthenticated")
        other = await http.post(f"{server.url}/agent-accounts/other/task-runs/pull", headers=ours)
        assert error_of(other) == (403, "permission_denied")
        assert (await http.get(f"{server.url}/admin/agents", headers={"Authorization": f"Bearer {token}"})).is_error


async def _keys(directory: Path) -> dict[str, str]:
    async with open_records(Settings.model_validate({"data_dir": directory})) as records:
        keys = ApiKeys(records)
        return {"admin": (await keys.create("ops", ["admin"]))[1], "plain": (await keys.create("ci"))[1]}


async def test_a_runtime_reaches_only_its_own_agents_tasks(site: Site, http: httpx2.AsyncClient) -> None:
    server = await site.open(edge(), edge("other"))
    ours, theirs = await paired(http, server.url, "far"), await paired(http, server.url, "other")
    async with Client(server.agent("far")) as client:
        await begin(client)
    work = await ours.one()
    assert error_of(await theirs.about(work, "complete", output={})) == (404, "run_not_found")
    assert error_of(await theirs.post("/task-runs/none/fail", {})) == (404, "run_not_found")
    assert (await theirs.control(work))["lost_task_run_ids"] == [work.id]
    assert (await theirs.heartbeat(work))["lost_task_run_ids"] == [work.id]
    await ours.complete(work, text="mine")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/agent-accounts/far/task-runs/pull", {"limit": 0}),
        ("/agent-accounts/far/task-runs/pull", {"wait_ms": -1}),
        ("/agent-runtimes/runtime/heartbeat", {"task_runs": [{"lease_id": "x"}]}),
        ("/agent-runtimes/runtime/heartbeat", {"status": "lazy"}),
        ("/agent-runtimes/runtime/control", {"task_run_ids": "x"}),
        ("/agent-runtimes/runtime/attach-via-pairing", {}),
        ("/agent-runtimes/runtime/attach-via-pairing", []),
    ],
)
async def test_what_is_not_understood_is_refused_in_words(
    tmp_path: Path, http: httpx2.AsyncClient, path: str, body: Any
) -> None:  # fmt: skip
    async with serving(tmp_path / "data", [edge()]) as server:
        runtime = await paired(http, server.url, "far")
        reply = await http.post(server.url + path, json=body, headers={"X-Runtime-Token": runtime.token})
        assert error_of(reply) == (400, "invalid_input")
        broken = await http.post(server.url + path, content=b"{", headers={"X-Runtime-Token": runtime.token})
        assert error_of(broken) == (400, "invalid_json")
