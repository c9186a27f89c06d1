"""Agents that are added while a server runs. They are stored, so that every replica serves them, also after a restart.

They are in the same store as the API keys."""

from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from parley.audit.service import record
from parley.clock import Clock, now_ms
from parley.definitions.agents import KINDS, build, drafted
from parley.definitions.files import MAX_BYTES, parse_yaml, together
from parley.drivers.kind import Imports, Kinds, Site
from parley.drivers.remote import OutboundConnections, RemoteDriver
from parley.errors import ConfigurationError, DefinitionForbidden, DefinitionInvalid, NameTaken, NotFound
from parley.execution.driver import Driver
from parley.records import Record, Records
from parley.runs.rules.agents import Agent
from parley.runs.service import Exchange
from parley.security.netguard import Guard, GuardedTransport, check_places
from parley.telemetry import tell

KIND = "agent"
FILE = "definition"
LOOK_S = 2.0
"""Interval at which a replica looks for agents that were added at another replica."""
MOST = 1000
_ABROAD = ("remote", "edge")
"""Drivers that run nothing on this machine: they only make and receive calls."""
_SECRETS = ("token_from",)


class _Kept(Struct, frozen=True):
    body: bytes
    driver: Driver


class Added:
    def __init__(
        self, exchange: Exchange, records: Records, *, guard: Guard | None, kinds: Kinds = KINDS, clock: Clock = now_ms
    ) -> None:
        """`guard` decides which URLs added agents may have. None: agents are added only by users of this machine, and
        may use its programs, files, secrets and addresses."""
        self._exchange = exchange
        self._records = records
        self._guard = guard
        self._outside = None if guard is None else OutboundConnections(lambda: GuardedTransport(guard))
        self._kinds = kinds
        self._clock = clock
        self._served: dict[str, _Kept] = {}

    def __contains__(self, slug: str) -> bool:
        return slug in self._served

    async def add(self, text: str, slug: str | None = None) -> Agent:
        """Serve the agent of a definition: at once on this replica, and soon on the others. `slug` is used if the
        definition has none."""
        driver = self._driver(text, slug)
        if self._guard is not None and isinstance(driver, RemoteDriver):
            await check_places(self._guard, driver.url)
        name, body = driver.agent.slug, (text if slug is None else f"{text.rstrip()}\nslug: {slug}\n").encode()
        if name in self._exchange.agents or not await self._records.add(Record(KIND, "", name, body, self._clock())):
            raise NameTaken(f"Agent {name} already exists; choose another slug.", field="slug")
        self._served[name] = _Kept(body, driver)
        self._apply()
        tell("agents.added", agent=name)
        await record("agent.added", "agent", name)
        return self._exchange.agent(name)

    async def remove(self, slug: str) -> None:
        """Remove an added agent. Its runs are kept; waiting runs wait until an agent with this slug exists again."""
        if not await self._records.delete(KIND, "", slug):
            raise NotFound(f"Agent {slug} was not added to the running server; to remove it, delete its definition.")
        self._served.pop(slug, None)
        self._apply()
        tell("agents.removed", agent=slug)
        await record("agent.removed", "agent", slug)

    async def tick(self) -> None:
        """Serve the agents that are stored now, whichever replica added them. Agents that cannot be served are logged
        and left out."""
        kept = {record.id: record.body for record in await self._records.list(KIND, "", limit=MOST)}
        if kept == {slug: one.body for slug, one in self._served.items()}:
            return
        self._served = {slug: one for slug, body in kept.items() if (one := self._made(slug, body))}
        self._apply()

    async def close(self) -> None:
        """Close the connections of added agents."""
        if self._outside is not None:
            async with self._outside.kept():
                pass

    def _made(self, slug: str, body: bytes) -> _Kept | None:
        before = self._served.get(slug)
        if before is not None and before.body == body:
            return before
        try:
            return _Kept(body, self._driver(body.decode(), None))
        except (DefinitionInvalid, DefinitionForbidden) as error:
            tell("agents.refused", agent=slug, message=error.message)
            return None

    def _apply(self) -> None:
        agents = self._exchange.agents
        agents.guests = {slug: one.driver for slug, one in self._served.items()}
        self._exchange.replace(agents.hosts)

    def _driver(self, text: str, slug: str | None) -> Driver:
        if len(text.encode()) > MAX_BYTES:
            raise DefinitionInvalid(f"The definition is larger than {MAX_BYTES // 1024} kB.")
        try:
            document, faults = parse_yaml(FILE, text)
            draft = drafted(document, self._kinds, slug, faults)
            if draft is None or faults:
                raise together(faults)
            if self._guard is not None:
                _check_abroad(draft.kind, cast(dict[str, Any], document.value))
            return build(draft, self._kinds[draft.kind], Site(Path.cwd(), Imports(), self._outside))
        except ConfigurationError as error:
            raise DefinitionInvalid(error.message) from None


# Why: docs/decisions/console.md#let-remote-administrators-add-only-agents-that-run-nothing-here
def _check_abroad(kind: str, value: dict[str, Any]) -> None:
    options = value.get(kind)
    named = [name for name in _SECRETS if isinstance(options, dict) and name in options]
    if kind in _ABROAD and not value.get("mcp") and not named:
        return
    raise DefinitionForbidden(
        "Only agents with the driver remote or edge, without tools and secrets, can be added to a server that is "
        "reachable over a network. Define other agents in a file on the server."
    )
