"""Anybody's agent card: fetched, read, checked against what A2A asks for, its signatures verified."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import httpx2
import msgspec
from joserfc.errors import JoseError
from msgspec import Struct

from parley.errors import ParleyError, ReplyTooLarge
from parley.security.cards import Verified, verify_card
from parley.security.replies import PLAIN, limit, open_client

Json = dict[str, Any]

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
MAX_BYTES = 1024 * 1024
TIMEOUT_S = 10.0
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NoCard(ParleyError):
    """There is no agent card at an address, or it cannot be read."""

    code = "no_card"


class Finding(Struct, frozen=True):
    """Something about a card: an error breaks clients, a warning may."""

    level: Literal["error", "warning"]
    field: str
    message: str


class Report(Struct, frozen=True):
    url: str
    card: Json
    findings: list[Finding]
    verified: list[Verified]

    @property
    def valid(self) -> bool:
        return all(finding.level != "error" for finding in self.findings)


async def fetch(address: str, *, token: str | None = None) -> Json:
    """The card of an address, unchecked."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with open_client(MAX_BYTES, timeout=TIMEOUT_S, follow_redirects=True) as client:
        return (await _fetched(client, address, headers))[1]


async def inspect(address: str, *, token: str | None = None, http: httpx2.AsyncClient | None = None) -> Report:
    """Fetch the card of an address (or at it) and check everything about it."""
    client = http or open_client(MAX_BYTES, timeout=TIMEOUT_S, follow_redirects=True)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        url, card = await _fetched(client, address, headers)
        findings = list(check(card, url))
        verified, about = await _signatures(client, card, url)
        return Report(url, card, findings + about, verified)
    finally:
        if http is None:
            await client.aclose()


def check(card: Json, url: str = "") -> Iterator[Finding]:
    """What is wrong with a card, of either generation."""
    yield from _texts(card, "", "name", "description", "version")
    if "supportedInterfaces" in card:
        yield from _interfaces(card["supportedInterfaces"], url)
    elif "url" not in card:
        yield Finding("error", "supportedInterfaces", "is missing: a client cannot know where to send to.")
    if "url" in card or "protocolVersion" in card:
        yield from _old(card)
    if not isinstance(card.get("capabilities"), dict):
        yield Finding("error", "capabilities", "must be an object.")
    for name in ("defaultInputModes", "defaultOutputModes"):
        if not _is_texts(card.get(name)):
            yield Finding("error", name, "must be a list of media types.")
    yield from _skills(card.get("skills"))
    yield from _security(card)


def _texts(given: Json, where: str, *names: str) -> Iterator[Finding]:
    for name in names:
        if not isinstance(given.get(name), str) or not given[name]:
            yield Finding("error", f"{where}{name}", "must be a text that is not empty.")


def _interfaces(given: object, url: str) -> Iterator[Finding]:
    if not isinstance(given, list) or not given:
        yield Finding("error", "supportedInterfaces", "must be a list with at least one interface.")
        return
    for index, one in enumerate(cast(list[object], given)):
        where = f"supportedInterfaces[{index}]."
        if not isinstance(one, dict):
            yield Finding("error", where.rstrip("."), "must be an object.")
            continue
        interface = cast(Json, one)
        yield from _texts(interface, where, "url", "protocolBinding", "protocolVersion")
        binding, version = str(interface.get("protocolBinding", "")), str(interface.get("protocolVersion", ""))
        if binding not in BINDINGS and ":" not in binding:
            yield Finding("error", f"{where}protocolBinding", f"must be one of {', '.join(BINDINGS)}, or a URI.")
        if version and not _VERSION.fullmatch(version):
            yield Finding("error", f"{where}protocolVersion", "must be a version such as 1.0.")
        if binding != "GRPC":
            yield from _address(str(interface.get("url", "")), f"{where}url", url)


def _address(address: str, where: str, card_url: str) -> Iterator[Finding]:
    place = urlsplit(address)
    if place.scheme not in ("http", "https") or not place.hostname:
        yield Finding("error", where, "must be an absolute http or https address.")
    elif place.scheme == "http" and place.hostname not in _LOOPBACK:
        yield Finding("warning", where, "is not encrypted.")
    elif card_url and place.hostname != urlsplit(card_url).hostname:
        yield Finding("warning", where, "is on another host than the card.")


