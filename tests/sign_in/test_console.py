"""Signing in to the console at a real provider, over the wire."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
import pytest_asyncio
from msgspec import Struct

from parley.app import open_records
from parley.security import tokens
from parley.security.keys import ApiKeys
from parley.settings import Settings
from parley.testing.servers import Server, serving
from tests.permissions.house import echo
from tests.sign_in.provider import (
    ROLE_GROUPS,
    SECRET,
    Provider,
    User,
    client,
    free_address,
    provider_at,
    query_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

KEY = "the-configured-key-of-the-tests"


class Visitor:
    """A browser at the console, which knows nothing of the provider's pages."""

    def __init__(self, server: Server) -> None:
        self.http = httpx2.AsyncClient(base_url=server.url, timeout=30)

    async def __aenter__(self) -> "Visitor":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def begin(self, place: str = "") -> str:
        reply = await self.http.get("/console/login/provider", params={"next": place} if place else {})
        assert reply.status_code == 303, reply.text
        return reply.headers["location"]

    async def complete(self, address: str) -> httpx2.Response:
        return await self.http.get(address)

    async def signed_in(self, name: str, place: str = "") -> httpx2.Response:
        async with User(name) as user:
            return await self.complete(await user.signs_in(await self.begin(place)))

    async def status(self, path: str = "/console/inbox") -> int:
        return (await self.http.get(path)).status_code

    async def post(self, path: str, **form: str) -> httpx2.Response:
        page = await self.http.get("/console/inbox")
        token = re.search(r'name="csrf" content="([0-9a-f]+)"', page.text)
        assert token is not None
        return await self.http.post(path, data={**form, "csrf": token[1]})


class Place(Struct):
    server: Server
    provider: Provider
    admin: dict[str, str]
    """Headers of an administrator's key."""
    settings: dict[str, Any]

    @property
    def clients(self) -> list[dict[str, Any]]:
        return [client("console", self.server.url), client("other", self.server.url)]

    async def audit(self, **query: str) -> list[dict[str, Any]]:
        async with httpx2.AsyncClient(base_url=self.server.url, headers=self.admin) as http:
            return (await http.get("/admin/audit", params=query)).json()["entries"]

    async def sessions(self, principal: str) -> list[dict[str, Any]]:
        async with httpx2.AsyncClient(base_url=self.server.url, headers=self.admin) as http:
            found = await http.get("/admin/sessions", params={"principal": principal})
            assert found.status_code == 200
            return found.json()["sessions"]


