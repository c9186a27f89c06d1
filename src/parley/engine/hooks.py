"""Where a run's updates are to be posted to, and how far each receiver has been told.

A hook is a record: its secrets encrypted, its `due` the time at which somebody has to look after it, its `at` the time
of its last progress. Whoever changes one swaps it, so that progress never brings back what a caller deleted.
"""

from collections.abc import Collection
from typing import Literal, Protocol, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.core.runs import Run
from parley.engine.ports import Moment, Place, Record, Records
from parley.errors import ConfigurationError, Conflict, HookNotFound, Invalid
from parley.ids import RunId, is_id, new_id

KIND = "push"
MAX_PER_RUN = 20
MAX_URL = 2048
MAX_SECRET = 4096
MAX_TRIES = 20
PAGE = 200
MAX_LOOKED_THROUGH = 10_000
ALWAYS = 2**62
AT_ONCE = 0
"""Due by any clock, also by a leader's that is behind ours."""

Ended = Literal["finished", "gone", "dead"]
"""All of its run was told; the receiver wants no more; the receiver was asked in vain too often."""
State = Literal["live", "retrying", "finished", "gone", "dead"]
STATES: tuple[State, ...] = get_args(State)


class Hook(Struct, frozen=True, omit_defaults=True):
    """Where a run's updates are to be posted to, and with what."""

    task: str
    url: str
    id: str = ""
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None
    version: str = "1.0"
    """The version of A2A that it was asked for in, and is spoken to."""

    @property
    def place(self) -> Place:
        return self.task, self.id

    @property
    def receiver(self) -> str:
        """The address as it may be shown and logged: without user, query and fragment."""
        return public_form(self.url)

    @property
    def origin(self) -> str:
        """Who answers there, as far as an address can say it."""
        return "/".join(public_form(self.url).split("/", 3)[:3])


class Kept(Struct, frozen=True, omit_defaults=True):
    """A hook, how far its receiver has been told, and how often in vain since."""

    hook: Hook
    cursor: int = 0
    attempts: int = 0
    reason: str = ""
    """What the receiver said to the last attempt in vain."""
    asked_s: float = 0.0
    """How long it asked to be left alone then."""
    ended: Ended | None = None
    rejected: int = 0
    """How many updates the receiver refused for good; `reason` says what it answered to the last one."""


class Entry(Struct, frozen=True):
    """A hook as it lies in the store."""

    record: Record
    kept: Kept

    @property
    def hook(self) -> Hook:
        return self.kept.hook

    @property
    def state(self) -> State:
        return self.kept.ended or ("retrying" if self.kept.attempts else "live")


class Seal(Protocol):
    """Keeps what must not be read in the database."""

    def encrypt(self, secret: bytes) -> bytes: ...

    def decrypt(self, kept: bytes) -> bytes: ...


