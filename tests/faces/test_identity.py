"""Authentication and permissions over the wire."""

import asyncio
import json
import sys
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import create_signature_verifier
from jwt.api_jwk import PyJWK

from parley import Text, Turn, agent, telemetry
from parley.errors import ConfigurationError
from parley.security.cards import verify_card
from parley.testing.databases import fresh_database
from parley.testing.servers import Server, serving
from tests.security.issuer import AUDIENCE, issuing

NOBODY: dict[str, str] = {}


@agent("echo")
async def echo(turn: Turn):
    """Says what you said, and to whom."""
    yield Text(f"{turn.principal}: {turn.text}")


class Caller:
    """Asks one server as whoever has these headers."""

    def __init__(self, server: Server, http: httpx2.AsyncClient) -> None:
        self.server = server
        self._http = http

    async def __call__(
        self, method: str, path: str, headers: dict[str, str] = NOBODY, body: Any = None
    ) -> httpx2.Response:
        return await self._http.request(method, self.server.url + path, headers=headers, json=body)

    async def send(self, headers: dict[str, str], text: str = "hello") -> httpx2.Response:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        return await self("POST", "/agents/echo", {"A2A-Version": "1.0", **headers}, request)

    async def key(self, admin: dict[str, str], name: str, **wanted: Any) -> dict[str, str]:
        reply = await self("POST", "/admin/keys", admin, {"name": name, **wanted})
        assert reply.status_code == 201, reply.text
        return {"Authorization": f"Bearer {reply.json()['token']}"}


@asynccontextmanager
async def calling(directory: Path, **settings: Any) -> AsyncIterator[Caller]:
    async with serving(directory, [echo], **settings) as server, httpx2.AsyncClient() as http:
        yield Caller(server, http)


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Caller]:
    async with calling(tmp_path / "data") as caller:
        yield caller


class Guarded:
    """A server that needs credentials, and an administrator's."""

    def __init__(self, ask: Caller, admin: dict[str, str]) -> None:
        self.ask = ask
        self.admin = admin


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with calling(tmp_path / "data") as first:
        admin = await first.key(NOBODY, "root", scopes=["admin"])
    async with calling(tmp_path / "data", auth="required") as caller:
        yield Guarded(caller, admin)


def answer_of(reply: httpx2.Response) -> str:
    return reply.json()["result"]["task"]["artifacts"][0]["parts"][0]["text"]


async def test_this_machine_needs_no_credentials(local: Caller) -> None:
    assert answer_of(await local.send(NOBODY)) == "local: hello"
    who = (await local("GET", "/admin/whoami")).json()
    assert who == {
        "principal": "local", "kind": "local", "name": "", "scopes": ["admin", "read", "send"], "agents": [],
        "role": "admin", "groups": [],
    }  # fmt: skip


async def test_a_credential_that_is_presented_is_used_and_a_wrong_one_refused(local: Caller) -> None:
    key = await local.key(NOBODY, "ci")
    assert answer_of(await local.send(key)) == "service:ci: hello"
    assert (await local.send({"X-API-Key": "parley_wrong"})).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[bad"},
        {"Host": ""},
    ],
)
async def test_other_sites_and_rebound_names_are_refused(local: Caller, headers: dict[str, str]) -> None:
    reply = await local("GET", "/healthz", headers)
    assert reply.status_code == 403
    assert reply.json()["error"]["code"] == "foreign_origin"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/agents/echo"),
        ("POST", "/"),
        ("GET", "/admin/whoami"),
        ("GET", "/admin/keys"),
        ("POST", "/.well-known/jwks.json"),
        ("GET", "/agents/echo/x/.well-known/agent-card.json"),
        ("GET", "/agents//.well-known/agent-card.json"),
        ("GET", "/.well-knownx"),
        ("GET", "/healthz/"),
        ("OPTIONS", "/agents/echo"),
        ("GET", "/nothing"),
    ],
)
async def test_without_credentials_a_closed_path_says_what_it_wants(guarded: Guarded, method: str, path: str) -> None:
    reply = await guarded.ask(method, path)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == 'Bearer realm="parley"'
    error = reply.json()["error"]
    assert (error["code"], error["status"]) == (401, "UNAUTHENTICATED")
    assert error["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "UNAUTHENTICATED",
            "domain": "parley",
            "metadata": {},
        }
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/readyz",
        "/.well-known/agent-card.json",
        "/agents/echo/.well-known/agent-card.json",
        "/.well-known/jwks.json",
    ],
)
async def test_probes_and_discovery_are_open(guarded: Guarded, path: str) -> None:
    assert (await guarded.ask("GET", path)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer parley_0123456789abcdef_" + "x" * 43},
        {"Authorization": "Basic cm9vdDpyb290"},
        {"Authorization": "Bearer"},
        {"Authorization": ""},
        {"Authorization": "Bearer a.b.c"},
        {"Authorization": "Bearer something"},
        {"X-API-Key": "something"},
        {"X-API-Key": ""},
    ],
    ids=str,
)
async def test_a_wrong_credential_is_refused_everywhere(guarded: Guarded, headers: dict[str, str]) -> None:
    for method, path in (("POST", "/agents/echo"), ("GET", "/.well-known/agent-card.json")):
        reply = await guarded.ask(method, path, headers)
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == 'Bearer realm="parley", error="invalid_token"'


