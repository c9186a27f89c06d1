"""Pair tokens: what discovery hands out, what a target makes of it, and everything that is none."""

import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc import jws
from joserfc.errors import InvalidKeyIdError
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey

from parley.errors import IssuerUnavailable, Unauthenticated
from parley.node.verifying import CALLER, PairGuarded, PairVerifier
from parley.nodes.rules import RegisteredNode as Kept
from parley.nodes.tokens import LIFE_S, TYPE, Pairs, check_pair
from parley.security.secrets import Secrets
from parley.security.signing import SigningKeys
from parley.security.tokens import Registry
from parley.stores.records import MemoryRecords
from tests.faces.registry.fleet import Fleet, Node

ISSUER = "https://parley.example"
ONE, TWO = Kept("one", "One", generation=3), Kept("two", "Two", generation=4)


class Issuer:
    """Keys as the server has them: those of cards, and beside them those of pairs."""

    def __init__(self, directory: Path) -> None:
        records, secrets = MemoryRecords(), Secrets(directory / "secret.key")
        self.cards = SigningKeys(records, secrets, beside=SigningKeys(records, secrets, algorithm="EdDSA"))
        assert self.cards.beside is not None
        self.pairs = self.cards.beside
        self.now = time.time()
        self.issues = Pairs(self.pairs, ISSUER, lambda: self.now)

    async def published(self) -> KeySet:
        return KeySet.import_key_set(await self.cards.jwks())


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


def part(token: str, number: int) -> dict[str, Any]:
    return json.loads(urlsafe_b64decode(token.split(".")[number] + "=="))


