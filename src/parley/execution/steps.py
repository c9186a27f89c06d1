"""Durable steps: the result of each step of a turn is an event, and a resumed turn returns it instead of working
again."""

import asyncio
import hashlib
import inspect
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Protocol, cast, get_type_hints

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.clock import Clock, Monotonic, iso, now_ms
from parley.errors import AgentError, RecordedFailure, StepFailed, StepNotStorable, StepOrderChanged, StepOutsideTurn
from parley.runs.rules.content import Part, Parts, text_part
from parley.runs.rules.events import Event, Progress, StepRecord

INLINE_BYTES = 32 * 1024
"""A larger result is stored as a blob."""
BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
SUSPEND_S = 1.0
"""A sleep that lasts longer than this releases the run: no process and no slot is held meanwhile."""
MAX_NAME = 200

Load = Callable[[Parts], Awaitable[Parts]]
Guard = Callable[[], Awaitable[None]]
"""Raises BudgetExceeded if the run may spend nothing more."""


async def unguarded() -> None:
    """Guard of a turn without budgets."""


class StepJournal(Protocol):
    """Stores the records of steps in the log of the run."""

    def record(self, progress: Progress) -> Awaitable[object]:
        """Write a record; awaiting the result waits until it is durable. Raise if this executor no longer holds the
        run."""
        ...

    async def kept(self, parts: Parts) -> Parts:
        """Return the parts with references in place of large contents."""
        ...

    async def loaded(self, parts: Parts) -> Parts: ...


class Suspension(BaseException):
    """Ends the agent's code for a sleep until `due` (ms). Not an Exception, so that `except Exception` does not catch
    it."""

    def __init__(self, due: int) -> None:
        super().__init__(due)
        self.due = due


def suspension_in(errors: BaseExceptionGroup[BaseException]) -> Suspension | None:
    """Return the suspension among the exceptions of a task group, if there is one."""
    found = errors.subgroup(Suspension)
    while found is not None:
        first = found.exceptions[0]
        if isinstance(first, Suspension):
            return first
        found = first
    return None


class StepCall(Struct, frozen=True):
    """A call of `turn.step`: its place among the steps of the turn, and its unique name. A step with a key has no
    place: its name alone identifies it, in all turns of the run."""

    number: int
    name: str
    retries: int = 0
    timeout_s: float | None = None
    backoff_s: float = BACKOFF_S
    shown: bool = True


KEYED = 0
"""The number of steps that are found by their name."""
_WITHIN: ContextVar[str] = ContextVar("within_step", default="")
"""Name of the keyed step whose work is running. Steps inside it are keyed too, because they do not run again when its
result is recorded."""