async def test_a_key_works_by_either_header(guarded: Guarded) -> None:
    key = await guarded.ask.key(guarded.admin, "ci")
    token = key["Authorization"].removeprefix("Bearer ")
    for headers in (key, {"X-API-Key": token}, {"Authorization": f"bearer  {token}"}):
        assert answer_of(await guarded.ask.send(headers)) == "service:ci: hello"


async def test_what_one_key_started_does_not_exist_for_another(guarded: Guarded) -> None:
    ann, bob = [await guarded.ask.key(guarded.admin, name) for name in ("ann", "bob")]
    task = (await guarded.ask.send(ann)).json()["result"]["task"]["id"]
    request = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task}}
    codes: list[int] = []
    for headers in (ann, bob, guarded.admin):
        reply = await guarded.ask("POST", "/agents/echo", {"A2A-Version": "1.0", **headers}, request)
        codes.append(reply.json().get("error", {}).get("code", 0))
    assert codes == [0, -32001, 0]


async def test_only_administrators_look_after_the_server(guarded: Guarded) -> None:
    key = await guarded.ask.key(guarded.admin, "ci")
    for method, path in (
        ("GET", "/admin/keys"),
        ("POST", "/admin/keys"),
        ("DELETE", "/admin/keys/root"),
        ("POST", "/admin/signing/rotate"),
        ("GET", "/admin/agents"),
    ):
        reply = await guarded.ask(method, path, key)
        assert reply.status_code == 403, path
        assert reply.json()["error"]["status"] == "PERMISSION_DENIED"
        assert reply.json()["error"]["details"][0]["metadata"] == {
            "scope": "operate" if path == "/admin/agents" else "admin"
        }
    assert (await guarded.ask("GET", "/admin/whoami", key)).json()["principal"] == "service:ci"
    agents = (await guarded.ask("GET", "/admin/agents", guarded.admin)).json()["agents"]
    assert [(one["slug"], one["visibility"], one["limits"]["max_queued"]) for one in agents] == [
        ("echo", "public", None)
    ]


async def test_a_key_may_do_what_its_scopes_say(guarded: Guarded) -> None:
    reader = await guarded.ask.key(guarded.admin, "reader", scopes=["read"])
    sender = await guarded.ask.key(guarded.admin, "sender", scopes=["send"])
    refused = await guarded.ask.send(reader)
    assert refused.status_code == 403
    assert refused.json()["error"]["data"][0]["reason"] == "PERMISSION_DENIED"
    assert refused.json()["error"]["data"][0]["metadata"] == {"scope": "send"}
    task = (await guarded.ask.send(sender)).json()["result"]["task"]["id"]
    request = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task}}
    reply = await guarded.ask("POST", "/agents/echo", {"A2A-Version": "1.0", **sender}, request)
    assert reply.json()["error"]["data"][0]["metadata"] == {"scope": "read"}


async def test_an_agent_that_a_key_is_not_for_does_not_exist_for_it(guarded: Guarded) -> None:
    key = await guarded.ask.key(guarded.admin, "ci", agents=["other"])
    assert (await guarded.ask.send(key)).status_code == 404
    assert (await guarded.ask("GET", "/", key)).json()["agents"] == []


@pytest.mark.parametrize("headers", [NOBODY, {"A2A-Version": "1.0"}], ids=["both generations", "1.0"])
async def test_the_sdk_verifies_a_served_card_that_asks_for_credentials(
    guarded: Guarded, headers: dict[str, str]
) -> None:
    card = (await guarded.ask("GET", "/agents/echo/.well-known/agent-card.json", headers)).json()
    assert card["securitySchemes"]
    keys = (await guarded.ask("GET", "/.well-known/jwks.json")).json()["keys"]
    published = {key["kid"]: PyJWK(key) for key in keys}
    create_signature_verifier(lambda kid, jku: published[kid or ""], ["ES256"])(parse_agent_card(card))


