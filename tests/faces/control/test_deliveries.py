"""Delivery events over the wire."""

import httpx2
import pytest

from parley.testing.servers import Server
from tests.faces.control.wire import Json, Wire, error_of

EVENT: Json = {
    "event_id": "resend_evt_123", "provider": "resend", "delivery_state": "delivered", "message_id": "email_abc",
    "integration_id": "resend.primary", "recipient": "user@example.com", "occurred_at": "2026-02-19T18:00:00Z",
    "reason": None, "payload": {"rawType": "email.delivered"},
}  # fmt: skip
PATH = "/comms/delivery-events"


async def test_a_delivery_event_counts_once(wire: Wire) -> None:
    first, again = await wire.post(PATH, EVENT, user=None), await wire.post(PATH, EVENT, user=None)
    accepted = {"eventId": "resend_evt_123", "status": "accepted"}
    assert (first.status_code, first.json()) == (202, {**accepted, "idempotentReplay": False})
    assert (again.status_code, again.json()) == (200, {**accepted, "idempotentReplay": True})


async def test_only_another_payload_is_a_conflict(wire: Wire) -> None:
    await wire.post(PATH, EVENT)
    assert (await wire.post(PATH, {**EVENT, "delivery_state": "bounced"})).status_code == 200
    other = await wire.post(PATH, {**EVENT, "payload": {"rawType": "email.bounced"}})
    assert error_of(other) == (409, "conflict", "event_id payload mismatch for existing webhook event")


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        ({"event_id": "a"}, "event_id must have at least 2 characters"),
        ({"event_id": "a" * 257}, "event_id must have at most 256 characters"),
        ({"provider": "r" * 65}, "provider must have at most 64 characters"),
        ({"delivery_state": "lost"}, "delivery_state is not one of the allowed values"),
        ({"payload": "text"}, "payload must be an object"),
    ],
)
async def test_a_bad_delivery_event_says_what_is_wrong(wire: Wire, spoiled: Json, message: str) -> None:
    assert error_of(await wire.post(PATH, {**EVENT, **spoiled})) == (400, "invalid_request", message)


@pytest.mark.parametrize("field", ["event_id", "provider", "delivery_state", "payload"])
async def test_a_delivery_event_needs_its_fields(wire: Wire, field: str) -> None:
    body = {name: value for name, value in EVENT.items() if name != field}
    assert error_of(await wire.post(PATH, body)) == (400, "invalid_request", f"{field} is required")


async def test_an_operator_reads_what_came_without_secrets_and_addresses(server: Server, wire: Wire) -> None:
    await wire.post(PATH, {**EVENT, "payload": {"api_key": "k-123", "to": "ann@example.com", "bounces": 2}})
    async with httpx2.AsyncClient(base_url=server.url) as http:
        [one] = (await http.get("/admin/deliveries")).json()["deliveries"]
        assert (await http.get("/admin/deliveries?after=resend_evt_123")).json() == {"deliveries": []}
    assert (one["eventId"], one["provider"], one["deliveryState"]) == ("resend_evt_123", "resend", "delivered")
    assert one["payload"] == {"api_key": "[REDACTED]", "to": "[REDACTED_EMAIL]", "bounces": 2}
    assert one["about"]["recipient"] == "[REDACTED_EMAIL]"


@pytest.mark.parametrize("time", ["yesterday", "", "2026-02-30T18:00:00Z", "2026-02-19T18:00:00", "1771524000"])
async def test_the_time_of_a_delivery_event_must_be_a_time(wire: Wire, time: str) -> None:
    message = "occurred_at must be an RFC 3339 time such as 2026-02-19T18:00:00Z"
    assert error_of(await wire.post(PATH, {**EVENT, "occurred_at": time})) == (400, "invalid_request", message)
    assert (await wire.post(PATH, {**EVENT, "occurred_at": None})).status_code == 202