@asynccontextmanager
async def open_place(directory: Path, *, keys: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[Place]:
    address = free_address()
    settings = {
        "auth": "required", "api_key": KEY, "oidc_issuer": address, "oidc_client_id": "console",
        "oidc_client_secret": SECRET, "oidc_name": "Example", "role_groups": ROLE_GROUPS,
        "oidc_default_role": "none", **more,
    }  # fmt: skip
    async with open_records(Settings(data_dir=directory)) as records:
        _, token = await ApiKeys(records).create("boss", role="admin")
    async with serving(directory, [echo], **settings) as server:
        clients = client("console", server.url), client("other", server.url)
        async with provider_at(address, *clients, keys=keys) as provider:
            yield Place(server, provider, {"Authorization": f"Bearer {token}"}, settings)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with open_place(tmp_path_factory.mktemp("sign-in")) as found:
        yield found


@pytest.fixture
async def visitor(place: Place) -> AsyncIterator[Visitor]:
    async with Visitor(place.server) as found:
        yield found


@pytest.mark.parametrize(
    ("name", "role", "operations", "usage"),
    [("root", "admin", 200, 200), ("olga", "operator", 403, 200), ("ursula", "user", 403, 403),
     ("rita", "reader", 403, 403)],
)  # fmt: skip
async def test_a_user_signs_in_with_the_role_of_its_groups(
    name: str, role: str, operations: int, usage: int, place: Place, visitor: Visitor
) -> None:
    page = await visitor.http.get("/console/login")
    assert "Sign in with Example" in page.text
    reply = await visitor.signed_in(name, "/console/runs")
    assert reply.status_code == 200
    assert 'content="0; url=/console/runs"' in reply.text
    cookie = next(one for one in reply.headers.get_list("set-cookie") if one.startswith("parley_console="))
    assert {"HttpOnly", "SameSite=Strict", "Path=/console"} <= set(cookie.split("; "))
    inbox = await visitor.http.get("/console/inbox")
    assert (inbox.status_code, f"user:{name}" in inbox.text) == (200, True)
    assert await visitor.status("/console/operations") == operations
    tried = await visitor.post("/console/agents/echo/try", text="hi")
    assert (tried.status_code == 403) is (role == "reader")
    session = (await place.sessions(f"user:{name}"))[0]
    assert (session["method"], session["groups"]) == ("provider", sorted(ROLE_GROUPS_OF[name]))
    started = (await place.audit(action="session.started", actor=f"user:{name}"))[0]
    assert (started["target"], started["address"]) == (place.provider.url, "127.0.0.1")


ROLE_GROUPS_OF = {"root": ["platform"], "olga": ["on-call", "staff"], "ursula": ["staff"], "rita": ["auditors"]}


async def test_a_user_without_a_role_is_refused(place: Place, visitor: Visitor) -> None:
    reply = await visitor.signed_in("guest")
    assert (reply.status_code, "has no role here" in reply.text) == (403, True)
    assert await visitor.status() == 303
    assert (await place.audit(action="request.refused"))[0]["code"] == "no_role"
    assert await place.sessions("user:guest") == []


async def test_a_wrong_state_is_refused(place: Place, visitor: Visitor) -> None:
    async with User("root") as user:
        back = await user.signs_in(await visitor.begin())
        forged = {**query_of(back), "state": "a-state-of-another-sign-in"}
        reply = await visitor.http.get("/console/login/callback", params=forged)
        assert (reply.status_code, "belongs to another sign-in" in reply.text) == (401, True)
        again = await visitor.complete(back)
        assert (again.status_code, "has expired" in again.text) == (401, True)
    assert await visitor.status() == 303
    codes = {one["code"] for one in await place.audit(action="request.refused")}
    assert {"sign_in_refused", "sign_in_expired"} <= codes


async def test_a_sign_in_of_another_browser_is_refused(place: Place, visitor: Visitor) -> None:
    async with User("root") as user, Visitor(place.server) as other:
        back = await user.signs_in(await visitor.begin())
        reply = await other.complete(back)
        assert (reply.status_code, "started in another browser" in reply.text) == (401, True)
        await other.begin()
        assert (await other.complete(back)).status_code == 401
        assert await other.status() == 303


async def test_a_wrong_nonce_is_refused(visitor: Visitor) -> None:
    async with User("root") as user:
        begun = await visitor.begin()
        back = await user.signs_in(begun.replace(f"nonce={query_of(begun)['nonce']}", "nonce=replayed"))
        reply = await visitor.complete(back)
        assert (reply.status_code, "ID token belongs to another sign-in" in reply.text) == (401, True)


async def test_a_wrong_issuer_is_refused(place: Place, visitor: Visitor) -> None:
    async with User("root") as user:
        back = await user.signs_in(await visitor.begin())
        assert query_of(back)["iss"] == place.provider.url
        for changed in ({"iss": "https://login.example.org"}, {"iss": None}):
            query = {name: value for name, value in (query_of(back) | changed).items() if value is not None}
            kept = visitor.http.cookies["parley_sign_in"]
            reply = await visitor.http.get("/console/login/callback", params=query)
            assert (reply.status_code, "from another issuer" in reply.text) == (401, True)
            visitor.http.cookies.set("parley_sign_in", kept, domain="127.0.0.1", path="/console")


async def test_a_code_of_another_client_is_refused(visitor: Visitor) -> None:
    async with User("root") as user:
        back = await user.signs_in((await visitor.begin()).replace("client_id=console", "client_id=other"))
        reply = await visitor.complete(back)
        assert (reply.status_code, "invalid_grant" in reply.text) == (401, True)


async def test_a_code_is_good_for_one_sign_in(visitor: Visitor) -> None:
    async with User("root") as user:
        back = await user.signs_in(await visitor.begin())
        kept = visitor.http.cookies["parley_sign_in"]
        assert (await visitor.complete(back)).status_code == 200
        visitor.http.cookies.clear()
        visitor.http.cookies.set("parley_sign_in", kept, domain="127.0.0.1", path="/console")
        reply = await visitor.complete(back)
        assert (reply.status_code, "invalid_grant" in reply.text) == (401, True)


async def test_a_code_without_its_verifier_is_refused(visitor: Visitor) -> None:
    async with User("root") as user:
        begun = await visitor.begin()
        other = begun.replace(query_of(begun)["code_challenge"], query_of(await visitor.begin())["code_challenge"])
        begun = await visitor.begin()
        mixed = query_of(other) | {name: query_of(begun)[name] for name in ("state", "nonce")}
        back = await user.signs_in(f"{other.partition('?')[0]}?{urlencode(mixed)}")
        reply = await visitor.complete(back)
        assert (reply.status_code, "invalid_grant" in reply.text) == (401, True)


async def test_an_expired_code_is_refused(place: Place, visitor: Visitor) -> None:
    async with User("root") as user:
        back = await user.signs_in(await visitor.begin())
        await place.provider.move_clock(90)
        try:
            reply = await visitor.complete(back)
        finally:
            await place.provider.move_clock(0)
        assert (reply.status_code, "invalid_grant" in reply.text) == (401, True)


@pytest.mark.parametrize(("ahead_s", "status"), [(25, 200), (45, 401), (-3590, 200), (-3700, 401)])
async def test_clocks_may_differ_by_half_a_minute(ahead_s: int, status: int, place: Place, visitor: Visitor) -> None:
    await place.provider.move_clock(ahead_s)
    try:
        assert (await visitor.signed_in("root")).status_code == status
    finally:
        await place.provider.move_clock(0)


async def test_a_user_who_refuses_is_told_so(place: Place, visitor: Visitor) -> None:
    state = query_of(await visitor.begin())["state"]
    answer = {"state": state, "iss": place.provider.url, "error": "access_denied", "error_description": "<b>pay</b>"}
    reply = await visitor.http.get("/console/login/callback", params=answer)
    assert (reply.status_code, "access_denied" in reply.text, "pay" in reply.text) == (401, True, False)


async def test_keys_are_fetched_again_after_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "REFETCH_S", 0.0)
    async with open_place(tmp_path) as place, Visitor(place.server) as first, Visitor(place.server) as second:
        assert (await first.signed_in("root")).status_code == 200
        await place.provider.stop()
        async with provider_at(place.provider.url, *place.clients) as rotated:
            assert rotated.keys != place.provider.keys
            assert (await second.signed_in("root")).status_code == 200
        assert (await first.status(), await second.status()) == (200, 200)


