import asyncio
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jwt

from parley.errors import IssuerUnavailable, Unauthenticated
from parley.runs.rules.access import ALL_SCOPES, USER_SCOPES, Principal
from parley.security.netguard import LOOPBACK, Guard, Outbound
from parley.security.tokens import MAX_BYTES, Tokens, fetcher
from tests.security.issuer import AUDIENCE, Issuer, issuing

HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(issuer: Issuer, clock: Clock) -> Tokens:
    return Tokens(issuer.url, AUDIENCE, clock=clock)


async def test_a_token_stands_for_a_user(issuer: Issuer, tokens: Tokens) -> None:
    assert await tokens.principal_for(issuer.token()) == Principal("user", "ann", USER_SCOPES)
    assert await tokens.principal_for(issuer.token(aud=["other", AUDIENCE])) == Principal("user", "ann")
    assert issuer.asked == ["/.well-known/openid-configuration", "/jwks"]


@pytest.mark.parametrize(("kind", "alg"), [("RSA", "PS256"), ("EC", "ES256"), ("OKP", "Ed25519")])
async def test_every_asymmetric_algorithm_is_understood(issuer: Issuer, tokens: Tokens, kind: str, alg: str) -> None:
    key = issuer.add_key(kind)
    assert (await tokens.principal_for(issuer.token(key, alg))).name == "ann"


async def test_the_older_name_of_ed25519_is_understood(issuer: Issuer, tokens: Tokens) -> None:
    key = issuer.add_key("OKP")
    with pytest.warns(Warning, match="EdDSA"):
        token = jwt.encode(
            {"alg": "EdDSA", "kid": key.kid},
            {"iss": issuer.url, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 60},
            key,
            algorithms=["EdDSA"],
        )
    assert (await tokens.principal_for(token)).name == "ann"


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "openid parley:read"}, {"read"}),
        ({"scp": ["parley:send", "parley:admin"]}, {"send", "admin"}),
        ({"scp": "parley:read parley:send parley:admin"}, ALL_SCOPES),
        ({"scope": "openid profile"}, USER_SCOPES),
        ({"scope": "parley:everything"}, USER_SCOPES),
    ],
)
async def test_scopes_are_the_issuers_if_it_knows_ours(
    issuer: Issuer, tokens: Tokens, claims: dict[str, Any], scopes: set[str]
) -> None:
    assert (await tokens.principal_for(issuer.token(**claims))).scopes == scopes


NOW = int(time.time())


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "http://elsewhere"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"aud": []},
        {"exp": None},
        pytest.param({"exp": NOW - 60}, id="expired"),
        {"exp": "soon"},
        pytest.param({"nbf": NOW + 36_000}, id="not yet"),
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
    ],
    ids=str,
)
async def test_a_token_with_a_wrong_claim_is_refused(issuer: Issuer, tokens: Tokens, claims: dict[str, Any]) -> None:
    token = issuer.token(**claims)
    with pytest.raises(Unauthenticated) as raised:
        await tokens.principal_for(token)
    assert token not in raised.value.message


async def test_clocks_may_differ_by_half_a_minute(issuer: Issuer, tokens: Tokens) -> None:
    now = int(time.time())
    assert await tokens.principal_for(issuer.token(exp=now - 20, nbf=now + 20))


async def test_forged_tokens_are_refused(issuer: Issuer, tokens: Tokens) -> None:
    good = issuer.token()
    head, body, signature = good.split(".")
    stranger = Issuer()
    stranger.url = issuer.url
    stranger.add_key(kid=issuer.keys[0].kid)
    none = "eyJhbGciOiJub25lIn0"
    for token in (
        f"{head}.{body}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}",
        f"{none}.{body}.",
        f"{head}.{body}.",
        f"{head}..{signature}",
        stranger.token(),
        _with_the_public_key_as_a_secret(issuer, body),
        _signed_by_hand(issuer, {"alg": "RS256", "kid": issuer.keys[0].kid, "crit": ["x"], "x": 1}, body),
        _signed_by_hand(issuer, {"alg": "RS256", "kid": 5}, body),
        _signed_by_hand(issuer, {"alg": 5}, body),
        _signed_by_hand(issuer, {}, body),
        _signed_by_hand(issuer, [], body),
        "a.b.c",
        "..",
        "x" * 20_000,
    ):
        with pytest.raises(Unauthenticated):
            await tokens.principal_for(token)
    assert await tokens.principal_for(good)
    assert await tokens.principal_for(_signed_by_hand(issuer, {"alg": "RS256", "kid": issuer.keys[0].kid}, body))


