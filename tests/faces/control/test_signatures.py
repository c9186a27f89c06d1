"""Checks of request signatures, over the wire."""

import hashlib
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from parley.clock import now_ms
from parley.security.signatures import Claims, claims_for, sign
from parley.testing.servers import serving
from tests.faces.control.conftest import AGENTS
from tests.faces.control.wire import SECRET, THREAD, Wire, claims_of, error_of

SNAPSHOT = f"/runs/run_123/snapshot?thread_id={THREAD}"


def claims(**changes: object) -> Claims:
    return replace(claims_of(SNAPSHOT), **changes)


async def test_every_route_asks_for_a_signature(wire: Wire) -> None:
    for method, path in [
        ("GET", "/health"), ("POST", "/runs"), ("GET", SNAPSHOT), ("POST", "/runs/r/frames"),
        ("GET", "/runs/r/stream"), ("POST", "/runs/r/cancel"), ("POST", "/comms/delivery-events"),
        ("POST", "/tools/execute"), ("GET", "/openapi.json"), ("GET", "/nothing"),
    ]:  # fmt: skip
        reply = await wire.send(method, path, signed=False)
        assert error_of(reply) == (401, "unauthorized", "missing runtime signature")


NOW = now_ms() // 1000


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("nonsense", "invalid token encoding"),
        ("v1.a.b.c", "invalid token encoding"),
        ("v1.!!!.AAAA", "invalid token encoding"),
        (sign("another secret", claims()), "invalid token signature"),
        (sign(SECRET, claims(nonce="")), "invalid token claims"),
        (sign(SECRET, claims(exp=NOW - 100, iat=NOW - 50)), "invalid token claims"),
        (sign(SECRET, claims(iat=NOW, exp=NOW + 3600)), "invalid token claims"),
        (sign(SECRET, claims(iat=NOW - 200, exp=NOW - 100)), "token expired"),
        (sign(SECRET, claims(iat=NOW + 3600, exp=NOW + 3700)), "token issued in the future"),
    ],
)
async def test_a_token_that_does_not_hold_is_refused(wire: Wire, token: str, message: str) -> None:
    assert error_of(await wire.get(SNAPSHOT, token=token)) == (401, "unauthorized", message)


async def test_a_token_is_good_for_one_request(wire: Wire) -> None:
    await wire.new_run()
    token = sign(SECRET, claims())
    assert (await wire.get(SNAPSHOT, token=token)).status_code == 200
    assert error_of(await wire.get(SNAPSHOT, token=token)) == (401, "unauthorized", "token nonce already used")


async def test_a_refused_token_has_not_used_up_its_nonce(wire: Wire) -> None:
    await wire.new_run()
    nonce = "nonce-kept"
    refused = await wire.get(SNAPSHOT, claims=claims(nonce=nonce, thread_id="other"))
    assert error_of(refused) == (403, "forbidden", "claim mismatch for thread_id")
    assert (await wire.get(SNAPSHOT, claims=claims(nonce=nonce))).status_code == 200


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"run_id": "run_other"}, "run_id"),
        ({"run_id": None}, "run_id"),
        ({"thread_id": "other"}, "thread_id"),
        ({"thread_id": None}, "thread_id"),
        ({"user_id": 7}, "user_id"),
        ({"user_id": None}, "user_id"),
    ],
)
async def test_what_a_path_and_its_headers_carry_must_be_claimed(
    wire: Wire, changes: dict[str, object], claim: str
) -> None:
    reply = await wire.get(SNAPSHOT, claims=claims(**changes))
    assert error_of(reply) == (403, "forbidden", f"claim mismatch for {claim}")


async def test_what_a_body_carries_must_be_claimed(wire: Wire) -> None:
    run = await wire.new_run()
    body = {"thread_id": THREAD, "frame_id": "f", "type": "t", "payload": {}}
    path = f"/runs/{run}/frames"
    reply = await wire.post(path, body, claims=replace(claims_of(path, body), thread_id="other"))
    assert error_of(reply) == (403, "forbidden", "claim mismatch for thread_id")
    new = {"run_id": "run_new", "thread_id": THREAD}
    reply = await wire.post("/runs", new, claims=replace(claims_of("/runs", new), run_id="run_other"))
    assert error_of(reply) == (403, "forbidden", "claim mismatch for run_id")