# Why: docs/decisions/execution.md#record-a-durable-step-when-it-ends
class Steps:
    """The durable steps of one turn."""

    def __init__(
        self,
        turn: int,
        events: Iterable[Event],
        journal: StepJournal,
        *,
        shown: bool = True,
        clock: Clock = now_ms,
        monotonic: Monotonic = time.monotonic,
        guard: Guard = unguarded,
    ) -> None:
        self._guard = guard
        self._turn = turn
        self._journal = journal
        self._shown = shown
        self._clock = clock
        self._monotonic = monotonic
        self._events = events
        self._names: Counter[str] = Counter()
        self._fresh: dict[str, StepRecord] = {}
        self._number = 0
        self._closed = False

    @cached_property
    def _recorded(self) -> dict[int, list[StepRecord]]:
        """Records from before the turn was interrupted. Read at the first step: most agents have none."""
        return recorded_steps(self._turn, self._events)

    @cached_property
    def _keyed(self) -> dict[str, StepRecord]:
        """The last record of each keyed step, from all turns of the run."""
        records = (event.payload.step for event in self._events if isinstance(event.payload, Progress))
        return {record.name: record for record in records if record is not None and record.number == KEYED}

    def close(self) -> None:
        """Refuse further steps, because the turn has ended."""
        self._closed = True

    async def run(
        self,
        name: str,
        work: Callable[..., Any],
        args: tuple[object, ...],
        retries: int,
        timeout_s: float | None,
        backoff_s: float,
        key: str | None = None,
        shown: bool = True,
    ) -> Any:
        """Return the result of a step: the recorded one, or the one of the work."""
        number, unique = self._next(name) if key is None else (KEYED, self._with_key(name, key))
        call = StepCall(number, unique, retries, timeout_s, backoff_s, shown)
        before = self._before(call)
        if before is None or not before.final:
            await self._guard()
            before = await self._attempts(call, work, args, before)
        if before.code:
            raise _failure(before)
        body = _inline_body(before) or await self._loaded_body(before)
        return _decoded(body, work)

    async def sleep(self, seconds: float) -> None:
        """Sleep until a recorded time. A long sleep suspends the run."""
        number, name = self._next("sleep")
        call = StepCall(number, name)
        record = self._before(call)
        if record is None:
            due = self._clock() + round(max(0.0, seconds) * 1000)
            record = StepRecord(self._turn, number, name, due=due)
            await self._record(record, f"Sleeping until {iso(due)}.")
        left = (record.due - self._clock()) / 1000
        if left > SUSPEND_S:
            raise Suspension(record.due)
        if left > 0:
            await asyncio.sleep(left)

    async def now(self) -> int:
        """Return the time (ms) at which this call was first made."""
        number, name = self._next("now")
        record = self._before(StepCall(number, name))
        if record is None:
            output = Part(data=Raw(str(self._clock()).encode()))
            record = StepRecord(self._turn, number, name, output=output)
            await self._record(record, "")
        return int(_inline_body(record) or await self._loaded_body(record))

    def _next(self, name: str) -> tuple[int, str]:
        if self._closed:
            raise StepOutsideTurn(f"The turn has ended: step {name!r} can only run during it.")
        if not name or len(name) > MAX_NAME:
            raise AgentError(f"The name of a step must have 1 to {MAX_NAME} characters.")
        within = _WITHIN.get()
        name = _short(f"{within}/{name}") if within else name
        self._number += 0 if within else 1
        self._names[name] += 1
        count = self._names[name]
        return KEYED if within else self._number, name if count == 1 else f"{name}#{count}"

    def _with_key(self, name: str, key: str) -> str:
        """Return the name of a keyed step. Raise if the turn has ended."""
        if self._closed:
            raise StepOutsideTurn(f"The turn has ended: step {name!r} can only run during it.")
        within = _WITHIN.get()
        return _short(f"{within}/{name}:{key}" if within else f"{name}:{key}")

    def _before(self, call: StepCall) -> StepRecord | None:
        """Return the last record of a step: from before the turn was interrupted, or of a step with the same key."""
        if call.number == KEYED:
            return self._fresh.get(call.name) or self._keyed.get(call.name)
        records = self._recorded.get(call.number)
        if not records:
            return None
        if records[-1].name != call.name:
            raise StepOrderChanged(
                f"Step {call.number} of this turn was recorded as {records[-1].name!r}, but the agent now runs "
                f"{call.name!r}. The steps of a turn must keep their order when it is resumed."
            )
        return records[-1]

    async def _attempts(
        self, call: StepCall, work: Callable[..., Any], args: tuple[object, ...], before: StepRecord | None
    ) -> StepRecord:
        """Work until an attempt succeeds or none is left. Attempts before an interruption count."""
        attempt = before.attempt if before else 0
        while True:
            if attempt:
                await asyncio.sleep(min(call.backoff_s * 2 ** (attempt - 1), MAX_BACKOFF_S))
            attempt += 1
            began = self._monotonic()
            try:
                working = _called(work, args, call.timeout_s)
                value = await (_inside(call.name, working) if call.number == KEYED else working)
            except Exception as error:  # noqa: BLE001 - a step may raise anything; the record says so
                record = _failed(self._turn, call, attempt, self._since(began), error)
                again = "" if record.final else " and is retried"
                words = f"Step {call.name} failed{again}: {record.reason}"
            else:
                took, body = self._since(began), _encoded(call, value)
                output = Part(data=Raw(body)) if len(body) <= INLINE_BYTES else await self._stored(body)
                record = StepRecord(self._turn, call.number, call.name, attempt, took, output)
                words = f"Step {call.name} finished." if call.shown else ""
            await self._record(record, words)
            if record.final:
                return record

    def _since(self, began: float) -> int:
        return round((self._monotonic() - began) * 1000)

    async def _stored(self, body: bytes) -> Part:
        return (await self._journal.kept((Part(raw=body, media_type="application/json"),)))[0]

    async def _record(self, record: StepRecord, words: str) -> None:
        parts = (text_part(words),) if words and self._shown else ()
        await self._journal.record(Progress(parts, step=record))
        if record.number == KEYED:
            self._fresh[record.name] = record

    async def _loaded_body(self, record: StepRecord) -> bytes:
        (part,) = await self._journal.loaded((record.output,) if record.output else ())
        return part.raw or b"null"


