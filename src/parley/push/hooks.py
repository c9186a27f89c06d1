"""Hooks: the addresses to which a run's updates are posted, and the progress of each receiver.

A hook is a record: its secrets are encrypted, `due` is the time at which it must be processed, and `at` the time of its
last progress. Every change is a swap, so that storing progress never restores a hook that a caller has deleted.
"""

from collections.abc import Collection
from typing import Literal, Protocol, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.errors import ConfigurationError, Conflict, HookNotFound, Invalid
from parley.ids import RunId, is_id, new_id
from parley.records import Moment, Place, Record, Records
from parley.runs.rules.state import Run

KIND = "push"
MAX_PER_RUN = 20
MAX_URL = 2048
MAX_SECRET = 4096
MAX_TRIES = 20
PAGE = 200
MAX_LOOKED_THROUGH = 10_000
ALWAYS = 2**62
AT_ONCE = 0
"""Due by any clock, also by the clock of a leader that is behind ours."""

Ended = Literal["finished", "gone", "dead"]
"""`finished`: every update was posted. `gone`: the receiver wants no more. `dead`: too many failed attempts."""
State = Literal["live", "retrying", "finished", "gone", "dead"]
STATES: tuple[State, ...] = get_args(State)


class Hook(Struct, frozen=True, omit_defaults=True):
    """An address to which a run's updates are posted, with its credentials."""

    task: str
    url: str
    id: str = ""
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None
    version: str = "1.0"
    """The A2A version in which the hook was requested, and in which updates are posted."""
    generations: bool = False
    """True if updates carry the generation of the task (A2A 1.1)."""

    @property
    def place(self) -> Place:
        return self.task, self.id

    @property
    def receiver(self) -> str:
        """The address as it may be shown and logged: without user, query and fragment."""
        return public_form(self.url)

    @property
    def origin(self) -> str:
        """The scheme, host and port of the address: hooks with the same origin are assumed to have the same
        receiver."""
        return "/".join(public_form(self.url).split("/", 3)[:3])


class StoredHook(Struct, frozen=True, omit_defaults=True):
    """A hook, the last event that its receiver got, and the number of failed attempts since then."""

    hook: Hook
    cursor: int = 0
    attempts: int = 0
    reason: str = ""
    """The receiver's response to the last failed attempt."""
    asked_s: float = 0.0
    """Seconds that the receiver asked to wait at that attempt."""
    ended: Ended | None = None
    rejected: int = 0
    """Number of updates that the receiver rejected for good; `reason` is its response to the last one."""


class HookEntry(Struct, frozen=True):
    """A hook together with its stored record."""

    record: Record
    kept: StoredHook

    @property
    def hook(self) -> Hook:
        return self.kept.hook

    @property
    def state(self) -> State:
        return self.kept.ended or ("retrying" if self.kept.attempts else "live")


class Seal(Protocol):
    """Encrypts data that must not be readable in the database."""

    def encrypt(self, secret: bytes) -> bytes: ...

    def decrypt(self, kept: bytes) -> bytes: ...


