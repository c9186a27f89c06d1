"""Frames of a run (runtime control plane, 003): each takes effect once, however often and wherever it is sent."""

import hashlib
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.errors import KeyReused, RunEnded
from parley.json_values import readable
from parley.records import Place, Record, Records
from parley.runs.log import Outcome
from parley.runs.rules.access import Principal
from parley.runs.rules.commands import Fail
from parley.runs.rules.frames import Frame, check_timestamp, message_of
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.runs.store import LASTING, Key
from parley.telemetry import tell
from parley.tools.rules.redaction import sanitised

KIND = "frame"


# Why: docs/decisions/faces.md#keep-a-run-open-until-a-frame-finishes-it
class Frames:
    def __init__(self, exchange: Exchange, records: Records, clock: Clock = now_ms) -> None:
        self._exchange = exchange
        self._records = records
        self._clock = clock

    async def take(self, run: Run, principal: Principal, frame: Frame) -> bool:
        """Apply a frame durably. Return False if the same frame was applied before."""
        check_timestamp(frame.occurred_at, "occurred_at")
        key = Key(f"{LASTING}{run.id}", frame.id, frame.digest)
        try:
            outcome = await self._apply(run, principal, frame, key)
        except RunEnded:
            return await self._keep(run, frame)
        if outcome.replayed or outcome.events:
            return not outcome.replayed
        return await self._keep(run, frame)

    async def _apply(self, run: Run, principal: Principal, frame: Frame, key: Key) -> Outcome:
        match frame.effect:
            case "cancel":
                return await self._exchange.cancel(run.id, principal, reason=frame.said("reason"), key=key)
            case "finish":
                return await self._exchange.close_run(run, principal, key)
            case "fail":
                return await self._exchange.fail(run, principal, _failure(frame), key)
            case "input":
                return await self._exchange.give(run, principal, message_of(frame), key)

    async def _keep(self, run: Run, frame: Frame) -> bool:
        """Record a frame for a run that has ended. It changes nothing, but is recognized when it comes again."""
        record = Record(KIND, run.id, frame.id, frame.digest, self._clock())
        if await self._records.add(record):
            return True
        stored = await self._records.get(KIND, run.id, frame.id)
        if stored is not None and stored.body != frame.digest:
            raise KeyReused("This frame was sent before with another payload.")
        return False


def _failure(frame: Frame) -> Fail:
    code = frame.said("reason_class") or "execution_failed"
    return Fail(code, frame.said("reason") or frame.said("message") or "The caller reported a failure.")


# Mail delivery events: each is stored once, without secrets and without addresses.

DELIVERY_KIND = "delivery"


class MailDelivery(Struct, frozen=True):
    """The delivery status of a sent mail; `about` holds the other data of its provider."""

    id: str
    provider: str
    state: str
    payload: dict[str, Any]
    about: dict[str, Any]


class StoredDelivery(Struct, frozen=True):
    """A delivery as stored, with the digest of the original payload."""

    delivery: MailDelivery
    digest: bytes
    at: int = 0


class MailDeliveries:
    def __init__(self, records: Records, clock: Clock = now_ms) -> None:
        self._records = records
        self._clock = clock

    async def take(self, delivery: MailDelivery) -> bool:
        """Store an event. Return False if it was stored before; raise KeyReused if its payload was different then."""
        check_timestamp(delivery.about.get("occurred_at"), "occurred_at")
        digest = hashlib.sha256(msgspec.json.encode(delivery.payload, order="sorted")).digest()
        kept = StoredDelivery(_clean(delivery), digest)
        if await self._records.add(Record(DELIVERY_KIND, "", delivery.id, msgspec.json.encode(kept), self._clock())):
            tell("delivery.taken", provider=delivery.provider, state=delivery.state)
            return True
        stored = await self._records.get(DELIVERY_KIND, "", delivery.id)
        if stored is not None and _kept(stored).digest != digest:
            raise KeyReused("This event was sent before with another payload.")
        return False

    async def page(self, after: str = "", limit: int = 100) -> list[StoredDelivery]:
        place: Place = ("", after)
        return [_kept(record) for record in await self._records.list(DELIVERY_KIND, "", place, limit)]


def _clean(delivery: MailDelivery) -> MailDelivery:
    return replace(delivery, payload=sanitised(delivery.payload), about=sanitised(delivery.about))


def _kept(record: Record) -> StoredDelivery:
    return replace(msgspec.json.decode(readable(record.body), type=StoredDelivery), at=record.at)
