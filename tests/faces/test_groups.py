"""Roles and groups over HTTP: of keys, and of users whose issuer names their groups."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley import NeedInput, Turn, agent
from parley.testing.servers import serving
from tests.faces.wires import Wire
from tests.security.issuer import AUDIENCE, Issuer, issuing

Headers = dict[str, str]


@agent("asker")
async def asker(turn: Turn):
    """Asks, so that its task stays open."""
    yield NeedInput(turn.text)


@agent("secret", visibility="private", allow=("service:bot",))
async def secret(turn: Turn):
    """Exists for one caller."""
    yield NeedInput(turn.text)


class House:
    def __init__(self, http: httpx2.AsyncClient, issuer: Issuer, keys: dict[str, Headers]) -> None:
        self.http = http
        self.issuer = issuer
        self.keys = keys

    def user(self, **claims: Any) -> Headers:
        return {"Authorization": f"Bearer {self.issuer.token(**claims)}"}

    async def get(self, who: Headers, path: str, **query: str) -> httpx2.Response:
        return await self.http.get(path, headers=who, params=query)

    async def task(self, who: Headers, slug: str = "asker") -> str:
        reply = await Wire("JSON-RPC 1.0", f"/agents/{slug}").ask(self.http, "send", headers=who)
        return reply.json()["result"]["task"]["id"]


KEYS: dict[str, dict[str, Any]] = {
    "root": {"role": "admin"},
    "ops": {"role": "operator", "groups": ["on-call"]},
    "bot": {"groups": ["on-call", "/teams/blue"]},
    "eye": {"role": "reader"},
}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    keys: dict[str, Headers] = {}
    async with serving(tmp_path, [asker]) as server, httpx2.AsyncClient(base_url=server.url) as http:
        for name, given in KEYS.items():
            made = (await http.post("/admin/keys", json={"name": name, **given})).json()
            assert (made["role"], made["groups"]) == (given.get("role", "user"), sorted(given.get("groups", [])))
            keys[name] = {"X-API-Key": made["token"]}
    async with (
        issuing() as issuer,
        serving(
            tmp_path,
            [asker, secret],
            auth="required",
            oidc_issuer=issuer.url,
            oidc_audience=AUDIENCE,
            allow_hosts=["127.0.0.1"],
            oidc_default_role="none",
            role_groups={"admin": ["platform"], "operator": ["on-call"], "user": ["staff"]},
        ) as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        yield House(http, issuer, keys)


async def test_the_issuers_groups_give_users_their_role(house: House) -> None:
    expected: dict[str, str | None] = {"platform": "admin", "on-call": "operator", "staff": "user", "guests": None}
    for group, role in expected.items():
        who = (await house.get(house.user(groups=[group]), "/admin/whoami")).json()
        assert (who["role"], who["groups"]) == (role, [group])
    refused = await Wire("JSON-RPC 1.0", "/agents/asker").ask(house.http, "send", headers=house.user(groups=["guests"]))
    assert refused.status_code == 403
    narrowed = house.user(groups=["platform"], scope="parley:read")
    assert (await house.get(narrowed, "/admin/whoami")).json()["role"] == "reader"
    assert (await house.get(narrowed, "/admin/keys")).status_code == 403


async def test_an_operator_sees_and_steers_everybodys_tasks_and_manages_nothing(house: House) -> None:
    ops, bot = house.keys["ops"], house.keys["bot"]
    assert (await house.get(house.keys["eye"], "/admin/runs")).status_code == 403
    for slug in ("asker", "secret"):
        task = await house.task(bot, slug)
        assert task in [run["id"] for run in (await house.get(ops, "/admin/runs")).json()["runs"]]
        canceled = await Wire("JSON-RPC 1.0", f"/agents/{slug}").ask(house.http, "cancel", task, headers=ops)
        assert canceled.json()["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    for method, path in (("GET", "/admin/keys"), ("POST", "/admin/signing/rotate"), ("GET", "/workspaces")):
        assert (await house.http.request(method, path, headers=ops)).status_code == 403


async def test_groups_their_members_and_their_usage_are_reported(house: House) -> None:
    ops, ann = house.keys["ops"], house.user(groups=["staff", "on-call"])
    await house.task(ann)
    await house.task(house.keys["bot"])
    listed = (await house.get(ops, "/admin/groups")).json()
    assert listed == {
        "groups": [
            {"name": "/teams/blue", "role": None, "members": 1},
            {"name": "on-call", "role": "operator", "members": 3},
            {"name": "platform", "role": "admin", "members": 0},
            {"name": "staff", "role": "user", "members": 1},
        ],
        "complete": True,
    }
    one = (await house.get(ops, "/admin/groups", name="on-call")).json()
    assert [member["principal"] for member in one["members"]] == ["service:bot", "service:ops", "user:ann"]
    usage = await house.get(ops, "/admin/usage", group="on-call")
    assert (usage.json()["runs"], usage.json()["complete"]) == (2, True)
    assert (await house.get(ops, "/admin/usage", group="/teams/blue")).json()["runs"] == 1
    assert (await house.get(ops, "/admin/usage", group="none")).json()["runs"] == 0
    assert (await house.get(ops, "/admin/usage", group="a", principal="b")).status_code == 400
    assert (await house.get(house.keys["bot"], "/admin/groups")).status_code == 403


async def test_a_key_of_a_wrong_role_or_group_is_refused(house: House) -> None:
    wrong: list[dict[str, Any]] = [
        {"role": "boss"},
        {"role": "user", "scopes": ["read"]},
        {"groups": [" "]},
        {"role": "operator", "agents": ["asker"]},
    ]
    for one in wrong:
        reply = await house.http.post("/admin/keys", json={"name": "new", **one}, headers=house.keys["root"])
        assert reply.status_code == 400
        assert "INVALID_INPUT" in reply.text
