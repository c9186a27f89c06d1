"""Fetches agent cards, checks them against the A2A specification and verifies their signatures."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import httpx2
import msgspec
from joserfc.errors import JoseError
from msgspec import Struct

from parley.client.http import Json, ask, token_headers
from parley.errors import ParleyError, ReplyTooLarge
from parley.security.cards import Verified, verify_card
from parley.security.outbound import PLAIN, open_client

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
MAX_BYTES = 1024 * 1024
TIMEOUT_S = 10.0
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NoCard(ParleyError):
    """There is no readable agent card at an address."""

    code = "no_card"


class CardFinding(Struct, frozen=True):
    """A problem of a card: an error breaks clients, a warning may break some."""

    level: Literal["error", "warning"]
    field: str
    message: str


class CardReport(Struct, frozen=True):
    url: str
    card: Json
    findings: list[CardFinding]
    verified: list[Verified]

    @property
    def valid(self) -> bool:
        return all(finding.level != "error" for finding in self.findings)


async def fetch(address: str, *, token: str | None = None) -> Json:
    """Fetch the card of an address without checking it."""
    async with open_client(MAX_BYTES, timeout=TIMEOUT_S, follow_redirects=True) as client:
        return (await _fetch_card(client, address, token_headers(token)))[1]


async def inspect(address: str, *, token: str | None = None, http: httpx2.AsyncClient | None = None) -> CardReport:
    """Fetch the card of an agent, from its address or from the card's own URL, and check all of it."""
    client = http or open_client(MAX_BYTES, timeout=TIMEOUT_S, follow_redirects=True)
    try:
        url, card = await _fetch_card(client, address, token_headers(token))
        findings = list(check(card, url))
        verified, about = await _signatures(client, card, url)
        return CardReport(url, card, findings + about, verified)
    finally:
        if http is None:
            await client.aclose()


def check(card: Json, url: str = "") -> Iterator[CardFinding]:
    """Yield the findings about a card of A2A 1.0 or 0.3."""
    yield from _texts(card, "", "name", "description", "version")
    if "supportedInterfaces" in card:
        yield from _interfaces(card["supportedInterfaces"], url)
    elif "url" not in card:
        yield CardFinding("error", "supportedInterfaces", "is missing: clients do not know where to send requests.")
    if "url" in card or "protocolVersion" in card:
        yield from _check_v03(card)
    if not isinstance(card.get("capabilities"), dict):
        yield CardFinding("error", "capabilities", "must be an object.")
    for name in ("defaultInputModes", "defaultOutputModes"):
        if not _is_texts(card.get(name)):
            yield CardFinding("error", name, "must be a list of media types.")
    yield from _skills(card.get("skills"))
    yield from _security(card)


def _texts(given: Json, where: str, *names: str) -> Iterator[CardFinding]:
    for name in names:
        if not isinstance(given.get(name), str) or not given[name]:
            yield CardFinding("error", f"{where}{name}", "must be a non-empty string.")


def _interfaces(given: object, url: str) -> Iterator[CardFinding]:
    if not isinstance(given, list) or not given:
        yield CardFinding("error", "supportedInterfaces", "must be a list with at least one interface.")
        return
    for index, one in enumerate(cast(list[object], given)):
        where = f"supportedInterfaces[{index}]."
        if not isinstance(one, dict):
            yield CardFinding("error", where.rstrip("."), "must be an object.")
            continue
        interface = cast(Json, one)
        yield from _texts(interface, where, "url", "protocolBinding", "protocolVersion")
        binding, version = str(interface.get("protocolBinding", "")), str(interface.get("protocolVersion", ""))
        if binding not in BINDINGS and ":" not in binding:
            yield CardFinding("error", f"{where}protocolBinding", f"must be one of {', '.join(BINDINGS)}, or a URI.")
        if version and not _VERSION.fullmatch(version):
            yield CardFinding("error", f"{where}protocolVersion", "must be a version such as 1.0.")
        if binding != "GRPC":
            yield from _address(str(interface.get("url", "")), f"{where}url", url)


def _address(address: str, where: str, card_url: str) -> Iterator[CardFinding]:
    place = urlsplit(address)
    if place.scheme not in ("http", "https") or not place.hostname:
        yield CardFinding("error", where, "must be an absolute http or https URL.")
    elif place.scheme == "http" and place.hostname not in _LOOPBACK:
        yield CardFinding("warning", where, "is not encrypted: use https.")
    elif card_url and place.hostname != urlsplit(card_url).hostname:
        yield CardFinding("warning", where, "is on a different host than the card.")


def _check_v03(card: Json) -> Iterator[CardFinding]:
    yield from _texts(card, "", "url", "protocolVersion")
    for index, one in enumerate(_list(card.get("additionalInterfaces"))):
        if not isinstance(one, dict):
            yield CardFinding("error", f"additionalInterfaces[{index}]", "must be an object.")
        else:
            yield from _texts(cast(Json, one), f"additionalInterfaces[{index}].", "url", "transport")


def _skills(given: object) -> Iterator[CardFinding]:
    if not isinstance(given, list):
        yield CardFinding("error", "skills", "must be a list.")
        return
    for index, one in enumerate(cast(list[object], given)):
        if not isinstance(one, dict):
            yield CardFinding("error", f"skills[{index}]", "must be an object.")
            continue
        yield from _texts(cast(Json, one), f"skills[{index}].", "id", "name", "description")
        if not _is_texts(cast(Json, one).get("tags")):
            yield CardFinding("error", f"skills[{index}].tags", "must be a list of strings.")


def _security(card: Json) -> Iterator[CardFinding]:
    declared = set(cast(Json, card.get("securitySchemes") or {}))
    asked = {
        name
        for one in _list(card.get("securityRequirements"))
        if isinstance(one, dict)
        for name in cast(Json, cast(Json, one).get("schemes") or {})
    }
    asked |= {name for one in _list(card.get("security")) if isinstance(one, dict) for name in cast(Json, one)}
    for name in sorted(asked - declared):
        yield CardFinding(
            "error", "securityRequirements", f"requires the scheme {name!r}, which securitySchemes does not declare."
        )


async def _signatures(client: httpx2.AsyncClient, card: Json, url: str) -> tuple[list[Verified], list[CardFinding]]:
    """Verify the signatures of a card. Keys are fetched from the URL in the signature (jku), and only from the card's
    own host: keys on other hosts prove nothing."""
    signatures = _list(card.get("signatures"))
    if not signatures:
        return [], [CardFinding("warning", "signatures", "is missing: the origin of this card cannot be verified.")]
    places = {_protected(one).get("jku") for one in signatures} - {None}
    findings: list[CardFinding] = []
    verified: list[Verified] = []
    for place in sorted(str(place) for place in places):
        if urlsplit(place)[:2] != urlsplit(url)[:2]:
            findings.append(
                CardFinding("warning", "signatures", f"keys are on another host ({place}) and were not fetched.")
            )
            continue
        try:
            keys = cast(Any, await _fetch_json(client, place, {}))
            verified += verify_card(card, keys)
        except (ParleyError, JoseError, ValueError, TypeError, KeyError):
            findings.append(CardFinding("error", "signatures", f"the keys at {place} cannot be read."))
    if not places:
        findings.append(CardFinding("warning", "signatures", "none has the URL of its key (jku)."))
    elif not verified and not findings:
        findings.append(CardFinding("error", "signatures", "none is valid."))
    return verified, findings


def _protected(signature: object) -> Json:
    try:
        text = str(cast(Json, signature)["protected"])
        header = msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return cast(Json, header) if isinstance(header, dict) else {}
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError):
        return {}


async def _fetch_card(client: httpx2.AsyncClient, address: str, headers: dict[str, str]) -> tuple[str, Json]:
    """Fetch a card from the address itself if it ends in .json, else from its well-known paths."""
    base = address.rstrip("/")
    places = [address] if base.endswith(".json") else [base + path for path in WELL_KNOWN]
    trouble: NoCard | None = None
    for place in places:
        try:
            return place, await _fetch_json(client, place, headers)
        except NoCard as error:
            trouble = trouble or error
    raise trouble or NoCard(f"There is no card at {address}.")


async def _fetch_json(client: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> Json:
    try:
        answer = await ask(client, "GET", url, max_bytes=MAX_BYTES, headers={**PLAIN, **headers})
    except ReplyTooLarge as error:
        raise NoCard(f"{url}: {error.message}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise NoCard(f"{url} cannot be reached ({type(error).__name__}).") from None
    if not answer.ok:
        raise NoCard(f"{url} answered {answer.status}.")
    if (found := answer.read(Json)) is None:
        raise NoCard(f"{url} did not answer with a JSON object.")
    return found


def _list(value: object) -> list[object]:
    return cast(list[object], value) if isinstance(value, list) else []


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast(list[object], value))