FRAME = {"thread_id": THREAD, "frame_id": "f", "type": "user_message", "payload": {"text": "hi"}}
TOOL = {"tool_pack": "coding.v1", "manifest": {}, "request": {}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runs?run_id=run_y", {"run_id": "run_x", "thread_id": THREAD}),
        ("/runs?run_id=run_x&run_id=run_y", {"run_id": "run_y", "thread_id": THREAD}),
        ("/runs?run_id=run_y&run_id=run_x", {"run_id": "run_y", "thread_id": THREAD}),
        ("/runs?run_id=", {"run_id": "run_y", "thread_id": THREAD}),
        ("/runs/run_y/frames?run_id=run_x", FRAME),
        ("/runs/run_y/frames", {**FRAME, "run_id": "run_x"}),
        ("/runs/run_x/frames?run_id=run_y", {**FRAME, "run_id": "run_y"}),
        ("/tools/execute?run_id=run_y", {**TOOL, "run_id": "run_x"}),
        ("/tools/execute?run_id=run_y", {**TOOL, "request": {"run_id": "run_x"}}),
        ("/tools/execute", {**TOOL, "run_id": "run_y", "request": {"run_id": "run_x"}}),
    ],
)
async def test_no_place_that_names_a_run_stands_for_another(wire: Wire, path: str, body: dict[str, object]) -> None:
    reply = await wire.post(path, body, claims=claims(run_id="run_y"))
    assert error_of(reply) == (403, "forbidden", "claim mismatch for run_id")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runs?thread_id=thread_abc", {"run_id": "run_y", "thread_id": "other"}),
        ("/runs?thread_id=other&thread_id=thread_abc", {"run_id": "run_y", "thread_id": THREAD}),
        ("/tools/execute", {**TOOL, "thread_id": THREAD, "request": {"thread_id": "other"}}),
    ],
)
async def test_no_place_that_names_a_thread_stands_for_another(wire: Wire, path: str, body: dict[str, object]) -> None:
    reply = await wire.post(path, body, claims=claims(run_id="run_y"))
    assert error_of(reply) == (403, "forbidden", "claim mismatch for thread_id")


async def test_a_guest_scope_must_be_claimed(wire: Wire) -> None:
    reply = await wire.get(SNAPSHOT, user=None, guest="g", claims=replace(claims(), user_id=None))
    assert error_of(reply) == (403, "forbidden", "claim mismatch for guest_scope")


async def test_a_digest_that_is_sent_must_be_the_bodys(wire: Wire) -> None:
    run = await wire.new_run()
    body = {"thread_id": THREAD, "frame_id": "f", "type": "t", "payload": {}}
    right = hashlib.sha256(msgspec.json.encode(body)).hexdigest()
    for digest, status in (("0" * 64, 401), (right, 202)):
        sent = {"X-OA-RUNTIME-BODY-SHA256": digest}
        assert (await wire.post(f"/runs/{run}/frames", body, headers=sent)).status_code == status


async def test_several_keys_are_accepted_while_they_are_exchanged(tmp_path: Path) -> None:
    keys = {"old": "old secret", "new": "new secret"}
    async with serving(tmp_path, AGENTS, runtime_keys=keys) as server, Wire(server.url) as wire:
        for id_, secret in keys.items():
            for sent in ({}, {"X-OA-RUNTIME-KEY-ID": id_}):
                token = sign(secret, claims_for(now_ms()))
                assert (await wire.get("/health", user=None, token=token, headers=sent)).status_code == 200
        for secret, id_ in (("old secret", "new"), ("old secret", "gone"), (SECRET, "runtime-v1")):
            token = sign(secret, claims_for(now_ms()))
            reply = await wire.get("/health", user=None, token=token, headers={"X-OA-RUNTIME-KEY-ID": id_})
            assert error_of(reply) == (401, "unauthorized", "invalid token signature")
