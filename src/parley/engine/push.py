"""Push notifications: whoever asked to be told of a run's updates is told, in order, until the run has ended.

What was delivered is recorded beside the address, so that a restart or another replica goes on from there. A slow or
dead receiver delays nobody: each has a task of its own, and no stream waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.clock import now_ms
from parley.core.events import Event
from parley.core.runs import Run
from parley.engine.membership import Loop
from parley.engine.ports import Record, Records
from parley.engine.streams import Follower
from parley.errors import HookNotFound, Invalid, ParleyError, RunNotFound, StaleCursor
from parley.ids import RunId, is_id, new_id
from parley.telemetry import tell

KIND = "push"
SWEEP_S = 1.0
BACKOFF_S = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 900.0)
MAX_ATTEMPTS = 12
MAX_PER_RUN = 20
MAX_URL = 2048
MAX_SECRET = 4096


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


class _Kept(Struct, frozen=True, omit_defaults=True):
    """A hook, how far its receiver has been told, and how often in vain since."""

    hook: Hook
    cursor: int = 0
    attempts: int = 0
    given_up: bool = False


class Seal(Protocol):
    """Keeps what must not be read in the database."""

    def encrypt(self, secret: bytes) -> bytes: ...

    def decrypt(self, kept: bytes) -> bytes: ...


Deliver = Callable[[Hook, Run, Event], Awaitable[bool]]
"""Posts one update; False when it is to be tried again."""
Follow = Callable[[RunId, int], Awaitable[Follower]]
State = Callable[[RunId], Awaitable[Run]]


class Push:
    def __init__(
        self, records: Records, seal: Seal, follow: Follow, state: State, deliver: Deliver, leads: Callable[[], bool]
    ) -> None:
        self._records = records
        self._seal = seal
        self._follow = follow
        self._state = state
        self._deliver = deliver
        self._leads = leads
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._loop = Loop("push", SWEEP_S, self.tick)

    def start(self) -> None:
        self._loop.start()

    async def close(self) -> None:
        await self._loop.stop()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def add(self, run: Run, hook: Hook) -> Hook:
        """Updates are told from now on; what stands already, the caller has seen."""
        check_hook(hook)
        taken = [record.id for record in await self._records.list(KIND, run.id, limit=MAX_PER_RUN)]
        if len(taken) == MAX_PER_RUN and hook.id not in taken:
            raise Invalid(f"A task has at most {MAX_PER_RUN} push notification configurations.", field="id")
        # Clients of 0.3 look for a configuration that they did not name under the name of its task.
        hook = replace(hook, task=run.id, id=hook.id or (new_id() if run.id in taken else run.id))
        await self._put(_Kept(hook, run.version), None if run.ended else now_ms())
        if not run.ended and self._leads():
            self._begin(run.id, hook.id)
        return hook

    async def get(self, run: RunId, hook_id: str | None) -> Hook:
        """By its id; or the first, where none is named, or `default` as some clients of 0.3 say for that."""
        record = await self._records.get(KIND, run, hook_id) if hook_id and is_id(hook_id) else None
        if record is None and hook_id in (None, "default"):
            record = next(iter(await self._records.list(KIND, run, limit=1)), None)
        if record is None:
            raise HookNotFound("The task has no such push notification configuration.")
        return self._opened(record).hook

    async def list(self, run: RunId, after: str, limit: int) -> list[Hook]:
        if after and not is_id(after):
            raise Invalid("pageToken is not one that this server gave out.", field="pageToken")
        records = await self._records.list(KIND, run, (run, after), limit)
        return [self._opened(record).hook for record in records]

    async def remove(self, run: RunId, hook_id: str) -> None:
        """Also when there is none: what is wanted holds."""
        if not is_id(hook_id):
            return
        task = self._tasks.pop((run, hook_id), None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._records.delete(KIND, run, hook_id)

    async def tick(self) -> None:
        """One round: the leader takes up what nobody is delivering."""
        if not self._leads():
            return
        for record in await self._records.due(KIND, now_ms(), len(self._tasks) + 100):
            self._begin(record.scope, record.id)

    def _begin(self, run: str, hook_id: str) -> None:
        place = (run, hook_id)
        if place not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._tell_all(RunId(run), hook_id))
            self._tasks[place] = task
            task.add_done_callback(lambda done: self._tasks.pop(place, None) if self._tasks.get(place) is done else 0)

    async def _tell_all(self, run: RunId, hook_id: str) -> None:
        """Deliver until the run has ended or the receiver refuses; the latter is tried again later."""
        record = await self._records.get(KIND, run, hook_id)
        if record is None or record.due is None:
            return None
        kept = self._opened(record)
        try:
            state = await self._state(run)
            with await self._follow(run, kept.cursor) as follower:
                while not (state.ended and follower.cursor >= state.version):
                    for event in await follower.next():
                        if not await self._deliver(kept.hook, state, event):
                            return await self._put_off(kept)
                        kept = replace(kept, cursor=event.seq, attempts=0)
                    await self._put(kept, now_ms())
                    state = await self._state(run)
            await self._put(kept, None)
        except (StaleCursor, RunNotFound):
            await self._put(kept, None)
        except ParleyError as error:
            tell("push.broken", run=run, code=error.code)

    async def _put_off(self, kept: _Kept) -> None:
        attempts = kept.attempts + 1
        given_up = attempts >= MAX_ATTEMPTS
        tell("push.refused", run=kept.hook.task, hook=kept.hook.id, attempts=attempts, given_up=given_up)
        wait_s = BACKOFF_S[min(attempts, len(BACKOFF_S)) - 1]
        due = None if given_up else now_ms() + int(wait_s * 1000)
        await self._put(replace(kept, attempts=attempts, given_up=given_up), due)

    async def _put(self, kept: _Kept, due: int | None) -> None:
        body = self._seal.encrypt(_encode(kept))
        await self._records.put(Record(KIND, kept.hook.task, kept.hook.id, body, now_ms(), due))

    def _opened(self, record: Record) -> _Kept:
        return _decode(self._seal.decrypt(record.body))


def check_hook(hook: Hook) -> None:
    if not hook.url.startswith(("http://", "https://")) or len(hook.url) > MAX_URL or not hook.url.isprintable():
        raise Invalid(f"A push notification needs an http or https url of at most {MAX_URL} characters.", field="url")
    if hook.id and not is_id(hook.id):
        raise Invalid("A configuration's id has 1 to 128 letters, digits or ._:@/+=~-", field="id")
    for secret in (hook.token, hook.credentials, *hook.schemes):
        if secret is not None and not (len(secret) <= MAX_SECRET and secret.isprintable() and secret.isascii()):
            raise Invalid(f"A token or credential has at most {MAX_SECRET} printable ASCII characters.", field="token")


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode
