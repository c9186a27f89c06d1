"""Our canonical form of a card is the SDK's, whatever the card says."""

import copy
from typing import Any

from a2a.types import AgentCard
from a2a.utils.signing import create_signature_verifier
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey
from jwt.api_jwk import PyJWK

from parley.security.cards import canonical, canonical_1_0

KEY = ECKey.generate_key("P-256")
PUBLIC = PyJWK(dict(KEY.as_dict(private=False)))

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.text("abcÄ€😀", min_size=1, max_size=4)
flag = st.booleans()
scalars = (
    st.none() | flag | text | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
texts = st.lists(text, max_size=3)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


requirements = st.lists(some(schemes=st.dictionaries(names, some(list=texts), max_size=2)), max_size=2)
flow = some(tokenUrl=text, refreshUrl=text, scopes=st.dictionaries(names, text, max_size=2))
code_flow = some(tokenUrl=text, authorizationUrl=text, pkceRequired=flag)
scheme = st.one_of(
    some(apiKeySecurityScheme=some(description=text, location=text, name=text)),
    some(httpAuthSecurityScheme=some(scheme=text, bearerFormat=text)),
    some(oauth2SecurityScheme=some(flows=some(clientCredentials=flow) | some(authorizationCode=code_flow))),
    some(openIdConnectSecurityScheme=some(openIdConnectUrl=text)),
    some(mtlsSecurityScheme=some(description=text)),
)
extension = some(uri=text, description=text, required=flag, params=st.dictionaries(names, values, max_size=3))
skill = some(id=text, name=text, tags=texts, examples=texts, inputModes=texts, securityRequirements=requirements)
cards = some(
    name=text,
    description=text,
    version=text,
    documentationUrl=text,
    iconUrl=text,
    provider=some(url=text, organization=text),
    supportedInterfaces=st.lists(some(url=text, protocolBinding=text, tenant=text, protocolVersion=text), max_size=2),
    capabilities=some(
        streaming=flag, pushNotifications=flag, extendedAgentCard=flag, extensions=st.lists(extension, max_size=2)
    ),
    securitySchemes=st.dictionaries(names, scheme, max_size=3),
    securityRequirements=requirements,
    defaultInputModes=texts,
    skills=st.lists(skill, max_size=2),
)
older = some(
    url=text, preferredTransport=text, protocolVersion=text, security=st.lists(st.just({"a": ["b"]}), max_size=1)
)


def with_signature(card: dict[str, Any], payload: bytes) -> dict[str, Any]:
    protected, _, signature = jws.serialize_compact({"alg": "ES256", "kid": "k"}, payload, KEY).split(".")
    return {**card, "signatures": [{"protected": protected, "signature": signature}]}


def check_with_the_sdk(card: dict[str, Any]) -> None:
    parsed = ParseDict(copy.deepcopy(card), AgentCard(), ignore_unknown_fields=True)
    create_signature_verifier(lambda kid, jku: PUBLIC, ["ES256"])(parsed)


@settings(max_examples=300)
@given(cards.filter(lambda card: canonical(card) != b"{}"))
def test_the_sdk_signs_the_same_bytes(card: dict[str, Any]) -> None:
    assert canonical(card) == canonical_1_0(card)
    check_with_the_sdk(with_signature(card, canonical(card)))


@settings(max_examples=100)
@given(cards.filter(lambda card: canonical(card) != b"{}"), older)
def test_what_1_0_knows_does_not_depend_on_what_is_older(card: dict[str, Any], more: dict[str, Any]) -> None:
    assert canonical_1_0({**card, **more}) == canonical_1_0(card)
    check_with_the_sdk(with_signature({**card, **more}, canonical_1_0(card)))
