"""The audit log over HTTP: who did what, from where, with which result."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import NeedInput, Text, Turn, agent
from parley.app import open_audit
from parley.settings import Settings
from parley.testing.servers import serving
from tests.faces.actions.agents import writer
from tests.faces.wires import Wire

Headers = dict[str, str]
SECRET = "the-words-of-the-message"


@agent("asker")
async def asker(turn: Turn):
    """Asks, then ends."""
    if turn.text == SECRET:
        yield NeedInput("Go on?")
    else:
        yield Text("done")


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" content="([0-9a-f]+)"', page)
    assert found is not None
    return found[1]


class House:
    def __init__(self, http: httpx2.AsyncClient, keys: dict[str, Headers]) -> None:
        self.http = http
        self.keys = keys

    async def entries(self, **query: str) -> list[dict[str, Any]]:
        reply = await self.http.get("/admin/audit", headers=self.keys["root"], params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()["entries"]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    keys: dict[str, Headers] = {}
    async with serving(tmp_path / "data", [asker]) as server, httpx2.AsyncClient(base_url=server.url) as http:
        for name, role in {"root": "admin", "ann": "user"}.items():
            made = (await http.post("/admin/keys", json={"name": name, "role": role})).json()
            keys[name] = {"X-API-Key": made["token"]}
    async with (
        serving(tmp_path / "data", [asker], auth="required") as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        yield House(http, keys)


async def test_keys_are_recorded_with_who_and_from_where(house: House) -> None:
    await house.http.post("/admin/keys", json={"name": "ci"}, headers=house.keys["root"])
    await house.http.delete("/admin/keys/ci", headers=house.keys["root"])
    entries = await house.entries(target="ci")
    assert [(one["action"], one["actor"], one["address"], one["result"]) for one in entries] == [
        ("key.revoked", "service:root", "127.0.0.1", "done"),
        ("key.created", "service:root", "127.0.0.1", "done"),
    ]
    made = await house.entries(actor="local")
    assert [(one["action"], one["target"]) for one in made] == [("key.created", "ann"), ("key.created", "root")]


async def test_answers_and_cancels_are_recorded_and_sends_and_contents_are_not(house: House) -> None:
    wire, ann = Wire("JSON-RPC 1.0", "/agents/asker"), house.keys["ann"]

    async def send(text: str, task: str | None = None) -> str:
        message = {"messageId": f"m-{text}-{task}", "role": "ROLE_USER", "parts": [{"text": text}]}
        body = {"message": {**message, **({"taskId": task} if task else {})}}
        reply = await house.http.post("/agents/asker/message:send", json=body, headers={**ann, "A2A-Version": "1.0"})
        return reply.json()["task"]["id"]

    await send("hello")
    answered = await send(SECRET)
    await send("go on", answered)
    other = (await wire.ask(house.http, "send", headers=ann)).json()["result"]["task"]["id"]
    again = await house.http.post(
        "/agents/asker/message:send",
        json={"message": {"messageId": "m2", "role": "ROLE_USER", "parts": [{"text": SECRET}]}},
        headers={**ann, "A2A-Version": "1.0"},
    )
    waiting = again.json()["task"]["id"]
    assert (await wire.ask(house.http, "cancel", waiting, headers=ann)).status_code == 200
    await house.http.post("/admin/signing/rotate", headers=house.keys["root"])
    entries = await house.entries(actor="service:ann")
    assert [(one["action"], one["target"]) for one in entries] == [
        ("run.canceled", waiting),
        ("run.answered", answered),
    ]
    assert other not in str(await house.entries())
    assert all(SECRET not in str(one) and "parley_" not in str(one) for one in await house.entries())


async def test_refusals_are_recorded(house: House) -> None:
    await house.http.get("/admin/keys", headers=house.keys["ann"])
    await house.http.get("/admin/keys", headers={"X-API-Key": "parley_wrong"})
    for _ in range(20):
        await house.http.get("/admin/keys")
    await house.http.post("/admin/signing/rotate", headers=house.keys["root"])
    entries = await house.entries(result="refused")
    assert [(one["actor"], one["code"], one["target"], one["count"]) for one in entries] == [
        ("", "unauthenticated", "GET /admin/keys", 1),
        ("service:ann", "permission_denied", "GET /admin/keys", 1),
    ]


async def test_signing_in_and_out_of_the_console_is_recorded(house: House) -> None:
    page = (await house.http.get("/console/login")).text
    token = house.keys["ann"]["X-API-Key"]
    await house.http.post("/console/login", data={"credential": token, "csrf": csrf_of(page)})
    page = (await house.http.get("/console/inbox")).text
    await house.http.post("/console/logout", data={"csrf": csrf_of(page)})
    page = (await house.http.get("/console/login")).text
    wrong = await house.http.post("/console/login", data={"credential": "parley_wrong", "csrf": csrf_of(page)})
    assert wrong.status_code == 401
    await house.http.post("/admin/signing/rotate", headers=house.keys["root"])
    found = [(one["action"], one["actor"], one["target"]) for one in await house.entries()]
    assert found[1:4] == [
        ("request.refused", "", "POST /console/login"),
        ("session.ended", "service:ann", ""),
        ("session.started", "service:ann", ""),
    ]


async def test_nodes_and_their_tokens_are_recorded(house: House) -> None:
    ask, root = house.http.request, house.keys["root"]
    made = (await ask("POST", "/workspaces", json={"name": "top"}, headers=root)).json()
    at = f"/workspaces/{made['id']}"
    token = (await ask("POST", f"{at}/tokens", headers=root)).json()
    for method, path, body in (
        ("PATCH", at, {"name": "roof"}), ("DELETE", f"{at}/tokens/{token['prefix']}", None), ("DELETE", at, None),
    ):  # fmt: skip
        assert (await ask(method, path, json=body, headers=root)).status_code == 200, path
    entries = await house.entries(target=made["id"])
    assert [(one["action"], one["actor"]) for one in entries] == [
        ("node.removed", "service:root"), ("node.tokens_revoked", "service:root"), ("node.changed", "service:root"),
        ("node.token_created", "service:root"), ("node.created", "service:root"),
    ]  # fmt: skip
    assert token["auth_token"] not in str(await house.entries())


async def test_deletions_of_documents_are_recorded(tmp_path: Path) -> None:
    at = "/api/agent2agent/conversations"
    async with serving(tmp_path, [writer]) as server, httpx2.AsyncClient(base_url=server.url, timeout=30) as http:
        begun = (await http.post(at, json={"agentSlug": "writer"})).json()["conversationId"]

        async def act(action: str, **params: str | bool) -> dict[str, Any]:
            body = {"mode": "plan", "action": action, "agentSlug": "writer", **params}
            done = (await http.post(f"{at}/{begun}/tasks", json=body)).json()
            assert done["status"] == "completed", done
            return done

        first = (await act("create", message="Tides"))["taskId"]
        await act("create", message="Tides again")
        await act("delete_version", versionId=first, confirm=True)
        await act("delete", confirm=True)
        await http.post("/admin/signing/rotate")
        entries = (await http.get("/admin/audit")).json()["entries"]
        assert [(one["action"], one["kind"], one["target"]) for one in entries[1:3]] == [
            ("document.deleted", "plan", begun), ("version.deleted", "plan", first),
        ]  # fmt: skip
        assert "Tides" not in str(entries)


async def test_pages_filters_and_wrong_queries(house: House) -> None:
    for number in range(5):
        await house.http.post("/admin/keys", json={"name": f"k{number}"}, headers=house.keys["root"])
    ask, seen, token = house.http.get, list[int](), ""
    while True:
        query = {"pageSize": "3", "action": "key.created", "pageToken": token}
        reply = (await ask("/admin/audit", headers=house.keys["root"], params=query)).json()
        seen += [one["seq"] for one in reply["entries"]]
        token = reply["nextPageToken"]
        if not token:
            break
    assert seen == [7, 6, 5, 4, 3, 2, 1]
    assert await house.entries(since="2999-01-01") == []
    assert len(await house.entries(until="2999-01-01")) == 7
    for wrong in ({"action": "x"}, {"result": "x"}, {"since": "x"}, {"pageToken": "x"}, {"other": "x"}):
        assert (await ask("/admin/audit", headers=house.keys["root"], params=wrong)).status_code == 400, wrong


async def test_a_person_is_erased_and_the_chain_holds(house: House, tmp_path: Path) -> None:
    await house.http.get("/admin/keys", headers=house.keys["ann"])
    reply = await house.http.post("/admin/audit/erase", json={"principal": "service:ann"}, headers=house.keys["root"])
    assert reply.json() == {"erased": 1}
    entries = await house.entries()
    assert [(one["action"], one["actor"], one["address"]) for one in entries[:2]] == [
        ("audit.erased", "service:root", "127.0.0.1"),
        ("request.refused", None, None),
    ]
    assert "service:ann" not in str(entries)
    async with open_audit(Settings(data_dir=tmp_path / "data")) as log:
        summary = await log.verify()
    assert (summary.checked, summary.erased) == (len(entries), 1)
    assert entries[0]["hash"] == summary.head.hash.hex()


@pytest.mark.parametrize("count", [3])
async def test_two_servers_write_one_chain(tmp_path: Path, count: int, database: str) -> None:
    given = {"store": "postgres", "postgres_url": database}
    async with (
        serving(tmp_path / "one", [asker], **given) as one,
        serving(tmp_path / "two", [asker], **given) as two,
        httpx2.AsyncClient() as http,
    ):
        asked = [
            http.post(f"{url}/admin/keys", json={"name": f"k{url[-1]}{number}"})
            for number in range(count)
            for url in (one.url, two.url)
        ]
        for reply in await asyncio.gather(*asked):
            assert reply.status_code in (201, 409)
        listed = (await http.get(f"{one.url}/admin/audit")).json()["entries"]
        assert listed == (await http.get(f"{two.url}/admin/audit")).json()["entries"]
    async with open_audit(Settings(data_dir=tmp_path / "one", **given)) as log:  # type: ignore[arg-type]
        assert (await log.verify()).checked == len(listed)


async def test_the_page_of_the_console_filters_and_shows_who_was_erased(house: House) -> None:
    root = house.keys["root"]
    await house.http.get("/admin/keys", headers=house.keys["ann"])
    await house.http.post("/admin/audit/erase", json={"principal": "service:ann"}, headers=root)

    async def rows(**query: str) -> list[str]:
        page = (await house.http.get("/console/operations/audit", headers=root, params=query)).text
        body = page.partition("<tbody>")[2].partition("</tbody>")[0]
        return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in body.split("</tr>")[:-1]]

    assert len(await rows()) == 4
    (refused,) = await rows(result="refused", action="request.refused")
    assert "erased request.refused path GET /admin/keys permission_denied" in refused
    assert [row.split()[-3:-1] for row in await rows(actor="local")] == [["ann", "done"], ["root", "done"]]
    assert await rows(since="2999-01-01") == []
    assert len(await rows(until="2999-01-01", target="")) == 4
    wrong = await house.http.get("/console/operations/audit", headers=root, params={"since": "x"})
    assert wrong.status_code == 400
