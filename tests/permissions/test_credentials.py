"""Credentials that are forged, replayed, doubled or shown at the wrong door. Which kind opens which route is tried by
the matrix, the forms of single tokens in tests/security."""

import hmac
import itertools
import json
import re
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import httpx2
import pytest
import pytest_asyncio
from joserfc import jwt
from joserfc.jwk import RSAKey
from joserfc.jws import JWSRegistry

from parley.clock import now_ms
from parley.security.signatures import Claims, claims_for, sign
from tests.faces.a2a.test_grpc import address_of
from tests.permissions.house import SECRET, House, bearer, far, open_house, signed
from tests.security.issuer import AUDIENCE, Issuer

pytestmark = pytest.mark.asyncio(loop_scope="module")

WHO = "/admin/whoami"
HEALTH = "/internal/v1/health"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with open_house(tmp_path_factory.mktemp("credentials"), far("spare")) as house:
        yield house


async def asked(house: House, headers: Any, path: str = WHO) -> int:
    return (await house.http.get(path, headers=headers)).status_code


def b64(value: Any) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def forged(issuer: Issuer) -> dict[str, str]:
    good, now = issuer.token(), int(time.time())
    _, body, signature = good.split(".")
    kid = issuer.keys[0].kid
    thief: Any = RSAKey.generate_key(2048, {"kid": "thief"})
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "ann", "exp": now + 300, "scope": "parley:admin"}
    registry = JWSRegistry(algorithms=["RS256"], strict_check_header=False)

    def by_thief(**header: Any) -> str:
        return jwt.encode({"alg": "RS256", **header}, claims, thief, registry=registry)

    def by_secret(secret: bytes, **header: Any) -> str:
        head = f"{b64({'alg': 'HS256', 'kid': kid, **header})}.{b64(claims)}"
        return f"{head}.{b64(hmac.digest(secret, head.encode(), 'sha256'))}"

    public = thief.as_dict(private=False)
    return {
        **{f"alg {alg}": f"{b64({'alg': alg, 'kid': kid})}.{b64(claims)}." for alg in ("none", "None", "NONE", "")},
        "alg of small letters": f"{b64({'alg': 'rs256', 'kid': kid})}.{body}.{signature}",
        "the public key as a secret": by_secret(issuer.keys[0].as_pem(private=False)),
        "the public key's JSON as a secret": by_secret(json.dumps(issuer.keys[0].as_dict(private=False)).encode()),
        "an empty secret": by_secret(b""),
        "a key inside": by_thief(jwk=public),
        "a key inside under a known name": by_thief(jwk=public, kid=kid),
        "a key elsewhere": by_thief(jku="https://thief.example/jwks", kid="thief"),
        "a certificate inside": by_thief(x5c=["MIIB"], kid=kid),
        "a path as a key id": by_thief(kid="../../../../dev/null"),
        "a query as a key id": by_thief(kid="' OR 1=1 --"),
        "a list as a key id": f"{b64({'alg': 'RS256', 'kid': [kid]})}.{body}.{signature}",
        "no key id": by_thief(),
        "claims exchanged": f"{good.split('.')[0]}.{b64(claims)}.{signature}",
        "an unencoded payload": f"{b64({'alg': 'RS256', 'kid': kid, 'b64': False})}.x.{signature}",
        "encrypted": "a.b.c.d.e",
        "expired": issuer.token(exp=now - 60),
        "of the future": issuer.token(nbf=now + 600),
        "for another": issuer.token(aud="other"),
        "by another": issuer.token(iss="https://other.example"),
    }  # fmt: skip


async def test_no_forged_token_of_the_issuer_passes(house: House) -> None:
    assert await asked(house, bearer(house.issuer.token())) == 200
    passed = [what for what, token in forged(house.issuer).items() if await asked(house, bearer(token)) != 401]
    assert passed == []
    assert house.issuer.asked.count("/jwks") <= 3


async def test_a_signature_is_good_once_on_whichever_face(house: House) -> None:
    for first, second in ((WHO, HEALTH), (HEALTH, WHO), (WHO, WHO), (HEALTH, HEALTH)):
        headers = signed(user_id=42)
        assert await asked(house, headers, first) == 200
        assert await asked(house, headers, second) == 401


async def test_a_signature_has_its_time_and_its_secret(house: House) -> None:
    now = now_ms() // 1000

    def made(secret: str = SECRET, **changed: Any) -> dict[str, str]:
        claims = claims_for(now_ms(), user_id=42)
        fields = {name: getattr(claims, name) for name in claims.__struct_fields__} | changed
        return {"X-OA-RUNTIME-SIGNATURE": sign(secret, Claims(**fields)), "X-OA-User-Id": "42"}

    wrong = {
        "expired": made(iat=now - 400, exp=now - 100),
        "of the future": made(iat=now + 500, exp=now + 700),
        "for too long": made(iat=now, exp=now + 100_000),
        "the development secret": made("dev-runtime-signature-secret"),
        "another user": {**made(), "X-OA-User-Id": "1"},
        "no user": {"X-OA-RUNTIME-SIGNATURE": made()["X-OA-RUNTIME-SIGNATURE"]},
    }
    for what, headers in wrong.items():
        for path in (WHO, HEALTH):
            if (what, path) == ("no user", HEALTH):
                continue
            assert await asked(house, headers, path) in (401, 403), (what, path)
    assert await asked(house, made()) == 200


async def test_a_credential_that_is_there_twice_is_none(house: House) -> None:
    """Refused because a proxy before this server may have checked the other one."""
    user, admin = house.headers("user"), house.headers("admin")
    for name, one, other in (
        ("Authorization", admin["Authorization"], user["Authorization"]),
        ("X-API-Key", admin["Authorization"][7:], "x"),
        ("X-OA-User-Id", "42", "1"),
    ):
        base = list(signed(user_id=42).items()) if name == "X-OA-User-Id" else []
        base = [(key, value) for key, value in base if key != name]
        for path in (WHO, HEALTH, "/agent-runtimes/runtime/status", "/workspaces", "/api/agent2agent/openapi.json"):
            assert await asked(house, [*base, (name, one), (name, other)], path) == 401, (name, path)


async def test_over_grpc_too_a_credential_that_is_there_twice_is_none(house: House) -> None:
    user, admin = (house.headers(who)["Authorization"] for who in ("user", "admin"))
    for name, values in (("authorization", (user, admin)), ("x-api-key", (admin[7:], user[7:]))):
        metadata = (("tenant", "echo"), ("a2a-version", "1.0"), *((name, value) for value in values))
        async with grpc.aio.insecure_channel(await address_of(house.server)) as channel:
            call = channel.unary_unary("/lf.a2a.v1.A2AService/ListTasks")
            assert await call(b"", metadata=metadata[:3]).code() == grpc.StatusCode.OK
            assert await call(b"", metadata=metadata).code() == grpc.StatusCode.UNAUTHENTICATED


async def secrets_of(house: House) -> dict[str, Callable[[], str]]:
    """One of everything that opens anything, without the header that it belongs in."""
    made = (await house.ask("admin", "POST", "/workspaces", {"name": f"n-{uuid.uuid4()}"})).json()
    code = (await house.ask("admin", "POST", "/admin/agents/spare/pairing", {})).json()["pairing_token"]
    cookie = await signed_in(house)
    tokens = {
        who: house.headers(who)["Authorization"][7:] for who in ("user", "admin", "oidc", "runtime", "node", "pair")
    }
    return {
        **{who: lambda token=token: token for who, token in tokens.items()},
        "code": lambda: code,
        "admission": lambda: made["registration_token"],
        "cookie": lambda: cookie,
        # Good once, so each time another.
        "signature": lambda: signed(user_id=42)["X-OA-RUNTIME-SIGNATURE"],
    }


async def signed_in(house: House) -> str:
    """Cookies of a browser after login."""
    async with httpx2.AsyncClient(base_url=house.server.url) as browser:
        found = re.search(r'name="csrf" content="([0-9a-f]+)"', (await browser.get("/console/login")).text)
        assert found is not None
        login = {"credential": house.headers("user")["Authorization"][7:], "csrf": found[1]}
        entered = await browser.post("/console/login", data=login)
        assert entered.status_code == 303, entered.text
        return entered.cookies["parley_console"]


def carriers(house: House) -> dict[str, Callable[[str], dict[str, str]]]:
    return {
        "bearer": bearer,
        "key": lambda secret: {"X-API-Key": secret},
        "runtime": lambda secret: {"X-Runtime-Token": secret},
        "node": lambda secret: {"X-Workspace-ID": house.nodes["node"].id, **bearer(secret)},
        "signature": lambda secret: {"X-OA-RUNTIME-SIGNATURE": secret, "X-OA-User-Id": "42"},
        "cookie": lambda secret: {"Cookie": f"parley_console={secret}"},
        "basic": lambda secret: {"Authorization": f"Basic {b64(f'user:{secret}'.encode())}"},
    }


def doors(house: House) -> dict[str, tuple[str, str, Any]]:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    return {
        "admin": ("GET", WHO, None),
        "A2A": ("GET", "/agents/echo/tasks", None),
        "002": ("GET", "/api/agent2agent/openapi.json", None),
        "MCP": ("POST", "/mcp", ping),
        "003": ("GET", HEALTH, None),
        "000": ("GET", "/agent-runtimes/runtime/status", None),
        "004": ("GET", f"/workspaces/{house.nodes['node'].id}/tokens", None),
        "console": ("GET", "/console/inbox", None),
        "metrics": ("GET", "/metrics", None),
    }


USERS = {"admin", "A2A", "002", "MCP", "console"}
OPENS: dict[tuple[str, str], set[str]] = {
    **{(who, carrier): USERS for who in ("user", "oidc") for carrier in ("bearer", "key", "node")},
    **{("admin", carrier): USERS | {"metrics", "004"} for carrier in ("bearer", "key")},
    # Whoever says to be a node is no administrator there.
    ("admin", "node"): USERS | {"metrics"},
    **{("runtime", carrier): {"000"} for carrier in ("bearer", "runtime", "node")},
    ("node", "bearer"): {"004"},
    ("node", "node"): {"004"},
    ("signature", "signature"): USERS | {"003"},
    ("cookie", "cookie"): {"console"},
}
"""Which doors a secret opens, by how it is carried. All that is not here stays shut."""


