"""Delivery events of mail providers, handed on by whoever received them."""

from parley.engine.deliveries import Deliveries as Kept
from parley.engine.deliveries import Delivery
from parley.errors import Conflict, KeyReused
from parley.faces.runtime.requests import Reply, Request
from parley.faces.runtime.words import DeliveryAccepted, DeliveryEvent


class Deliveries:
    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    async def ingest(self, request: Request) -> Reply:
        event = request.body(DeliveryEvent)
        about = {
            "message_id": event.message_id, "integration_id": event.integration_id, "recipient": event.recipient,
            "occurred_at": event.occurred_at, "reason": event.reason,
        }  # fmt: skip
        delivery = Delivery(event.event_id, event.provider, event.delivery_state, event.payload, about)
        try:
            first = await self._kept.take(delivery)
        except KeyReused:
            raise Conflict("event_id payload mismatch for existing webhook event") from None
        return Reply(202 if first else 200, DeliveryAccepted(event.event_id, "accepted", not first))