def _old(card: Json) -> Iterator[Finding]:
    yield from _texts(card, "", "url", "protocolVersion")
    for index, one in enumerate(_list(card.get("additionalInterfaces"))):
        if not isinstance(one, dict):
            yield Finding("error", f"additionalInterfaces[{index}]", "must be an object.")
        else:
            yield from _texts(cast(Json, one), f"additionalInterfaces[{index}].", "url", "transport")


def _skills(given: object) -> Iterator[Finding]:
    if not isinstance(given, list):
        yield Finding("error", "skills", "must be a list.")
        return
    for index, one in enumerate(cast(list[object], given)):
        if not isinstance(one, dict):
            yield Finding("error", f"skills[{index}]", "must be an object.")
            continue
        yield from _texts(cast(Json, one), f"skills[{index}].", "id", "name", "description")
        if not _is_texts(cast(Json, one).get("tags")):
            yield Finding("error", f"skills[{index}].tags", "must be a list of texts.")


def _security(card: Json) -> Iterator[Finding]:
    declared = set(cast(Json, card.get("securitySchemes") or {}))
    asked = {
        name
        for one in _list(card.get("securityRequirements"))
        if isinstance(one, dict)
        for name in cast(Json, cast(Json, one).get("schemes") or {})
    }
    asked |= {name for one in _list(card.get("security")) if isinstance(one, dict) for name in cast(Json, one)}
    for name in sorted(asked - declared):
        yield Finding("error", "securityRequirements", f"asks for the scheme {name!r}, which is not declared.")


async def _signatures(client: httpx2.AsyncClient, card: Json, url: str) -> tuple[list[Verified], list[Finding]]:
    """Keys are fetched from where the signature says, and only from the card's own host is that proof of anything."""
    signatures = _list(card.get("signatures"))
    if not signatures:
        return [], [Finding("warning", "signatures", "there are none: nobody vouches for this card.")]
    places = {_protected(one).get("jku") for one in signatures} - {None}
    findings: list[Finding] = []
    verified: list[Verified] = []
    for place in sorted(str(place) for place in places):
        if urlsplit(place)[:2] != urlsplit(url)[:2]:
            findings.append(
                Finding("warning", "signatures", f"keys are kept elsewhere ({place}); they were not asked.")
            )
            continue
        try:
            keys = cast(Any, await _json(client, place, {}))
            verified += verify_card(card, keys)
        except (ParleyError, JoseError, ValueError, TypeError, KeyError):
            findings.append(Finding("error", "signatures", f"the keys at {place} cannot be read."))
    if not places:
        findings.append(Finding("warning", "signatures", "none says where its key is (jku)."))
    elif not verified and not findings:
        findings.append(Finding("error", "signatures", "none of them holds."))
    return verified, findings


def _protected(signature: object) -> Json:
    try:
        text = str(cast(Json, signature)["protected"])
        header = msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return cast(Json, header) if isinstance(header, dict) else {}
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError):
        return {}


async def _fetched(client: httpx2.AsyncClient, address: str, headers: dict[str, str]) -> tuple[str, Json]:
    """At the address itself when it names a file, else at its well-known places."""
    base = address.rstrip("/")
    places = [address] if base.endswith(".json") else [base + path for path in WELL_KNOWN]
    trouble: NoCard | None = None
    for place in places:
        try:
            return place, await _json(client, place, headers)
        except NoCard as error:
            trouble = trouble or error
    raise trouble or NoCard(f"There is no card at {address}.")


async def _json(client: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> Json:
    try:
        async with client.stream("GET", url, headers={**PLAIN, **headers}) as reply:
            limit(reply, MAX_BYTES)
            await reply.aread()
    except ReplyTooLarge as error:
        raise NoCard(f"{url}: {error.message}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise NoCard(f"{url} cannot be reached ({type(error).__name__}).") from None
    if not reply.is_success:
        raise NoCard(f"{url} answered {reply.status_code}.")
    try:
        return msgspec.json.decode(reply.content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NoCard(f"{url} did not answer with a JSON object.") from None


def _list(value: object) -> list[object]:
    return cast(list[object], value) if isinstance(value, list) else []


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast(list[object], value))