class Hooks:
    def __init__(self, records: Records, seal: Seal, clock: Clock = now_ms) -> None:
        self._records = records
        self._seal = seal
        self._clock = clock

    async def set(self, run: Run, hook: Hook, cursor: int, *, unless: Collection[State] = ()) -> Hook:
        """Tell what comes after the cursor. Setting a live hook again changes where and with what, not how far.

        `unless` there is the same already, by this or any name, in one of these states.
        """
        there = [self.opened(record) for record in await self._records.list(KIND, run.id, limit=MAX_PER_RUN)]
        hook = replace(hook, task=run.id)
        for entry in there:
            if entry.state in unless and entry.hook == replace(hook, id=hook.id or entry.hook.id):
                return entry.hook
        taken = {entry.hook.id for entry in there}
        if len(taken) == MAX_PER_RUN and hook.id not in taken:
            raise Invalid(f"A task has at most {MAX_PER_RUN} push notification configurations.", field="id")
        # Clients of 0.3 look for a configuration that they did not name under the name of its task.
        hook = replace(hook, id=hook.id or (new_id() if run.id in taken else run.id))
        await self._set(hook, cursor, told=run.ended and cursor >= run.version)
        return hook

    async def get(self, run: RunId, hook_id: str | None) -> Hook:
        """By its id; or the first, where none is named, or `default` as some clients of 0.3 say for that."""
        record = await self._records.get(KIND, run, hook_id) if hook_id and is_id(hook_id) else None
        if record is None and hook_id in (None, "default"):
            record = next(iter(await self._records.list(KIND, run, limit=1)), None)
        if record is None:
            raise HookNotFound("The task has no such push notification configuration.")
        return self.opened(record).hook

    async def list(self, run: RunId, after: str, limit: int) -> list[Hook]:
        if after and not is_id(after):
            raise Invalid("pageToken is not one that this server gave out.", field="pageToken")
        return [self.opened(record).hook for record in await self._records.list(KIND, run, (run, after), limit)]

    async def remove(self, run: str, hook_id: str) -> None:
        await self._records.delete(KIND, run, hook_id)

    async def forget(self, run: RunId) -> None:
        """All of a run's."""
        while records := await self._records.list(KIND, run):
            for record in records:
                await self._records.delete(KIND, run, record.id)

    async def entry(self, run: str, hook_id: str) -> Entry | None:
        record = await self._records.get(KIND, run, hook_id)
        return None if record is None else self.opened(record)

    async def page(self, after: Place, *, dead: bool = False, limit: int = PAGE) -> "tuple[list[Entry], Place | None]":
        """Everybody's, or only those that were given up, and where to go on. What this process cannot decrypt is left
        out; a page may be short because many were looked through."""
        found: list[Entry] = []
        for _ in range(MAX_LOOKED_THROUGH // PAGE):
            records = await self._records.list(KIND, None, after, PAGE)
            for record in records:
                after = (record.scope, record.id)
                entry = self._readable(record)
                if entry is not None and (not dead or entry.kept.ended == "dead"):
                    found.append(entry)
                    if len(found) == limit:
                        return found, after
            if len(records) < PAGE:
                return found, None
        return found, after

    async def due(self, now: int, limit: int, after: Moment = (-1, "", "")) -> "list[Record]":
        return await self._records.due(KIND, now, limit, after)

    async def save(self, entry: Entry, kept: Kept, due: int | None) -> Entry | None:
        """What became of it; None when somebody else changed or deleted it meanwhile."""
        at = self._clock() if kept.cursor != entry.kept.cursor else entry.record.at
        body = entry.record.body if kept == entry.kept else self._sealed(kept)
        record = Record(KIND, *kept.hook.place, body, at, due)
        return Entry(record, kept) if await self._records.swap(entry.record, record) else None

    async def postpone(self, record: Record, due: int) -> None:
        """Look after it later, whatever it holds."""
        await self._records.swap(record, replace(record, due=due))

    async def redrive(self, run: str, hook_id: str) -> Entry:
        """Go on at once from where the receiver was told last, however often it was asked in vain."""
        for _ in range(MAX_TRIES):
            entry = await self.entry(run, hook_id) if is_id(run) and is_id(hook_id) else None
            if entry is None:
                raise HookNotFound("The task has no such push notification configuration.")
            if entry.kept.ended == "finished":
                raise Conflict("There is nothing left to deliver: the receiver was told all of the task.")
            kept = replace(entry.kept, attempts=0, ended=None)
            if saved := await self.save(entry, kept, self._clock()):
                return saved
        raise Conflict("The configuration is being changed by others; try again.")

    def _readable(self, record: Record) -> Entry | None:
        try:
            return self.opened(record)
        except ConfigurationError:
            return None

    def opened(self, record: Record) -> Entry:
        return Entry(record, _decode(self._seal.decrypt(record.body)))

    async def _set(self, hook: Hook, cursor: int, *, told: bool) -> None:
        for _ in range(MAX_TRIES):
            old = await self.entry(*hook.place)
            if old is not None and old.kept.ended is None:
                kept = Kept(hook, old.kept.cursor)
            else:
                kept = Kept(hook, cursor, ended="finished" if told else None)
            due = None if kept.ended else AT_ONCE
            if old is None:
                record = Record(KIND, *hook.place, self._sealed(kept), self._clock(), due)
                if await self._records.add(record):
                    return
            elif await self.save(old, kept, due):
                return
        raise Conflict("The configuration is being changed by others; try again.")

    def _sealed(self, kept: Kept) -> bytes:
        return self._seal.encrypt(_encode(kept))


def check_hook(hook: Hook) -> None:
    if not hook.url.startswith(("http://", "https://")) or len(hook.url) > MAX_URL or not hook.url.isprintable():
        raise Invalid(f"A push notification needs an http or https url of at most {MAX_URL} characters.", field="url")
    if hook.id and not is_id(hook.id):
        raise Invalid("A configuration's id has 1 to 128 letters, digits or ._:@/+=~-", field="id")
    for secret in (hook.token, hook.credentials, *hook.schemes):
        if secret is not None and not (len(secret) <= MAX_SECRET and secret.isprintable() and secret.isascii()):
            raise Invalid(f"A token or credential has at most {MAX_SECRET} printable ASCII characters.", field="token")


def public_form(url: str) -> str:
    """An address without user, query and fragment."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "unreadable"
    return f"{parts.scheme}://{host}{port}{parts.path}"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Kept).decode