async def test_keys_are_made_listed_and_revoked(guarded: Guarded) -> None:
    ask, admin = guarded.ask, guarded.admin
    key = await ask.key(admin, "ci", scopes=["read"], agents=["echo"], expiresDays=1)
    assert (await ask("GET", "/admin/whoami", key)).json()["scopes"] == ["read"]
    reply = await ask("GET", "/admin/keys", admin)
    assert reply.headers["cache-control"] == "no-store"
    ci, root = reply.json()["keys"]
    assert (ci["name"], ci["scopes"], ci["agents"], root["name"]) == ("ci", ["read"], ["echo"], "root")
    assert ci["expiresAt"] > ci["createdAt"]
    assert ci["lastUsedAt"]
    assert "token" not in reply.text
    assert "digest" not in reply.text
    assert (await ask("DELETE", f"/admin/keys/{ci['id']}", admin)).json()["name"] == "ci"
    assert (await ask("GET", "/admin/whoami", key)).status_code == 401
    assert (await ask("DELETE", f"/admin/keys/{ci['id']}", admin)).status_code == 404


@pytest.mark.parametrize(
    ("wanted", "status", "reason"),
    [
        ({"name": "root"}, 409, "NAME_TAKEN"),
        ({"name": "No"}, 400, "INVALID_INPUT"),
        ({"name": "a", "scopes": []}, 400, "INVALID_INPUT"),
        ({"name": "a", "scopes": ["all"]}, 400, "INVALID_INPUT"),
        ({"name": "a", "expiresDays": 0}, 400, "INVALID_INPUT"),
        ({"name": "a", "expiresDays": 1e300}, 400, "INVALID_INPUT"),
        ({"name": "a", "other": 1}, 400, "INVALID_INPUT"),
        ({"name": 5}, 400, "INVALID_INPUT"),
        ({}, 400, "INVALID_INPUT"),
        ([], 400, "INVALID_INPUT"),
        ({"name": "a" * 100_000}, 413, "PAYLOAD_TOO_LARGE"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_key_that_cannot_be_made_is_explained(guarded: Guarded, wanted: Any, status: int, reason: str) -> None:
    reply = await guarded.ask("POST", "/admin/keys", guarded.admin, wanted)
    assert (reply.status_code, reply.json()["error"]["details"][0]["reason"]) == (status, reason)
    assert len((await guarded.ask("GET", "/admin/keys", guarded.admin)).json()["keys"]) == 1


@pytest.mark.slow
async def test_a_key_revoked_by_another_process_is_refused_within_two_seconds(guarded: Guarded, tmp_path: Path) -> None:
    key = await guarded.ask.key(guarded.admin, "ci")
    assert (await guarded.ask("GET", "/admin/whoami", key)).status_code == 200
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley", "keys", "revoke", "ci", "--data-dir", str(tmp_path / "data"),
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await process.wait() == 0
    await asyncio.sleep(2.0)
    assert (await guarded.ask("GET", "/admin/whoami", key)).status_code == 401


async def test_tokens_of_an_issuer(tmp_path: Path) -> None:
    async with issuing() as issuer:
        oidc = {"auth": "required", "oidc_issuer": issuer.url, "oidc_audience": AUDIENCE}
        async with calling(tmp_path, **oidc) as ask:
            ann = {"Authorization": f"Bearer {issuer.token()}"}
            assert answer_of(await ask.send(ann)) == "user:ann: hello"
            assert (await ask("GET", "/admin/keys", ann)).status_code == 403
            admin = {"Authorization": f"Bearer {issuer.token(scope='parley:admin')}"}
            assert (await ask("GET", "/admin/keys", admin)).status_code == 200
            late = await ask("GET", "/admin/whoami", {"Authorization": f"Bearer {issuer.token(exp=1)}"})
            assert late.status_code == 401
            assert "expired_token" in late.json()["error"]["message"]
        issuer.documents["/jwks"] = b"down"
        async with calling(tmp_path, **oidc) as ask:
            reply = await ask("GET", "/admin/whoami", {"Authorization": f"Bearer {issuer.token()}"})
            assert (reply.status_code, reply.json()["error"]["status"]) == (503, "UNAVAILABLE")
            assert "www-authenticate" not in reply.headers


async def test_without_authentication_everybody_is_anonymous_and_it_is_said_aloud(tmp_path: Path) -> None:
    told: list[str] = []
    detach = telemetry.attach(lambda name, _: told.append(name))
    async with calling(tmp_path, auth="none") as ask:
        assert (
            answer_of(await ask.send({"Host": "any.example", "Authorization": "Bearer x"})) == "guest:anonymous: hello"
        )
        assert (await ask("GET", "/admin/keys")).status_code == 403
    detach()
    assert "auth.none" in told


async def test_pages_of_allowed_origins_may_ask(tmp_path: Path) -> None:
    async with calling(tmp_path, auth="required", cors_origins=["https://app.example"]) as ask:
        preflight = {
            "Origin": "https://app.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, a2a-version, last-event-id, content-type",
        }
        allowed = await ask("OPTIONS", "/agents/echo", preflight)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        other = await ask("OPTIONS", "/agents/echo", {**preflight, "Origin": "https://evil.example"})
        assert other.status_code == 400
        assert "access-control-allow-origin" not in other.headers
        refused = await ask("POST", "/agents/echo", {"Origin": "https://app.example"})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://app.example"


async def test_on_this_machine_too_only_allowed_pages_may_ask(tmp_path: Path) -> None:
    async with calling(tmp_path, cors_origins=["https://app.example"]) as ask:
        assert (await ask("GET", "/healthz", {"Origin": "https://app.example"})).status_code == 200
        assert (await ask("GET", "/healthz", {"Origin": "https://evil.example"})).status_code == 403
    with pytest.raises(ConfigurationError, match="cors_origins"):
        async with calling(tmp_path, cors_origins=["*"]):
            pass


async def test_an_issuer_needs_an_audience(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="oidc_audience"):
        async with calling(tmp_path, oidc_issuer="http://127.0.0.1:9"):
            pass


async def test_signing_keys_are_published_and_rotated(guarded: Guarded) -> None:
    first = await guarded.ask("GET", "/.well-known/jwks.json")
    assert "max-age" in first.headers["cache-control"]
    rotated = (await guarded.ask("POST", "/admin/signing/rotate", guarded.admin)).json()
    published = (await guarded.ask("GET", "/.well-known/jwks.json")).json()["keys"]
    before = {key["alg"]: key["kid"] for key in first.json()["keys"]}
    assert [key["kid"] for key in published if key["alg"] == "ES256"] == [rotated["kid"], before["ES256"]]
    pairs = [key["kid"] for key in published if key["alg"] == "EdDSA"]
    assert len(pairs) == 2
    assert pairs[1] == before["EdDSA"]


async def test_a_served_card_is_signed_and_says_where_the_keys_are(guarded: Guarded) -> None:
    card = (await guarded.ask("GET", "/agents/echo/.well-known/agent-card.json")).json()
    header = json.loads(urlsafe_b64decode(card["signatures"][0]["protected"] + "=="))
    assert (header["alg"], header["typ"]) == ("ES256", "JOSE")
    jwks = (await guarded.ask("GET", header["jku"].removeprefix(guarded.ask.server.url))).json()
    found = verify_card(card, jwks)
    assert [(one.kid, one.covers) for one in found] == [(header["kid"], "1.0"), (header["kid"], "document")]
    assert verify_card({**card, "name": "Other"}, jwks) == []


def bytes_under(directory: Path) -> bytes:
    """Everything on disk but the key file itself."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "secret.key"]
    return b"".join(path.read_bytes() for path in files)


async def test_no_secret_is_in_the_files_or_in_what_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    detach = telemetry.attach(lambda name, fields: told.append(f"{name} {fields}"))
    async with calling(tmp_path) as ask:
        key = await ask.key(NOBODY, "ci")
        token = key["Authorization"].removeprefix("Bearer ")
        wrong = token[:-4] + "AAAA"
        await ask.send(key)
        await ask.send({"X-API-Key": wrong})
        await ask("POST", "/admin/signing/rotate")
        await ask("GET", "/admin/keys", key)
    detach()
    files = bytes_under(tmp_path)
    for secret in (token, token.split("_", 2)[2], wrong):
        assert secret.encode() not in files
        assert secret not in "\n".join(told)
    assert b'"d":' not in files
    assert b"PRIVATE KEY" not in files
    assert any(line.startswith("auth.refused") for line in told)


@pytest.mark.parametrize("store", ["memory", "postgres"])
async def test_keys_work_on_every_store(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    settings: dict[str, Any] = {"store": store}
    if store == "postgres":
        settings["postgres_url"] = await fresh_database(request.getfixturevalue("postgres"))
    async with calling(tmp_path, **settings) as ask:
        key = await ask.key(NOBODY, "ci")
        assert answer_of(await ask.send(key)) == "service:ci: hello"
        published = (await ask("GET", "/.well-known/jwks.json")).json()["keys"]
        assert [key["alg"] for key in published] == ["ES256", "EdDSA"]
        assert (await ask("DELETE", "/admin/keys/ci")).status_code == 200
        assert (await ask.send(key)).status_code == 401
