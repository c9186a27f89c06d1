"""Keep delivery events: each once, without secrets and without addresses."""

import hashlib
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.core.frames import check_timestamp
from parley.core.nesting import readable
from parley.core.sanitising import sanitised
from parley.engine.ports import Place, Record, Records
from parley.errors import KeyReused
from parley.telemetry import tell

KIND = "delivery"


class Delivery(Struct, frozen=True):
    """What became of something that was sent; `about` is what else its provider told."""

    id: str
    provider: str
    state: str
    payload: dict[str, Any]
    about: dict[str, Any]


class Kept(Struct, frozen=True):
    """A delivery as it is stored, with the digest of the payload as it came."""

    delivery: Delivery
    digest: bytes
    at: int = 0


class Deliveries:
    def __init__(self, records: Records, clock: Clock = now_ms) -> None:
        self._records = records
        self._clock = clock

    async def take(self, delivery: Delivery) -> bool:
        """False when the same event was taken before; KeyReused when its payload was another then."""
        check_timestamp(delivery.about.get("occurred_at"), "occurred_at")
        digest = hashlib.sha256(msgspec.json.encode(delivery.payload, order="sorted")).digest()
        kept = Kept(_clean(delivery), digest)
        if await self._records.add(Record(KIND, "", delivery.id, msgspec.json.encode(kept), self._clock())):
            tell("delivery.taken", provider=delivery.provider, state=delivery.state)
            return True
        stored = await self._records.get(KIND, "", delivery.id)
        if stored is not None and _kept(stored).digest != digest:
            raise KeyReused("This event was sent before with another payload.")
        return False

    async def page(self, after: str = "", limit: int = 100) -> list[Kept]:
        place: Place = ("", after)
        return [_kept(record) for record in await self._records.list(KIND, "", place, limit)]


def _clean(delivery: Delivery) -> Delivery:
    return replace(delivery, payload=sanitised(delivery.payload), about=sanitised(delivery.about))


def _kept(record: Record) -> Kept:
    return replace(msgspec.json.decode(readable(record.body), type=Kept), at=record.at)
