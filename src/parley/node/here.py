"""A node at work: its exchange, its server, and what it says to its platform and asks of its peers."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import msgspec
from pydantic import SecretStr

from parley.app import open_a2a, open_exchange, open_records
from parley.core.events import Event
from parley.core.runs import Run
from parley.engine.exchange import Exchange
from parley.engine.ports import Driver
from parley.faces.a2a.card import Cards
from parley.faces.tracing import OTHER
from parley.listening import Listening, bind, url_of
from parley.node.attending import Attendance
from parley.node.delegating import Delegations, is_failure
from parley.node.entrance import PairEntrance
from parley.node.kept import Kept
from parley.node.peers import Peers
from parley.node.platform import Platform
from parley.node.settings import NodeSettings, server_settings
from parley.node.verifying import PairVerifier
from parley.node.window import ErrorWindow
from parley.node.words import Json
from parley.security.credentials import Credentials
from parley.security.keys import ApiKeys
from parley.security.netguard import LOOPBACK, Guard
from parley.settings import Settings

_MOVES = frozenset(("started", "completed", "failed", "canceled", "input_required", "auth_required", "rejected"))
Changed = Callable[[Run, Sequence[Event]], None]
_HERE = frozenset(("127.0.0.1", "::1", "localhost"))
_CARD_VERSION = "0.3"
"""With the fields of both generations."""


class Here:
    """What an agent may use is there before the first turn begins: one may be taken up again at the start."""

    def __init__(self, said: NodeSettings, slug: str) -> None:
        self._said = said
        self._slug = slug
        self.settings = server_settings(said, slug)
        self.listener = bind(said.host, said.port)
        self.url = (said.url or url_of(self.listener)).rstrip("/")
        self.platform = Platform(
            said.platform, Kept(said.data_dir), said.id, token=_shown(said.token),
            registration_token=_shown(said.registration_token),
        )  # fmt: skip
        self.window = ErrorWindow()
        self.exchange: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()
        self.attendance = Attendance(
            self.platform, self.url, said.name, self._describe, self._report, said.heartbeat_s
        )  # fmt: skip
        self.peers = Peers(self.platform, self.attendance.registered)
        self.delegations = Delegations(self.exchange, self.peers, self.window, _peer_guard(said, self.settings))
        self.doing = ""
        self._cards: Cards | None = None

    async def open(self, stack: AsyncExitStack, drivers: Sequence[Driver], *, signals: bool = True) -> Listening:
        """The server, ready to listen; all of it is closed with the stack."""
        stack.callback(self.listener.close)
        stack.push_async_callback(self.platform.close)
        stack.push_async_callback(self.delegations.close)
        exchange = await stack.enter_async_context(open_exchange(self.settings, drivers))
        records = await stack.enter_async_context(open_records(self.settings))
        verifier = self._verifier()
        stack.push_async_callback(verifier.close)
        entrance = PairEntrance(verifier, Credentials(ApiKeys(records)))
        app, self._cards = await stack.enter_async_context(
            open_a2a(exchange, self.settings, records, self.url, entrance, self._answered)
        )  # fmt: skip
        exchange.on_change = _both(exchange.on_change, self._changed)
        self.exchange.set_result(exchange)
        for loop in (self.attendance, self.peers):
            loop.start()
            stack.push_async_callback(loop.close)
        words = f"Node {self.platform.id} listens on {self.url}"
        return Listening(app, lambda: print(words, file=sys.stderr, flush=True), signals=signals)

    def _verifier(self) -> PairVerifier:
        issuer, platform = self._said.issuer or self.platform.url, self.platform
        token = (lambda: platform.token) if self._said.introspect else None
        return PairVerifier(issuer, platform.id, at=platform.url, token=token)

    def _answered(self, route: str, status: int, seconds: float) -> None:
        """Whoever asks for a card, or for what is not there, is not asking the agent."""
        if route != OTHER and not route.endswith(".json"):
            self.window.answered(status, "this node")

    def _changed(self, run: Run, events: Sequence[Event]) -> None:
        self.delegations.changed(run)
        for event in events:
            failure = is_failure(event)
            if failure:
                self.window.failed(f"a task failed: {failure}")
            elif failure is not None:
                self.window.answered(200)
            if event.type in _MOVES:
                self.attendance.nudge()

    async def _describe(self) -> Json:
        assert self._cards is not None
        agent = self.exchange.result().agent(self._slug)
        return msgspec.json.decode((await self._cards.public(agent, _CARD_VERSION)).body)

    def _report(self) -> Json:
        """What others may know: how much there is to do, not what was said in confidence."""
        busy = self.exchange.result().execution.under_way
        return {
            "error_rate": self.window.rate, "sample_error": self.window.sample, "active_tasks": len(busy),
            "current_task": self.doing or (f"task {busy[-1]}" if busy else ""),
        }  # fmt: skip


def _both(first: Changed | None, second: Changed) -> Changed:
    if first is None:
        return second

    def changed(run: Run, events: Sequence[Event]) -> None:
        first(run, events)
        second(run, events)

    return changed


def _shown(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _peer_guard(said: NodeSettings, settings: Settings) -> Guard:
    """Peers are where their platform says: at public addresses, in the networks that platforms give to nodes, and on
    this machine if the node listens here alone, or its platform is here."""
    here = {said.host, urlsplit(said.platform).hostname} & _HERE
    return Guard([*settings.allow_hosts, *(LOOPBACK if here else ())], private=True)
