"""Our signatures, and what others make of them."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard
from a2a.utils.signing import (
    InvalidSignaturesError,
    create_agent_card_signer,
    create_signature_verifier,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt.api_jwk import PyJWK

from parley.errors import ConfigurationError, Invalid
from parley.records import Records
from parley.security.cards import Verified, canonical, canonical_1_0, verify_card
from parley.security.secrets import Secrets
from parley.security.signing import SigningKeys
from parley.stores.records import MemoryRecords, SqliteRecords

DAY = 24 * 3600 * 1000
MINUTE_AND_A_BIT = 61.0

CARD: dict[str, Any] = {
    "name": "Übersetzer",
    "description": "Says “what” you said.\n\u20ac\U0001f600",
    "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "http://h/agents/echo", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": ""}
    ],
    "provider": {"url": "https://example.org", "organization": "Example"},
    "documentationUrl": "https://example.org/docs",
    "capabilities": {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": True,
        "extensions": [
            {
                "uri": "urn:x",
                "description": "",
                "required": False,
                "params": {"n": 42, "x": 1.5, "big": 1e21, "no": False, "empty": [], "null": None, "deep": {"a": ""}},
            },
            {"uri": "urn:y", "required": True},
        ],
    },
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key", "description": "A key."}},
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "https://i/a",
                        "tokenUrl": "https://i/t",
                        "scopes": {"parley:read": "Read"},
                        "pkceRequired": False,
                    }
                }
            }
        },
    },
    "securityRequirements": [{"schemes": {"bearer": {"list": ["a"]}}}, {"schemes": {"key": {"list": []}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["t"], "examples": []}],
}
OF_0_3: dict[str, Any] = {
    "url": "http://h/agents/echo",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [{"url": "http://h/agents/echo/v1", "transport": "HTTP+JSON"}],
    "protocolVersion": "0.3.0",
    "supportsAuthenticatedExtendedCard": True,
    "security": [{"bearer": ["a"]}, {"key": []}],
}
SCHEMES_OF_0_3: dict[str, Any] = {
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A key."},
    "bearer": {"type": "http", "scheme": "Bearer", "bearerFormat": "JWT"},
}


def both_generations() -> dict[str, Any]:
    card = {**copy.deepcopy(CARD), **copy.deepcopy(OF_0_3)}
    for name, members in SCHEMES_OF_0_3.items():
        card["securitySchemes"][name].update(members)
    return card


class Times:
    """A wall clock and a monotonic one, moved by hand."""

    def __init__(self) -> None:
        self.ms, self.s = 1_700_000_000_000, 0.0

    def pass_(self, days: float = 0.0, seconds: float = 0.0) -> None:
        self.ms += int(days * DAY + seconds * 1000)
        self.s += days * 86400 + seconds


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path / "secret.key")


def signing(records: Records, secrets: Secrets, times: Times, **settings: Any) -> SigningKeys:
    return SigningKeys(
        records,
        secrets,
        jku="http://h/.well-known/jwks.json",
        clock=lambda: times.ms,
        ticks=lambda: times.s,
        **settings,
    )


@pytest.fixture
def keys(secrets: Secrets, times: Times) -> SigningKeys:
    return signing(MemoryRecords(), secrets, times)


async def check_with_the_sdk(keys: SigningKeys, card: AgentCard) -> None:
    published = {key["kid"]: PyJWK(dict(key)) for key in (await keys.jwks())["keys"]}
    seen: list[str | None] = []

    def provide(kid: str | None, jku: str | None) -> PyJWK:
        seen.append(jku)
        return published[kid or ""]

    create_signature_verifier(provide, ["ES256"])(card)
    assert seen[0] == "http://h/.well-known/jwks.json"


@pytest.mark.parametrize("card", [CARD, both_generations()], ids=["1.0", "both generations"])
async def test_a_card_that_we_sign_is_verified_by_the_sdk(keys: SigningKeys, card: dict[str, Any]) -> None:
    signed = await keys.sign_card(card)
    await check_with_the_sdk(keys, ParseDict(copy.deepcopy(signed), AgentCard(), ignore_unknown_fields=True))
    await check_with_the_sdk(keys, parse_agent_card(copy.deepcopy(signed)))


@pytest.mark.parametrize("card", [CARD, both_generations()], ids=["1.0", "both generations"])
async def test_a_change_that_the_sdk_can_see_is_refused_by_it(keys: SigningKeys, card: dict[str, Any]) -> None:
    signed = copy.deepcopy(await keys.sign_card(card))
    signed["supportedInterfaces"][0]["url"] = "http://evil/"
    with pytest.raises(InvalidSignaturesError):
        await check_with_the_sdk(keys, parse_agent_card(signed))


async def test_a_card_that_the_sdk_signs_is_verified_by_us(keys: SigningKeys) -> None:
    private = keys._private_part(await keys.current())
    header: Any = {"kid": private.thumbprint(), "alg": "ES256", "typ": "JOSE"}
    card = ParseDict(copy.deepcopy(CARD), AgentCard())
    create_agent_card_signer(PyJWK(dict(private.as_dict(private=True))), header)(card)
    assert verify_card(MessageToDict(card), await keys.jwks()) == [Verified(private.thumbprint(), "document")]


async def test_each_signature_says_what_it_covers(keys: SigningKeys) -> None:
    kid, jwks = (await keys.current()).kid, await keys.jwks()
    assert verify_card(await keys.sign_card(CARD), jwks) == [Verified(kid, "document")]
    signed = await keys.sign_card(both_generations())
    assert verify_card(signed, jwks) == [Verified(kid, "1.0"), Verified(kid, "document")]
    assert verify_card({**signed, "url": "http://evil/"}, jwks) == [Verified(kid, "1.0")]
    assert verify_card({**signed, "name": "Other"}, jwks) == []
    assert verify_card(CARD, jwks) == []
    assert verify_card({**CARD, "signatures": [{"protected": "!", "signature": "?"}, {}]}, jwks) == []


async def test_a_signature_of_somebody_else_does_not_hold(keys: SigningKeys, tmp_path: Path, times: Times) -> None:
    other = signing(MemoryRecords(), Secrets(tmp_path / "other.key"), times)
    assert verify_card(await other.sign_card(CARD), await keys.jwks()) == []


def test_what_says_nothing_is_not_signed() -> None:
    assert canonical({"b": "", "a": [{}, None, ""], "c": {"d": []}, "z": 1, "signatures": [1]}) == b'{"z":1}'
    assert canonical({"capabilities": {"streaming": False}}) == b'{"capabilities":{"streaming":false}}'
    assert canonical_1_0({"name": "x", "url": "y", "skills": [{"id": "s", "security": []}]}) == (
        b'{"name":"x","skills":[{"id":"s"}]}'
    )


def test_a_card_without_canonical_form_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"d": deep, "x": 1}
    for params in (deep, {"n": 2**60}, {"n": float("nan")}):
        with pytest.raises(Invalid):
            canonical({"capabilities": {"extensions": [{"uri": "x", "params": params}]}})


async def test_a_key_is_made_once_and_found_again(secrets: Secrets, times: Times) -> None:
    records = MemoryRecords()
    first = await signing(records, secrets, times).current()
    assert await signing(records, secrets, times).current() == first
    assert b'"d"' not in first.private
    shown = (await signing(records, secrets, times).jwks())["keys"]
    assert [key["kid"] for key in shown] == [first.kid]
    assert "d" not in shown[0]


async def test_first_requests_share_one_key(tmp_path: Path, times: Times, secrets: Secrets) -> None:
    records = SqliteRecords(tmp_path / "parley.db")
    keys = signing(records, secrets, times)
    await asyncio.gather(*(keys.sign_card(CARD) for _ in range(10)), *(keys.jwks() for _ in range(10)))
    assert len(await keys.list()) == 1
    await records.close()


async def test_a_retired_key_stays_published_until_nobody_needs_it(secrets: Secrets, times: Times) -> None:
    keys = signing(MemoryRecords(), secrets, times, rotate_days=None, keep_days=30)
    old = await keys.current()
    signed = await keys.sign_card(CARD)
    times.pass_(days=1)
    new = await keys.rotate()
    assert [key["kid"] for key in (await keys.jwks())["keys"]] == [new.kid, old.kid]
    assert verify_card(signed, await keys.jwks()) == [Verified(old.kid, "document")]
    times.pass_(days=31)
    assert [key["kid"] for key in (await keys.jwks())["keys"]] == [new.kid]
    await keys.rotate()
    assert old.kid not in [key.kid for key in await keys.list()]


async def test_a_key_is_replaced_when_it_is_too_old(secrets: Secrets, times: Times) -> None:
    keys = signing(MemoryRecords(), secrets, times, rotate_days=90)
    first = await keys.current()
    times.pass_(days=89)
    assert await keys.current() == first
    times.pass_(days=2)
    assert (await keys.current()).kid != first.kid
    assert len((await keys.jwks())["keys"]) == 2


async def test_replicas_that_start_together_publish_what_both_sign_with(secrets: Secrets, times: Times) -> None:
    records = MemoryRecords()
    a, b = signing(records, secrets, times), signing(records, secrets, times)
    await a._put(first := a._made())
    a._use(first)
    await b._put(second := b._made())
    b._use(second)
    jwks = await a.jwks()
    assert verify_card(await a.sign_card(CARD), jwks)
    assert verify_card(await b.sign_card(CARD), jwks)
    times.pass_(seconds=MINUTE_AND_A_BIT)
    assert (await a.current()).kid == (await b.current()).kid


async def test_replicas_sign_the_same_card_alike(secrets: Secrets, times: Times) -> None:
    records = MemoryRecords()
    a, b = signing(records, secrets, times), signing(records, secrets, times)
    assert await a.sign_card(CARD) == await b.sign_card(CARD)


async def test_a_replica_takes_up_a_key_that_another_made(secrets: Secrets, times: Times) -> None:
    records = MemoryRecords()
    a, b = signing(records, secrets, times), signing(records, secrets, times)
    assert await a.current() == await b.current()
    times.pass_(seconds=1)
    new = await a.rotate()
    assert (await b.current()).kid != new.kid
    times.pass_(seconds=MINUTE_AND_A_BIT)
    assert await b.current() == new


async def test_replicas_with_key_files_of_their_own_sign_with_keys_of_their_own(
    secrets: Secrets, times: Times, tmp_path: Path
) -> None:
    records = MemoryRecords()
    a, b = signing(records, secrets, times), signing(records, Secrets(tmp_path / "other.key"), times)
    for _ in range(3):
        jwks = [await keys.jwks() for keys in (a, b, a)][-1]
        for keys in (a, b):
            assert verify_card(await keys.sign_card(CARD), jwks)
        assert len([key for key in await a.list() if key.retired_at is None]) == 2
        times.pass_(days=1)
        await a.rotate()
        times.pass_(seconds=MINUTE_AND_A_BIT)
        await b.current()


async def test_a_damaged_key_file_is_said_and_not_replaced(times: Times, tmp_path: Path) -> None:
    (tmp_path / "secret.key").write_text("damaged")
    with pytest.raises(ConfigurationError, match="must hold"):
        await signing(MemoryRecords(), Secrets(tmp_path / "secret.key"), times).current()
    assert (tmp_path / "secret.key").read_text() == "damaged"
