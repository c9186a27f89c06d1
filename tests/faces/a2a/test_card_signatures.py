"""Signatures of the cards that a server gives out: by A2A §8.4.1 as it is written, and by the official verifier."""

from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from google.api import field_behavior_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from jwt.api_jwk import PyJWK

from parley import Skill, Text, Turn, agent
from parley.json_values import canonical_json
from parley.runs.rules.agents import Extended
from parley.security.cards import verify_card
from parley.testing.servers import serving

Json = dict[str, Any]
MORE = Extended(skills=(Skill("more", "More", "Shown to callers with credentials."),))
ISSUER = {"oidc_issuer": "https://login.example.org", "oidc_audience": "parley"}


@agent("sparse", description="", skills=[Skill("bare", "Bare", "")], extended=MORE)
async def sparse(turn: Turn):
    yield Text(turn.text)


def as_written(message: Message) -> Json:
    """§8.4.1, rule 1: REQUIRED fields always; `optional` ones when set; others when they are not the default."""
    found: Json = {}
    for field in message.DESCRIPTOR.fields:
        required = field_behavior_pb2.REQUIRED in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
        value = getattr(message, field.name)
        present = message.HasField(field.name) if field.has_presence else bool(value)
        if present or required:
            found[field.json_name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        nested = field.message_type.fields_by_name["value"].message_type is not None
        return {name: as_written(one) if nested else one for name, one in value.items()}
    if field.message_type.full_name == "google.protobuf.Struct":
        return MessageToDict(value)
    return [as_written(one) for one in value] if field.is_repeated else as_written(value)


def holds_as_written(card: Json, keys: Json) -> bool:
    """True if a client that follows the specification literally finds a valid signature."""
    message = ParseDict(card, AgentCard(), ignore_unknown_fields=True)
    payload = as_written(message)
    payload.pop("signatures", None)
    body = urlsafe_b64encode(canonical_json(payload, "card")).rstrip(b"=").decode()
    for one in card["signatures"]:
        try:
            jws.deserialize_compact(f"{one['protected']}.{body}.{one['signature']}", KeySet.import_key_set(keys))
        except JoseError:
            continue
        return True
    return False


def holds_for_the_sdk(card: Json, keys: Json) -> bool:
    known = {key["kid"]: PyJWK(key) for key in keys["keys"]}
    try:
        create_signature_verifier(lambda kid, _: known[kid or ""], ["ES256"])(parse_agent_card(dict(card)))
    except InvalidSignaturesError:
        return False
    return True


VERIFIERS = (holds_as_written, holds_for_the_sdk, lambda card, keys: bool(verify_card(card, keys)))


class Found:
    def __init__(self, public: Json, extended: Json, keys: Json) -> None:
        self.cards = {"public": public, "extended": extended}
        self.keys = keys


@pytest.fixture(params=["required", "local", "none"])
async def found(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Found]:
    async with serving(tmp_path / "data", [sparse]) as server, httpx2.AsyncClient(base_url=server.url) as http:
        key = (await http.post("/admin/keys", json={"name": "ann"})).json()["token"]
    async with (
        serving(tmp_path / "data", [sparse], auth=request.param, **ISSUER) as server,
        httpx2.AsyncClient(base_url=server.url, headers={"A2A-Version": "1.0"}) as http,
    ):
        public = (await http.get("/agents/sparse/.well-known/agent-card.json")).json()
        extended = (await http.get("/agents/sparse/extendedAgentCard", headers={"X-API-Key": key})).json()
        yield Found(public, extended, (await http.get("/.well-known/jwks.json")).json())


@pytest.mark.parametrize("which", ["public", "extended"])
@pytest.mark.parametrize("holds", VERIFIERS, ids=["as written", "a2a-sdk", "ours"])
async def test_a_signature_holds_until_something_is_changed(found: Found, which: str, holds: Any) -> None:
    card = found.cards[which]
    assert holds(card, found.keys)
    for name in ("securitySchemes", "securityRequirements", "description", "skills"):
        if name in card:
            assert not holds({key: value for key, value in card.items() if key != name}, found.keys), name
    assert ("securityRequirements" in card) is (found.cards["public"].get("securityRequirements") is not None)


async def test_skills_carry_the_modes_of_their_agent(found: Found) -> None:
    for card in found.cards.values():
        for skill in card["skills"]:
            assert skill["inputModes"] == card["defaultInputModes"] == ["text/plain", "application/json"]
            assert skill["outputModes"] == card["defaultOutputModes"]


async def test_the_requirements_of_a_card_name_what_they_ask_for(tmp_path: Path) -> None:
    """Empty lists are dropped by some when they verify, and with them the requirements."""
    async with serving(tmp_path / "data", [sparse], auth="required", **ISSUER) as server, httpx2.AsyncClient() as http:
        card = (await http.get(f"{server.agent('sparse')}/.well-known/agent-card.json")).json()
    wanted = {"bearer": ["read", "send"], "apiKey": ["read", "send"], "oidc": ["openid"]}
    assert card["securityRequirements"] == [{"schemes": {name: {"list": one}}} for name, one in wanted.items()]
    assert card["security"] == [{name: one} for name, one in wanted.items()]
