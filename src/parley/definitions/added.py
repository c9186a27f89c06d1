"""Agents that are added while a server runs: kept with the keys, so that every replica serves them, also tomorrow."""

from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.core.agents import Agent
from parley.definitions.agents import build, drafted
from parley.definitions.documents import MAX_BYTES, together
from parley.definitions.imports import Imports
from parley.definitions.kind import Kinds, Site
from parley.definitions.kinds import KINDS
from parley.definitions.yamls import parse_yaml
from parley.drivers.remote import Outside, RemoteDriver
from parley.engine.exchange import Exchange
from parley.engine.ports import Driver, Record, Records
from parley.errors import ConfigurationError, DefinitionForbidden, DefinitionInvalid, NameTaken, NotFound
from parley.security.netguard import Guard, GuardedTransport, check_places
from parley.telemetry import tell

KIND = "agent"
FILE = "definition"
LOOK_S = 2.0
"""How soon a replica serves what was added at another."""
MOST = 1000
_ABROAD = ("remote", "edge")
"""Drivers that do nothing on this machine but call and be called."""
_SECRETS = ("token_from",)


class _Kept(Struct, frozen=True):
    body: bytes
    driver: Driver


class Added:
    def __init__(
        self, exchange: Exchange, records: Records, *, guard: Guard | None, kinds: Kinds = KINDS, clock: Clock = now_ms
    ) -> None:
        """`guard` decides which addresses added agents may have. None: those who add agents sit at this machine, and
        may name its programs, files, secrets and addresses."""
        self._exchange = exchange
        self._records = records
        self._guard = guard
        self._outside = None if guard is None else Outside(lambda: GuardedTransport(guard))
        self._kinds = kinds
        self._clock = clock
        self._served: dict[str, _Kept] = {}

    def __contains__(self, slug: str) -> bool:
        return slug in self._served

    async def add(self, text: str, slug: str | None = None) -> Agent:
        """Serve what a definition describes, here at once and elsewhere soon. `slug` is for one that names none."""
        driver = self._driver(text, slug)
        if self._guard is not None and isinstance(driver, RemoteDriver):
            await check_places(self._guard, driver.url)
        name, body = driver.agent.slug, (text if slug is None else f"{text.rstrip()}\nslug: {slug}\n").encode()
        if name in self._exchange.agents or not await self._records.add(Record(KIND, "", name, body, self._clock())):
            raise NameTaken(f"There is an agent {name} already.", field="slug")
        self._served[name] = _Kept(body, driver)
        self._apply()
        tell("agents.added", agent=name)
        return self._exchange.agent(name)

    async def remove(self, slug: str) -> None:
        """Its runs stay. What waits for it waits until there is one of this name again."""
        if not await self._records.delete(KIND, "", slug):
            raise NotFound(f"The agent {slug} was not added here: it goes when its definition does.")
        self._served.pop(slug, None)
        self._apply()
        tell("agents.removed", agent=slug)

    async def tick(self) -> None:
        """Serve what is kept now, whoever added it. What cannot be served is told and left out."""
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


def _check_abroad(kind: str, value: dict[str, Any]) -> None:
    options = value.get(kind)
    named = [name for name in _SECRETS if isinstance(options, dict) and name in options]
    if kind in _ABROAD and not value.get("mcp") and not named:
        return
    raise DefinitionForbidden(
        "On a server that is reached over a network only agents with the driver remote or edge are added like this, "
        "and they name no tools and no secrets. Write a file for any other."
    )