def _signed_by_hand(issuer: Issuer, head: object, body: str) -> str:
    signed = urlsafe_b64encode(json.dumps(head).encode()).rstrip(b"=") + b"." + body.encode()
    key: Any = issuer.keys[0]
    signature = key.private_key.sign(signed, PKCS1v15(), SHA256())
    return (signed + b"." + urlsafe_b64encode(signature).rstrip(b"=")).decode()


def _with_the_public_key_as_a_secret(issuer: Issuer, body: str) -> str:
    head = urlsafe_b64encode(b'{"alg":"HS256","kid":"%b"}' % str(issuer.keys[0].kid).encode()).rstrip(b"=")
    signed = head + b"." + body.encode()
    mac = hmac.digest(issuer.keys[0].as_pem(private=False), signed, "sha256")
    return (signed + b"." + urlsafe_b64encode(mac).rstrip(b"=")).decode()


async def test_headers_of_other_vendors_do_no_harm(issuer: Issuer, tokens: Tokens) -> None:
    assert await tokens.principal_for(issuer.token(header={"typ": "at+jwt", "vendor": "x" * 800}))


async def test_a_token_without_a_key_id_works_while_there_is_one_key(issuer: Issuer, clock: Clock) -> None:
    token = issuer.token(header={"kid": None})
    assert await Tokens(issuer.url, AUDIENCE, clock=clock).principal_for(token)
    issuer.add_key()
    with pytest.raises(Unauthenticated):
        await Tokens(issuer.url, AUDIENCE, clock=clock).principal_for(token)


async def test_a_new_key_of_the_issuer_is_fetched_but_not_for_every_guess(
    issuer: Issuer, tokens: Tokens, clock: Clock
) -> None:
    await tokens.principal_for(issuer.token())
    new = issuer.add_key()
    with pytest.raises(Unauthenticated):
        await tokens.principal_for(issuer.token(new))
    clock.s += 31
    asked = len(issuer.asked)
    await asyncio.gather(*(tokens.principal_for(issuer.token(new, sub=str(number))) for number in range(10)))
    assert len(issuer.asked) == asked + 2
    for number in range(10):
        with pytest.raises(Unauthenticated):
            await tokens.principal_for(issuer.token(new, header={"kid": f"guess-{number}"}))
    assert len(issuer.asked) == asked + 2


async def test_first_requests_share_one_fetch(issuer: Issuer, tokens: Tokens) -> None:
    await asyncio.gather(*(tokens.principal_for(issuer.token(sub=str(number))) for number in range(20)))
    assert len(issuer.asked) == 2


async def test_known_keys_go_on_working_while_the_issuer_is_down(issuer: Issuer, tokens: Tokens, clock: Clock) -> None:
    await tokens.principal_for(issuer.token())
    issuer.documents["/jwks"] = b"<html>"
    clock.s += HOUR + 1
    asked = len(issuer.asked)
    assert await tokens.principal_for(issuer.token(sub="bob"))
    assert await tokens.principal_for(issuer.token(sub="eve"))
    assert len(issuer.asked) == asked + 2
    del issuer.documents["/jwks"]
    clock.s += 31
    assert await tokens.principal_for(issuer.token(sub="joe"))


async def test_without_any_keys_nobody_is_refused_for_it(issuer: Issuer, tokens: Tokens, clock: Clock) -> None:
    for document in (
        b"<html>",
        [],
        {"keys": []},
        {"keys": 5},
        {"keys": [5]},
        {"keys": [{"kty": "RSA"}]},
        {"no": 1},
        b"x" * (MAX_BYTES + 1),
    ):
        issuer.documents["/jwks"] = document
        with pytest.raises(IssuerUnavailable):
            await tokens.principal_for(issuer.token())
        clock.s += 3
    issuer.documents.clear()
    assert await tokens.principal_for(issuer.token())


async def test_a_discovery_document_of_another_issuer_is_not_believed(issuer: Issuer, tokens: Tokens) -> None:
    issuer.documents["/.well-known/openid-configuration"] = {"issuer": "http://x", "jwks_uri": f"{issuer.url}/jwks"}
    with pytest.raises(IssuerUnavailable):
        await tokens.principal_for(issuer.token())


async def test_the_address_of_the_keys_can_be_given(issuer: Issuer, clock: Clock) -> None:
    tokens = Tokens(issuer.url, AUDIENCE, f"{issuer.url}/jwks", clock=clock)
    assert await tokens.principal_for(issuer.token())
    assert issuer.asked == ["/jwks"]


async def test_a_page_that_is_too_long_or_missing_is_not_read(issuer: Issuer) -> None:
    fetch = fetcher(Outbound(Guard(LOOPBACK)))
    issuer.documents["/long"] = b"x" * (MAX_BYTES + 1)
    for path in ("/long", "/missing"):
        with pytest.raises(ValueError, match="answer"):
            await fetch(issuer.url + path)