def recorded_steps(turn: int, events: Iterable[Event]) -> dict[int, list[StepRecord]]:
    """Return the records of a turn's steps, by the number of the step."""
    found: dict[int, list[StepRecord]] = defaultdict(list)
    for event in events:
        if isinstance(event.payload, Progress) and event.payload.step is not None and event.payload.step.turn == turn:
            found[event.payload.step.number].append(event.payload.step)
    return found


async def _inside(name: str, working: Awaitable[object]) -> object:
    """Await the work of a step that has a key. Steps of the work belong to it."""
    token = _WITHIN.set(name)
    try:
        return await working
    finally:
        _WITHIN.reset(token)


def _short(name: str) -> str:
    """Return a name that is not too long to store, and still unique."""
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 33]}…{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _called(work: Callable[..., Any], args: tuple[object, ...], timeout_s: float | None) -> Awaitable[object]:
    """Call the work: a coroutine function in the event loop, a plain function in a thread."""
    working = work(*args) if _is_coroutine(work) else _in_thread(work, args)
    return working if timeout_s is None else _limited(working, timeout_s)


async def _in_thread(work: Callable[..., Any], args: tuple[object, ...]) -> object:
    value = await asyncio.to_thread(work, *args)
    return await cast(Awaitable[object], value) if inspect.isawaitable(value) else value


async def _limited(working: Awaitable[object], timeout_s: float) -> object:
    async with asyncio.timeout(timeout_s):
        return await working


def _is_coroutine(work: Callable[..., Any]) -> bool:
    """Return whether the work is a coroutine function. The flags of its code are faster to read than by inspect."""
    code = getattr(work, "__code__", None)
    return inspect.iscoroutinefunction(work) if code is None else bool(code.co_flags & inspect.CO_COROUTINE)


def _failed(turn: int, call: StepCall, attempt: int, took: int, error: Exception) -> StepRecord:
    """Return the record of a failed attempt. It is final if no attempt is left, or if the agent's author raised it."""
    code, reason = _reason(call, error)
    final = attempt > call.retries or isinstance(error, AgentError)
    return StepRecord(turn, call.number, call.name, attempt, took, None, code, reason, final)


def _reason(call: StepCall, error: Exception) -> tuple[str, str]:
    """Return the code and reason of a failure. The text of an unexpected exception may contain secrets, so only its
    type is recorded."""
    if isinstance(error, AgentError):
        return error.code, error.message
    if isinstance(error, TimeoutError) and call.timeout_s is not None:
        return StepFailed.code, f"It took longer than {call.timeout_s:g} s."
    return StepFailed.code, f"It raised {type(error).__name__}."


def _failure(record: StepRecord) -> AgentError:
    if record.code == StepFailed.code:
        tries = f" after {record.attempt} attempts" if record.attempt > 1 else ""
        return StepFailed(f"Step {record.name!r} failed{tries}. {record.reason}", step=record.name)
    return RecordedFailure(record.code, record.reason)


def _encoded(call: StepCall, value: object) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_encodable)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        raise StepNotStorable(
            f"Step {call.name!r} returned {type(value).__name__}, which cannot be stored as JSON. Return text, "
            "numbers, lists, dicts, dataclasses, msgspec structs or pydantic models."
        ) from None


def _inline_body(record: StepRecord) -> bytes:
    """Return the result that is in the record itself; nothing if it is stored as a blob."""
    if record.output is None:
        return b"null"
    return b"" if record.output.data is UNSET else bytes(record.output.data)


def _encodable(value: object) -> object:
    """Convert a pydantic model; pydantic itself is not imported."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(type(value).__name__)


def _decodable(type_: type, value: object) -> object:
    validate = getattr(type_, "model_validate", None)
    if callable(validate):
        return validate(value)
    raise TypeError(type_.__name__)


def _decoded(body: bytes, work: Callable[..., Any]) -> Any:
    """Decode a result to the return type of the work, if it declares one that JSON can hold. The first result is
    decoded too, so that an agent sees the same value before and after a restart."""
    if body == b"null" or "return" not in getattr(work, "__annotations__", ()):
        return msgspec.json.decode(body)
    try:
        return msgspec.json.decode(body, type=get_type_hints(work)["return"], dec_hook=_decodable)
    except (TypeError, NameError, AttributeError, msgspec.ValidationError):
        return msgspec.json.decode(body)
