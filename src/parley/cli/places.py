"""Whom a command speaks to: an agent of the server at --url, that server itself, or anybody's A2A address."""

from urllib.parse import urlsplit

from msgspec import Struct

from parley.cards import NoCard, fetch
from parley.cli.wire import Json, member, members
from parley.client import Client, OnRetry
from parley.errors import ParleyError

PATIENCE_S = 24 * 3600.0
"""A task may take its time to answer; whoever waits for it can interrupt the command."""
OURS = "urn:parley:extension:"


class NoCommonProtocol(ParleyError):
    """The agent offers no binding and version that this program speaks."""

    code = "no_common_protocol"


class Place(Struct, frozen=True):
    """`agent` is a slug at `url`, an address, or nothing for the server itself."""

    agent: str | None
    url: str
    token: str | None

    @property
    def address(self) -> str:
        base = self.url.rstrip("/")
        if self.agent is None:
            return base + "/"
        return self.agent if "://" in self.agent else f"{base}/agents/{self.agent}"

    def token_for(self, address: str) -> str | None:
        """A token is for its own server: other addresses never see it."""
        return self.token if address.startswith(self.url.rstrip("/") + "/") else None

    def options(self, default_url: str) -> str:
        """How to come back here, on a command line."""
        agent = f" --agent {self.agent}" if self.agent and "://" in self.agent else ""
        return agent + (f" --url {self.url}" if self.url != default_url else "")


class Reached(Struct, frozen=True):
    address: str
    token: str | None
    ours: bool
    """Whether the server is Parley, which numbers events and knows idempotency keys."""

    def client(self, on_retry: OnRetry | None = None) -> Client:
        return Client(
            self.address, token=self.token, timeout_s=PATIENCE_S, repeats=self.ours, on_retry=on_retry
        )  # fmt: skip


async def reach(place: Place) -> Reached:
    """Where to send to, as the card there says. Agents by their slug are ours, and need no card."""
    address = place.address
    token = place.token_for(address)
    if place.agent is not None and "://" not in place.agent:
        return Reached(address, token, ours=True)
    try:
        card = await fetch(address, token=token)
    except NoCard:
        return Reached(address, token, ours=False)
    if is_ours(card):
        return Reached(address, token, ours=True)
    found = _jsonrpc(card, address)
    same = urlsplit(found)[:2] == urlsplit(address)[:2]
    return Reached(found, token if same else None, ours=False)


def is_ours(card: Json) -> bool:
    extensions = members(member(card.get("capabilities")).get("extensions"))
    return any(str(one.get("uri", "")).startswith(OURS) for one in extensions)


def _jsonrpc(card: Json, address: str) -> str:
    offered = [
        (str(one.get("protocolBinding")), str(one.get("protocolVersion")), str(one.get("url")))
        for one in members(card.get("supportedInterfaces"))
    ]
    for binding, version, url in offered:
        if binding == "JSONRPC" and version.startswith("1."):
            return url
    said = ", ".join(f"{binding} {version}" for binding, version, _ in offered)
    older = str(card.get("protocolVersion") or "")
    said = said or (f"A2A {older}" if older else "nothing that its card names")
    raise NoCommonProtocol(f"{address} speaks {said}; this program speaks A2A 1.0 over JSON-RPC.")
