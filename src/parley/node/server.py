"""A running node: its exchange, its server, its registration and its delegations to peers."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import SecretStr

from parley.app import open_a2a, open_exchange, open_records
from parley.execution.driver import Driver
from parley.faces.a2a.card import Cards
from parley.http.server import Listening, bind, url_of
from parley.http.tracing import OTHER
from parley.node.delegations import PeerDelegations, failure_of
from parley.node.messages import Json
from parley.node.peers import Peers
from parley.node.platform import IdentityFile, PlatformClient
from parley.node.registration import ErrorWindow, Registration
from parley.node.settings import NodeSettings, server_settings
from parley.node.verifying import PairVerifier
from parley.runs.rules.access import Principal
from parley.runs.rules.events import Event
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.security.credentials import Credentials, bearer
from parley.security.keys import PREFIX, ApiKeys
from parley.security.netguard import LOOPBACK, Guard
from parley.settings import Settings

# Callers of a node: peers, with a pair token; and its operator, with an API key of the node.


class PairAuthentication:
    """Authenticates peers by pair token. The principal is the calling node, so that a peer sees only its own tasks."""

    auth: Literal["required"] = "required"

    def __init__(self, verifier: PairVerifier, keys: Credentials) -> None:
        self._verifier = verifier
        self._keys = keys

    async def principal(self, authorization: str | None, api_key: str | None) -> Principal | None:
        if api_key is None and authorization is None:
            return None
        shown = api_key.strip() if api_key is not None else bearer((authorization or "").strip())
        if api_key is not None or shown.startswith(PREFIX):
            return await self._keys.principal_for(shown)
        return Principal("node", (await self._verifier.check(shown)).sub)


_REPORTED = frozenset(("started", "completed", "failed", "canceled", "input_required", "auth_required", "rejected"))
_LOOPBACK_HOSTS = frozenset(("127.0.0.1", "::1", "localhost"))
_CARD_VERSION = "0.3"
"""Version of the card that is registered: 0.3, with the fields of both generations of A2A."""


class NodeServer:
    """The parts of a running node. Everything that an agent may use exists before the first turn, which may be a
    resumed one."""

    def __init__(self, given: NodeSettings, slug: str) -> None:
        self._given = given
        self._slug = slug
        self.settings = server_settings(given, slug)
        self.listener = bind(given.host, given.port)
        self.url = (given.url or url_of(self.listener)).rstrip("/")
        self.platform = PlatformClient(
            given.platform,
            IdentityFile(given.data_dir),
            given.id,
            token=_revealed(given.token),
            registration_token=_revealed(given.registration_token),
        )
        self.window = ErrorWindow()
        self.exchange: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
        self.registration = Registration(
            self.platform, self.url, given.name, self._describe, self._report, given.heartbeat_s
        )
        self.peers = Peers(self.platform, self.registration.registered)
        self.delegations = PeerDelegations(self.exchange, self.peers, self.window, _peer_guard(given, self.settings))
        self.doing = ""
        self._cards: Cards | None = None

    async def open(self, stack: AsyncExitStack, drivers: Sequence[Driver], *, signals: bool = True) -> Listening:
        """Return the server, ready to listen. Everything is closed with the stack."""
        stack.callback(self.listener.close)
        stack.push_async_callback(self.platform.close)
        stack.push_async_callback(self.delegations.close)
        exchange = await stack.enter_async_context(open_exchange(self.settings, drivers))
        records = await stack.enter_async_context(open_records(self.settings))
        verifier = self._verifier()
        stack.push_async_callback(verifier.close)
        authentication = PairAuthentication(verifier, Credentials(ApiKeys(records)))
        app, self._cards = await stack.enter_async_context(
            open_a2a(exchange, self.settings, records, self.url, authentication, self._answered)
        )
        exchange.listeners.change.add(self._changed)
        self.exchange.set_result(exchange)
        for loop in (self.registration, self.peers):
            loop.start()
            stack.push_async_callback(loop.close)
        words = f"Node {self.platform.id} listens on {self.url}"
        return Listening(app, lambda: print(words, file=sys.stderr, flush=True), signals=signals)

    def _verifier(self) -> PairVerifier:
        platform = self.platform
        token = (lambda: platform.token) if self._given.introspect else None
        return PairVerifier(self._given.issuer or (lambda: platform.issuer), platform.id, at=platform.url, token=token)

    def _answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answer of the agent. Requests for cards and unknown paths do not count."""
        if route != OTHER and not route.endswith(".json"):
            self.window.answered(status, "this node")

    def _changed(self, run: Run, events: Sequence[Event]) -> None:
        self.delegations.changed(run)
        for event in events:
            failure = failure_of(event)
            if failure:
                self.window.failed(f"a task failed: {failure}")
            elif failure is not None:
                self.window.answered(200)
            if event.type in _REPORTED:
                self.registration.report_soon()

    async def _describe(self) -> Json:
        assert self._cards is not None
        agent = self.exchange.result().agent(self._slug)
        return msgspec.json.decode((await self._cards.public(agent, _CARD_VERSION)).body)

    def _report(self) -> Json:
        """Return the fields of the heartbeat: the load of the node, and no content from callers."""
        busy = self.exchange.result().execution.under_way
        return {
            "error_rate": self.window.rate,
            "sample_error": self.window.sample,
            "active_tasks": len(busy),
            "current_task": self.doing or (f"task {busy[-1]}" if busy else ""),
        }


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _peer_guard(given: NodeSettings, settings: Settings) -> Guard:
    """Return the guard for calls to peers. Allowed are public addresses, the networks that platforms use for nodes, and
    this machine if the node listens only here or its platform is on this machine."""
    here = {given.host, urlsplit(given.platform).hostname} & _LOOPBACK_HOSTS
    return Guard([*settings.allow_hosts, *(LOOPBACK if here else ())], private=True)