def b64(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_a_pair_token_says_who_whom_and_until_when(issuer: Issuer) -> None:
    token, expires_at = await issuer.issues.issue(ONE, TWO)
    assert part(token, 0)["alg"] == "EdDSA"
    claims = part(token, 1)
    assert (claims["iss"], claims["sub"], claims["aud"], claims["gen"]) == (ISSUER, "one", "two", "3.4")
    assert claims["exp"] == expires_at <= issuer.now + LIFE_S
    assert claims["jti"] != part((await issuer.issues.issue(ONE, TWO))[0], 1)["jti"]
    checked = check_pair(token, await issuer.published(), ISSUER, "two", now=issuer.now)
    assert checked.sub == "one"


async def test_a_token_for_one_target_opens_no_other_and_not_for_ever(issuer: Issuer) -> None:
    token, _ = await issuer.issues.issue(ONE, TWO)
    keys = await issuer.published()
    for changed in ({"audience": "three"}, {"issuer": "https://other.example"}, {"now": issuer.now + LIFE_S + 6},
                    {"now": issuer.now - 60}):  # fmt: skip
        asked: dict[str, Any] = {"issuer": ISSUER, "audience": "two", "now": issuer.now, **changed}
        with pytest.raises(Unauthenticated):
            check_pair(token, keys, **asked)


async def test_no_other_algorithm_and_no_other_key_makes_a_pair_token(issuer: Issuer) -> None:
    token, _ = await issuer.issues.issue(ONE, TWO)
    keys, claims, header = await issuer.published(), part(token, 1), part(token, 0)
    public = next(key for key in (await issuer.cards.jwks())["keys"] if key["kty"] == "OKP")
    other = {"alg": "EdDSA", "kid": header["kid"], "typ": TYPE}
    body = json.dumps(claims)
    longer = json.dumps({**claims, "exp": claims["exp"] + 1})
    text = token.split(".")
    anybody = Registry(["HS256", "ES256", "EdDSA"])
    forged = {
        "none": f"{b64({**header, 'alg': 'none'})}.{text[1]}.",
        "the public key as a secret": jws.serialize_compact(
            {**header, "alg": "HS256"}, body, OctKey.import_key(str(public["x"])), registry=anybody
        ),
        "a key of somebody else": jws.serialize_compact(
            other, body, OKPKey.generate_key("Ed25519"), registry=anybody
        ),
        "another curve": jws.serialize_compact(
            {**other, "alg": "ES256"}, body, ECKey.generate_key("P-256"), registry=anybody
        ),
        "a card's key": await issuer.cards.sign_whole(body.encode(), {"typ": TYPE}),
        "another type": await issuer.pairs.sign_whole(body.encode(), {"typ": "JWT"}),
        "other claims": f"{text[0]}.{b64({**claims, 'aud': 'three'})}.{text[2]}",
        "too long a life": await issuer.pairs.sign_whole(longer.encode(), {"typ": TYPE}),
        "no generation": await issuer.pairs.sign_whole(b'{"iss":"x"}', {"typ": TYPE}),
        "nothing": "",
        "words": "a.b.c",
    }  # fmt: skip
    for what, wrong in forged.items():
        with pytest.raises((Unauthenticated, InvalidKeyIdError)):
            raise AssertionError(what, check_pair(wrong, keys, ISSUER, now=issuer.now))
    with pytest.raises(Unauthenticated):
        await issuer.issues.claims_of(forged["a key of somebody else"])


async def test_tokens_of_before_and_after_a_rotation_are_both_known(issuer: Issuer) -> None:
    old, _ = await issuer.issues.issue(ONE, TWO)
    assert (await issuer.issues.claims_of(old)).sub == "one"
    await issuer.cards.rotate()
    issuer.now += 1
    new, _ = await issuer.issues.issue(ONE, TWO)
    assert part(new, 0)["kid"] != part(old, 0)["kid"]
    assert (await issuer.issues.claims_of(new)).sub == (await issuer.issues.claims_of(old)).sub


async def greet(scope: Any, receive: Any, send: Any) -> None:
    body = str(scope.get(CALLER)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class Target:
    """A node's own program, behind the one line that guards it."""

    def __init__(self, verifier: PairVerifier) -> None:
        transport = httpx2.ASGITransport(PairGuarded(greet, verifier))
        self.http = httpx2.AsyncClient(transport=transport, base_url="http://target")

    async def ask(self, token: str | None, method: str = "POST", path: str = "/") -> httpx2.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return await self.http.request(method, path, headers=headers)


@pytest.fixture
async def team(small: Fleet) -> tuple[Fleet, Node, Node, Node]:
    return small, await small.online("One"), await small.online("Two"), await small.online("Three")


async def test_a_target_lets_in_whoever_discovered_it_and_nobody_else(
    team: tuple[Fleet, Node, Node, Node],
) -> None:
    fleet, one, two, three = team
    verifier = PairVerifier(fleet.at, two.id)
    target = Target(verifier)
    token = (await one.discover(two)).json()["token"]
    reply = await target.ask(token)
    assert (reply.status_code, reply.text) == (200, one.id)
    for_another = (await one.discover(three)).json()["token"]
    for wrong in (None, for_another, token[:-4], one.token):
        refused = await target.ask(wrong)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
    assert (await target.ask(None, "GET", "/.well-known/agent-card.json")).status_code == 200
    await verifier.close()


async def test_a_moved_node_is_refused_at_once_by_those_who_ask(team: tuple[Fleet, Node, Node, Node]) -> None:
    fleet, one, two, three = team
    asking, offline = PairVerifier(fleet.at, two.id, token=two.token), PairVerifier(fleet.at, two.id)
    token = (await one.discover(two)).json()["token"]
    assert (await Target(asking).ask(token)).status_code == 200
    body = {"token": token}
    told = (await two.post("/registry/introspect", body)).json()
    assert (told["active"], told["sub"], told["aud"]) == (True, one.id, two.id)
    form = await two.http.post(f"{two.at}/registry/introspect", data=body, headers=two.headers)
    assert form.json()["active"] is True
    assert (await three.post("/registry/introspect", body)).json() == {"active": False}
    assert (await two.post("/registry/introspect", {"token": "x.y.z"})).json() == {"active": False}

    await fleet.ask("PATCH", f"/workspaces/{one.id}", {"parent_id": three.id})
    assert (await two.post("/registry/introspect", body)).json() == {"active": False}
    assert (await Target(asking).ask(token)).status_code == 401
    assert (await Target(offline).ask(token)).status_code == 200
    await fleet.ask("PATCH", f"/workspaces/{one.id}", {"parent_id": None})
    assert (await Target(asking).ask(token)).status_code == 401
    again = (await one.discover(two)).json()["token"]
    assert (await Target(asking).ask(again)).status_code == 200
    await fleet.ask("DELETE", f"/workspaces/{one.id}")
    assert (await Target(asking).ask(again)).status_code == 401
    await asking.close()
    await offline.close()


async def test_revoked_tokens_take_their_pairs_with_them(team: tuple[Fleet, Node, Node, Node]) -> None:
    fleet, one, two, _ = team
    token = (await one.discover(two)).json()["token"]
    assert (await fleet.ask("DELETE", f"/workspaces/{one.id}/tokens")).json() == {"status": "revoked", "revoked": 1}
    assert (await two.post("/registry/introspect", {"token": token})).json() == {"active": False}


async def test_nobody_passes_while_the_issuer_cannot_be_asked() -> None:
    verifier = PairVerifier("http://127.0.0.1:9", "two")
    with pytest.raises(IssuerUnavailable):
        await verifier.check("a.b.c")
    assert (await Target(verifier).ask("a.b.c")).status_code == 503
    await verifier.close()


async def test_an_issuer_may_be_asked_under_another_address_than_its_tokens_say(
    team: tuple[Fleet, Node, Node, Node],
) -> None:
    fleet, one, two, _ = team
    token = (await one.discover(two)).json()["token"]
    verifier = PairVerifier(ISSUER, two.id, at=fleet.at)
    with pytest.raises(Unauthenticated, match="this issuer"):
        await verifier.check(token)
    await verifier.close()
    unknown = PairVerifier(fleet.at, two.id, token=lambda: None)
    with pytest.raises(IssuerUnavailable, match="not registered"):
        await unknown.check(token)
    await unknown.close()