class Hooks:
    def __init__(self, records: Records, seal: Seal, clock: Clock = now_ms) -> None:
        self._records = records
        self._seal = seal
        self._clock = clock

    async def set(self, run: Run, hook: Hook, cursor: int, *, unless: Collection[State] = ()) -> Hook:
        """Store a hook that delivers the events after the cursor. Setting a live hook again changes its address and
        credentials, but not its progress.

        Does nothing if an equal hook, with this id or any other, is already stored in one of the states in `unless`.
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
        """Return a hook by its id, or the first hook if no id is given. Some clients of 0.3 use the id `default` for
        that."""
        record = await self._records.get(KIND, run, hook_id) if hook_id and is_id(hook_id) else None
        if record is None and hook_id in (None, "default"):
            record = next(iter(await self._records.list(KIND, run, limit=1)), None)
        if record is None:
            raise HookNotFound("The task has no such push notification configuration.")
        return self.opened(record).hook

    async def list(self, run: RunId, after: str, limit: int) -> list[Hook]:
        if after and not is_id(after):
            raise Invalid("pageToken is not valid: use the token of the previous page.", field="pageToken")
        return [self.opened(record).hook for record in await self._records.list(KIND, run, (run, after), limit)]

    async def remove(self, run: str, hook_id: str) -> None:
        await self._records.delete(KIND, run, hook_id)

    async def forget(self, run: RunId) -> None:
        """Delete all hooks of a run."""
        while records := await self._records.list(KIND, run):
            for record in records:
                await self._records.delete(KIND, run, record.id)

    async def entry(self, run: str, hook_id: str) -> HookEntry | None:
        record = await self._records.get(KIND, run, hook_id)
        return None if record is None else self.opened(record)

    async def page(
        self, after: Place, *, dead: bool = False, limit: int = PAGE
    ) -> "tuple[list[HookEntry], Place | None]":
        """Return a page of all hooks, or only of those given up (dead), and the position of the next page. Hooks that
        this process cannot decrypt are left out. A page may be short, because the number of hooks it examines is
        limited."""
        found: list[HookEntry] = []
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

    async def save(self, entry: HookEntry, kept: StoredHook, due: int | None) -> HookEntry | None:
        """Store progress. Return the new entry; None when another writer changed or deleted the hook meanwhile."""
        at = self._clock() if kept.cursor != entry.kept.cursor else entry.record.at
        body = entry.record.body if kept == entry.kept else self._sealed(kept)
        record = Record(KIND, *kept.hook.place, body, at, due)
        return HookEntry(record, kept) if await self._records.swap(entry.record, record) else None

    async def postpone(self, record: Record, due: int) -> None:
        """Set a later due time without reading the body."""
        await self._records.swap(record, replace(record, due=due))

    async def redrive(self, run: str, hook_id: str) -> HookEntry:
        """Continue at once after the last delivered event, regardless of failed attempts."""
        for _ in range(MAX_TRIES):
            entry = await self.entry(run, hook_id) if is_id(run) and is_id(hook_id) else None
            if entry is None:
                raise HookNotFound("The task has no such push notification configuration.")
            if entry.kept.ended == "finished":
                raise Conflict("There is nothing left to deliver: the receiver got every update of the task.")
            kept = replace(entry.kept, attempts=0, ended=None)
            if saved := await self.save(entry, kept, self._clock()):
                return saved
        raise Conflict("Other requests are changing the configuration; try again.")

    def _readable(self, record: Record) -> HookEntry | None:
        try:
            return self.opened(record)
        except ConfigurationError:
            return None

    def opened(self, record: Record) -> HookEntry:
        return HookEntry(record, _decode(self._seal.decrypt(record.body)))

    async def _set(self, hook: Hook, cursor: int, *, told: bool) -> None:
        for _ in range(MAX_TRIES):
            old = await self.entry(*hook.place)
            if old is not None and old.kept.ended is None:
                kept = StoredHook(hook, old.kept.cursor)
            else:
                kept = StoredHook(hook, cursor, ended="finished" if told else None)
            due = None if kept.ended else AT_ONCE
            if old is None:
                record = Record(KIND, *hook.place, self._sealed(kept), self._clock(), due)
                if await self._records.add(record):
                    return
            elif await self.save(old, kept, due):
                return
        raise Conflict("Other requests are changing the configuration; try again.")

    def _sealed(self, kept: StoredHook) -> bytes:
        return self._seal.encrypt(_encode(kept))


def check_hook(hook: Hook) -> None:
    if not hook.url.startswith(("http://", "https://")) or len(hook.url) > MAX_URL or not hook.url.isprintable():
        raise Invalid(f"A push notification needs an http or https url of at most {MAX_URL} characters.", field="url")
    if hook.id and not is_id(hook.id):
        raise Invalid("A configuration's id must have 1 to 128 letters, digits or ._:@/+=~-", field="id")
    for secret in (hook.token, hook.credentials, *hook.schemes):
        if secret is not None and not (len(secret) <= MAX_SECRET and secret.isprintable() and secret.isascii()):
            raise Invalid(
                f"A token or credential may have at most {MAX_SECRET} printable ASCII characters.", field="token"
            )


def public_form(url: str) -> str:
    """Return an address without user, query and fragment."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "unreadable"
    return f"{parts.scheme}://{host}{port}{parts.path}"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredHook).decode
