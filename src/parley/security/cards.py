"""Agent cards as bytes that can be signed, and the part of a card that a signature covers.

A document for both generations of A2A has fields that a 1.0 client drops when it parses the card, before it checks any
signature. So a card has two readings: all of it, and the part that 1.0 knows (A2A 1.0 §8.4).
"""

from collections.abc import Mapping
from typing import Any, Literal, cast

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, KeySetSerialization
from msgspec import Struct

from parley.errors import Invalid
from parley.json_values import canonical_json

Card = dict[str, Any]
Covers = Literal["document", "1.0"]

MAX_DEPTH = 128
ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "Ed25519")


class _Leaf(Struct, frozen=True):
    """A value that is kept as it is; where the schema does not track presence, false is the same as absent."""

    presence: bool = True


class _Many(Struct, frozen=True):
    """A list of one shape."""

    of: "_Shape"


class _Named(Struct, frozen=True):
    """A map with arbitrary keys."""

    of: "_Shape"


_Shape = _Leaf | _Many | _Named | Mapping[str, "_Shape"]

_ANY = _Leaf()
_FLAG = _Leaf(presence=False)


def _fields(names: str, **shapes: _Shape) -> Mapping[str, _Shape]:
    return {**dict.fromkeys(names.split(), _ANY), **shapes}


_REQUIREMENTS = _Many({"schemes": _Named({"list": _ANY})})
_FLOWS = {
    "authorizationCode": _fields("authorizationUrl tokenUrl refreshUrl scopes", pkceRequired=_FLAG),
    "clientCredentials": _fields("tokenUrl refreshUrl scopes"),
    "implicit": _fields("authorizationUrl refreshUrl scopes"),
    "password": _fields("tokenUrl refreshUrl scopes"),
    "deviceCode": _fields("deviceAuthorizationUrl tokenUrl refreshUrl scopes"),
}
_SCHEMES = _Named(
    {
        "apiKeySecurityScheme": _fields("description location name"),
        "httpAuthSecurityScheme": _fields("description scheme bearerFormat"),
        "oauth2SecurityScheme": _fields("description oauth2MetadataUrl", flows=_FLOWS),
        "openIdConnectSecurityScheme": _fields("description openIdConnectUrl"),
        "mtlsSecurityScheme": _fields("description"),
    }
)
_EXTENSION = _fields("uri description params", required=_FLAG)
_SKILL = _fields("id name description tags examples inputModes outputModes", securityRequirements=_REQUIREMENTS)
_CARD: Mapping[str, _Shape] = _fields(
    "name description version documentationUrl iconUrl defaultInputModes defaultOutputModes",
    supportedInterfaces=_Many(_fields("url protocolBinding tenant protocolVersion")),
    provider=_fields("url organization"),
    capabilities=_fields("streaming pushNotifications extendedAgentCard", extensions=_Many(_EXTENSION)),
    securitySchemes=_SCHEMES,
    securityRequirements=_REQUIREMENTS,
    skills=_Many(_SKILL),
)  # fmt: skip


class Verified(Struct, frozen=True):
    """A valid signature, and how much of the card it covers."""

    kid: str
    covers: Covers


def canonical(card: Card) -> bytes:
    """Return the card in the form of RFC 8785, without signatures, defaults and empty values."""
    return _bytes(_shaped(card, _CARD, strict=False))


# Why: docs/decisions/faces.md#sign-a-card-for-both-versions-twice
def canonical_1_0(card: Card) -> bytes:
    """Return the canonical form of only those fields that an A2A 1.0 client knows."""
    return _bytes(_shaped(card, _CARD, strict=True))


def readings(card: Card) -> dict[Covers, bytes]:
    """Return the readings to sign. A card with only fields of 1.0 has one reading."""
    known, whole = canonical_1_0(card), canonical(card)
    return {"document": whole} if known == whole else {"1.0": known, "document": whole}


def verify_card(card: Card, jwks: KeySetSerialization) -> list[Verified]:
    """Return the signatures that are valid under these public keys; empty if there are none."""
    keys = KeySet.import_key_set(jwks)
    payloads = readings(card)
    found: list[Verified] = []
    for signature in cast(list[Card], card.get("signatures") or []):
        for covers, payload in payloads.items():
            kid = _verified(signature, payload, keys)
            if kid is not None:
                found.append(Verified(kid, covers))
    return found


def _verified(signature: Card, payload: bytes, keys: KeySet) -> str | None:
    detached = f"{signature.get('protected', '')}..{signature.get('signature', '')}"
    try:
        checked = jws.deserialize_compact(detached, keys, algorithms=ALGORITHMS, payload=payload)
    except (JoseError, ValueError, TypeError):
        return None
    return str(checked.protected.get("kid", ""))


def _shaped(value: object, shape: _Shape, *, strict: bool) -> object:
    """Return the value without defaults that mean absence and, if strict, without fields that the shape lacks."""
    match shape:
        case _Leaf():
            return value if shape.presence or value else None
        case _Many():
            if isinstance(value, list):
                return [_shaped(one, shape.of, strict=strict) for one in cast(list[object], value)]
        case _Named():
            if isinstance(value, dict):
                named = cast(dict[str, object], value)
                return {name: _shaped(one, shape.of, strict=strict) for name, one in named.items()}
        case _:
            if isinstance(value, dict):
                return _members(cast(dict[str, object], value), shape, strict=strict)
    return value


def _members(value: dict[str, object], shape: Mapping[str, _Shape], *, strict: bool) -> dict[str, object]:
    return {
        name: _shaped(one, shape.get(name, _ANY), strict=strict)
        for name, one in value.items()
        if name in shape or not strict
    }


def _bytes(card: object) -> bytes:
    assert isinstance(card, dict)
    unsigned = {name: value for name, value in cast(Card, card).items() if name != "signatures"}
    return canonical_json(_said(unsigned) or {}, "card")


def _said(value: object, depth: int = 1) -> object:
    """Return the value without empty members at any depth; None if nothing is left."""
    if depth > MAX_DEPTH and isinstance(value, dict | list):
        raise Invalid("The card is nested too deeply to be signed.")
    if isinstance(value, dict):
        members = {name: _said(one, depth + 1) for name, one in cast(dict[str, object], value).items()}
        return {name: one for name, one in members.items() if one is not None} or None
    if isinstance(value, list):
        items = [_said(one, depth + 1) for one in cast(list[object], value)]
        return [one for one in items if one is not None] or None
    return None if value == "" else value