async def test_a_provider_that_is_away_is_a_temporary_error(place: Place, tmp_path: Path) -> None:
    away = {**place.settings, "oidc_issuer": free_address()}
    async with serving(tmp_path, [echo], **away) as server, httpx2.AsyncClient(base_url=server.url) as http:
        reply = await http.get("/console/login/provider")
        assert (reply.status_code, "issuer_unavailable" in reply.text) == (503, True)
        assert (await http.get("/console/login")).status_code == 200


async def test_an_issuer_with_another_name_is_refused(place: Place, tmp_path: Path) -> None:
    other = place.provider.url.replace("127.0.0.1", "localhost")
    async with serving(tmp_path, [echo], **{**place.settings, "oidc_issuer": other}) as server, Visitor(server) as one:
        assert (await one.http.get("/console/login/provider")).status_code == 503


async def test_signing_out_ends_the_session_here_and_at_the_provider(place: Place, visitor: Visitor) -> None:
    async with User("ursula") as user:
        await visitor.complete(await user.signs_in(await visitor.begin()))
        stolen = visitor.http.cookies["parley_console"]
        assert len(await place.sessions("user:ursula")) >= 1
        before = len(await place.sessions("user:ursula"))
        out = await visitor.post("/console/logout")
        found = re.search(r'content="0; url=([^"]+)"', out.text)
        assert found is not None
        address = found[1].replace("&amp;", "&")
        assert len(await place.sessions("user:ursula")) == before - 1
        visitor.http.cookies.set("parley_console", stolen, domain="127.0.0.1", path="/console")
        assert await visitor.status() == 303
        query = query_of(address)
        assert (query["client_id"], query["post_logout_redirect_uri"]) == (
            "console", f"{place.server.url}/console/login",
        )  # fmt: skip
        assert query["id_token_hint"].count(".") == 2
        back = await user.signs_in(address)
        assert back.startswith(f"{place.server.url}/console/login")
    assert (await place.audit(action="session.ended", actor="user:ursula"))[0]["target"] == place.provider.url


