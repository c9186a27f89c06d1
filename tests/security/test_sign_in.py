"""ID tokens of an issuer that a sign-in must not accept."""

import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from parley.errors import SignInRefused
from parley.security.secrets import Secrets
from parley.security.sign_in import ProviderClient, SignIn, access_token_hash
from parley.security.tokens import Tokens
from tests.security.issuer import Issuer, issuing

CLIENT, NONCE = "console", "the-nonce"
ACCESS = "an-access-token"


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as found:
        yield found


@pytest.fixture
async def sign_in(issuer: Issuer, tmp_path: Path) -> AsyncIterator[SignIn]:
    tokens = Tokens(issuer.url, CLIENT)
    console = "http://127.0.0.1:1/console"
    secrets = Secrets(tmp_path / "secret.key")
    yield SignIn(tokens, ProviderClient(CLIENT), secrets, f"{console}/login/callback", f"{console}/login")
    await tokens.outbound.close()


def id_token(issuer: Issuer, **changed: Any) -> str:
    claims = {"aud": CLIENT, "nonce": NONCE, "iat": int(time.time()), **changed}
    return issuer.token(**claims)


async def test_a_good_token_is_accepted(issuer: Issuer, sign_in: SignIn) -> None:
    for claims in ({}, {"at_hash": access_token_hash(ACCESS, "RS256")}, {"aud": [CLIENT, "x"], "azp": CLIENT}):
        found = await sign_in.checked(id_token(issuer, **claims), NONCE, ACCESS)
        assert found.claims["sub"] == "ann"


@pytest.mark.parametrize(
    "changed",
    [{"nonce": "other"}, {"nonce": None}, {"aud": "other"}, {"aud": None}, {"iss": "https://other"}, {"iss": None},
     {"sub": None}, {"exp": 1}, {"exp": None}, {"iat": None}, {"iat": 4_000_000_000}, {"nbf": 4_000_000_000},
     {"azp": "other"}, {"aud": [CLIENT, "x"], "azp": "x"}, {"at_hash": "x"},
     {"at_hash": access_token_hash("another", "RS256")}, {"nonce": ["the-nonce"]}],
    ids=str,
)  # fmt: skip
async def test_a_wrong_claim_is_refused(changed: dict[str, Any], issuer: Issuer, sign_in: SignIn) -> None:
    with pytest.raises(SignInRefused):
        await sign_in.checked(id_token(issuer, **changed), NONCE, ACCESS)


async def test_only_the_issuers_own_asymmetric_keys_sign(issuer: Issuer, sign_in: SignIn) -> None:
    good = id_token(issuer)
    head, body, _ = good.split(".")
    unsigned = f"eyJhbGciOiJub25lIn0.{body}."
    foreign = Issuer()
    foreign.url = issuer.url
    foreign.add_key()
    for token in (unsigned, f"{head}.{body}.", f"{head}.{body}.AAAA", id_token(foreign), "", "a.b.c"):
        with pytest.raises(SignInRefused):
            await sign_in.checked(token, NONCE)


def test_the_hash_of_an_access_token_follows_the_algorithm() -> None:
    # The example of OpenID Connect Core 1.0, appendix A.3.
    token = "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y"
    assert access_token_hash(token, "RS256") == "77QmUPtjPfzWtF2AnpK9RQ"
    assert len(access_token_hash(token, "ES384")) == 32
    assert len(access_token_hash(token, "EdDSA")) == len(hashlib.sha512().digest()) // 2 * 4 // 3 + 1