@pytest.mark.slow
async def test_no_secret_opens_another_door_however_it_is_carried(house: House) -> None:
    secrets = await secrets_of(house)
    wrong: list[str] = []
    async with httpx2.AsyncClient(base_url=house.server.url) as http:
        for (who, secret), (carrier, headers), (door, (method, path, body)) in itertools.product(
            secrets.items(), carriers(house).items(), doors(house).items()
        ):
            # What a browser would keep is a credential itself.
            http.cookies.clear()
            given = {"Accept": "application/json", "A2A-Version": "1.0", **headers(secret())}
            reply = await http.request(method, path, json=body, headers=given)
            opened = reply.status_code not in (401, 403, 303)
            if opened != (door in OPENS.get((who, carrier), set())):
                wrong.append(f"{who} as {carrier} at {door}: {reply.status_code}")
    assert not wrong, "\n".join(wrong)


async def test_no_secret_counts_in_an_address(house: House) -> None:
    """Addresses are written to the logs of every proxy on the way."""
    user = house.headers("user")["Authorization"][7:]
    for name in ("access_token", "api_key", "token", "key", "x-api-key", "authorization"):
        for _, path, _ in doors(house).values():
            assert (await house.http.get(f"{path}?{name}={user}")).status_code in (401, 303, 405), (name, path)


async def test_a_code_and_an_admission_are_good_once(house: House) -> None:
    code = (await house.ask("admin", "POST", "/admin/agents/spare/pairing", {})).json()["pairing_token"]
    attach = "/agent-runtimes/runtime/attach-via-pairing"
    tried = [(await house.http.post(attach, json={"pairing_token": code})).status_code for _ in range(2)]
    assert tried == [200, 401]
    made = (await house.ask("admin", "POST", "/workspaces", {"name": f"n-{uuid.uuid4()}"})).json()
    body = {"id": made["id"], "url": "http://127.0.0.1:9001", "agent_card": {"name": "N"}}
    admission = bearer(made["registration_token"])
    tried = [(await house.http.post("/registry/register", json=body, headers=admission)).status_code for _ in range(2)]
    assert tried == [200, 401]


async def test_codes_and_tokens_of_the_same_road_are_not_each_other(house: House) -> None:
    runtime = house.headers("runtime")["X-Runtime-Token"]
    attach = "/agent-runtimes/runtime/attach-via-pairing"
    assert (await house.http.post(attach, json={"pairing_token": runtime})).status_code == 401
    code = (await house.ask("admin", "POST", "/admin/agents/away/pairing", {})).json()["pairing_token"]
    status = "/agent-runtimes/runtime/status"
    assert await asked(house, {"X-Runtime-Token": code}, status) == 401
    made = (await house.ask("admin", "POST", "/workspaces", {"name": "new"})).json()
    node, admission = {"X-Workspace-ID": made["id"]}, bearer(made["registration_token"])
    assert await asked(house, {**node, **admission}, f"/workspaces/{made['id']}") == 401
    pair = house.headers("pair")
    assert await asked(house, {"X-Workspace-ID": house.nodes["child"].id, **pair}, "/registry/introspect") in (401, 405)
    inside = {"X-Workspace-ID": house.nodes["child"].id, **pair}
    assert await asked(house, inside, f"/workspaces/{house.nodes['child'].id}/tokens") == 401
    mine, other = house.nodes["node"], house.nodes["stranger"]
    assert await asked(house, {"X-Workspace-ID": other.id, **bearer(mine.token)}, f"/workspaces/{other.id}") == 401


async def test_a_revoked_token_opens_nothing(house: House) -> None:
    before = house.headers("child")
    path = f"/workspaces/{house.nodes['child'].id}/tokens"
    assert await asked(house, before, path) == 200
    await house.ask("admin", "DELETE", path)
    assert await asked(house, before, path) == 401
    await house.renew("child")
    assert await asked(house, house.headers("child"), path) == 200


async def test_a_refusal_repeats_nothing_that_was_shown(house: House) -> None:
    """Neither a token nor a part of one comes back in an answer."""
    shown = "canary-credential-0123456789"
    for headers in (
        bearer(shown), {"X-API-Key": shown}, {"X-Runtime-Token": shown}, {"X-OA-RUNTIME-SIGNATURE": f"v1.{shown}.x"},
        {"X-Workspace-ID": house.nodes["node"].id, **bearer(shown)}, {"Cookie": f"parley_console={shown}"},
    ):  # fmt: skip
        for path in (WHO, HEALTH, "/agent-runtimes/runtime/status", "/workspaces", "/mcp", "/console/inbox"):
            reply: httpx2.Response = await house.http.get(path, headers=headers)
            assert shown not in reply.text + str(reply.headers), path