async def test_an_administrator_revokes_a_session_on_every_replica(
    place: Place, visitor: Visitor, tmp_path: Path
) -> None:
    async with Visitor(place.server) as second, Visitor(place.server) as admin:
        for one in (visitor, second):
            await one.signed_in("rita")
        sessions = await place.sessions("user:rita")
        async with httpx2.AsyncClient(base_url=place.server.url, headers=place.admin) as http:
            reply = await http.delete(f"/admin/sessions/{sessions[0]['id']}")
            assert reply.json() == {"revoked": [sessions[0]["id"]]}
            assert (await http.delete(f"/admin/sessions/{sessions[0]['id']}")).status_code == 404
        assert sorted([await visitor.status(), await second.status()]) == [200, 303]
        revoked = (await place.audit(action="session.revoked"))[0]
        assert (revoked["actor"], revoked["target"], revoked["person"]) == (
            "service:boss", sessions[0]["id"], "user:rita",
        )  # fmt: skip
        await admin.signed_in("root")
        page = await admin.http.get("/console/operations/sessions", params={"principal": "user:rita"})
        assert "user:rita" in page.text
        reply = await admin.post("/console/operations/sessions/revoke", session="user:rita")
        assert reply.status_code == 303
        assert (await visitor.status(), await second.status()) == (303, 303)
        assert await place.sessions("user:rita") == []


async def test_a_session_holds_nothing_that_opens_it(place: Place, visitor: Visitor, tmp_path: Path) -> None:
    async with User("root") as user:
        reply = await visitor.complete(await user.signs_in(await visitor.begin()))
    cookie = visitor.http.cookies["parley_console"]
    shown = str(await place.sessions("user:root")) + str(await place.audit()) + reply.text
    assert cookie not in shown
    async with Visitor(place.server) as other:
        for wrong in ("", "x", cookie[:-4] + "AAAA"):
            other.http.cookies.set("parley_console", wrong, domain="127.0.0.1", path="/console")
            assert await other.status() == 303


async def test_an_erased_user_is_signed_out(place: Place, visitor: Visitor) -> None:
    await visitor.signed_in("olga")
    async with httpx2.AsyncClient(base_url=place.server.url, headers=place.admin) as http:
        assert (await http.post("/admin/audit/erase", json={"principal": "user:olga"})).status_code == 200
    assert await visitor.status() == 303
    assert await place.audit(actor="user:olga") == []


async def test_a_credential_has_a_session_that_can_be_revoked(place: Place, visitor: Visitor) -> None:
    page = await visitor.http.get("/console/login")
    token = re.search(r'name="csrf" content="([0-9a-f]+)"', page.text)
    assert token is not None
    form = {"credential": KEY, "csrf": token[1]}
    assert (await visitor.http.post("/console/login", data=form)).status_code == 303
    assert await visitor.status() == 200
    sessions = await place.sessions("service:configured")
    assert [one["method"] for one in sessions] == ["credential"]
    async with httpx2.AsyncClient(base_url=place.server.url, headers=place.admin) as http:
        assert (await http.delete("/admin/sessions/service:configured")).status_code == 200
    assert await visitor.status() == 303


async def test_a_server_without_a_client_has_no_sign_in(tmp_path: Path) -> None:
    async with serving(tmp_path, [echo], auth="required", api_key=KEY) as server, Visitor(server) as visitor:
        for path in ("/console/login/provider", "/console/login/callback", "/.well-known/parley-sign-in"):
            assert await visitor.status(path) == 404
        assert "Sign in with" not in (await visitor.http.get("/console/login")).text
