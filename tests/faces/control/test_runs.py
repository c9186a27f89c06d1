"""Runs over the wire: begun, given frames, looked at."""

import asyncio

import pytest

from parley.client.control import Owner, RuntimeClient, RuntimeRefused
from parley.ids import RunId
from parley.runs.streams import read_all
from parley.testing.servers import Server
from tests.faces.control.wire import SECRET, THREAD, Wire, error_of, kinds, until, until_done

ROUND = ["run.frame_consumed", "text-delta", "run.input_required"]


async def test_health_says_what_the_contract_says(wire: Wire) -> None:
    reply = await wire.get("/health", user=None)
    assert reply.status_code == 200
    assert reply.json()["status"] == "ok"
    assert reply.json()["service"] == "openagents-runtime"


async def test_a_run_is_created_once(wire: Wire) -> None:
    body = {"run_id": "run_1", "thread_id": THREAD, "agent": "echo"}
    first, again = await wire.post("/runs", body), await wire.post("/runs", body)
    assert (first.status_code, again.status_code) == (202, 200)
    created = {
        "runId": "run_1", "threadId": THREAD, "agent": "echo", "status": "created", "latestSeq": 1,
        "idempotentReplay": False,
    }  # fmt: skip
    assert first.json() == created
    assert again.json() == {**created, "idempotentReplay": True}


@pytest.mark.parametrize("other", [{"thread_id": "other"}, {"agent": "sleeper"}])
async def test_a_run_id_that_is_taken_for_something_else_is_a_conflict(wire: Wire, other: dict[str, str]) -> None:
    body = {"run_id": "run_1", "thread_id": THREAD, "agent": "echo"}
    await wire.post("/runs", body)
    reply = await wire.post("/runs", {**body, **other})
    assert error_of(reply) == (409, "conflict", "run_id exists with another thread, owner or agent")
    reply = await wire.post("/runs", body, user=7)
    assert error_of(reply) == (409, "conflict", "run_id exists with another thread, owner or agent")


async def test_a_run_without_a_name_is_found_again_by_an_idempotency_key(wire: Wire) -> None:
    body, key = {"thread_id": THREAD, "agent": "echo"}, {"Idempotency-Key": "k1"}
    first = await wire.post("/runs", body, headers=key)
    again = await wire.post("/runs", body, headers=key)
    other = await wire.post("/runs", body)
    assert (first.status_code, again.status_code, other.status_code) == (202, 200, 202)
    assert first.json()["runId"] == again.json()["runId"] != other.json()["runId"]


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_an_idempotency_key_has_a_length(wire: Wire, key: str) -> None:
    reply = await wire.post("/runs", {"thread_id": THREAD, "agent": "echo"}, headers={"Idempotency-Key": key})
    assert error_of(reply) == (400, "invalid_request", "Idempotency-Key must have 1 to 255 characters")


async def test_an_agent_that_is_not_there_for_the_caller_is_not_found(wire: Wire) -> None:
    for slug in ("nobody", "hidden"):
        reply = await wire.post("/runs", {"thread_id": THREAD, "agent": slug})
        assert error_of(reply) == (404, "not_found", "agent not found")
    assert (await wire.post("/runs", {"thread_id": THREAD, "agent": "hidden"}, user=7)).status_code == 202


async def test_the_default_agent_serves_a_run_that_names_none(wire: Wire) -> None:
    reply = await wire.post("/runs", {"thread_id": THREAD})
    assert reply.json()["agent"] == "echo"


async def test_a_guest_owns_what_it_creates(wire: Wire) -> None:
    await wire.new_run("run_g", user=None, guest="guest-a")
    path = f"/runs/run_g/snapshot?thread_id={THREAD}"
    assert (await wire.get(path, user=None, guest="guest-a")).status_code == 200
    assert (await wire.get(path, user=None, guest="guest-b")).status_code == 403
    assert (await wire.get(path, user=42, guest="guest-a")).status_code == 403


async def test_a_snapshot_tells_where_a_run_stands(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    created = await client.snapshot(run, THREAD)
    assert created["runId"] == run
    assert created["threadId"] == THREAD
    assert (created["status"], created["latestSeq"]) == ("created", 1)
    await client.say(run, THREAD, "hi")
    seen = await until(client, run, "run.input_required")
    running = await client.snapshot(run, THREAD)
    assert (running["status"], running["latestSeq"]) == ("running", seen[-1][0])
    assert running["updatedAt"] >= created["updatedAt"]
    await client.finish(run, THREAD)
    assert (await client.snapshot(run, THREAD))["status"] == "succeeded"


async def test_frames_drive_the_agent_turn_by_turn(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    await client.say(run, THREAD, "hi")
    seen = await until(client, run, "run.input_required")
    await client.say(run, THREAD, "there")
    seen += await until(client, run, "run.input_required", seen[-1][0])
    await client.finish(run, THREAD)
    seen += await until_done(client, run, seen[-1][0])
    assert kinds(seen) == [
        "run.created", "run.frame_consumed", "start", "text-delta", "run.input_required",
        "run.frame_consumed", "run.turn_started", "text-delta", "run.input_required", "run.closing", "finish",
    ]  # fmt: skip
    assert [seq for seq, _ in seen] == list(range(1, len(seen) + 1))
    assert [data["delta"] for _, data in seen if data["type"] == "text-delta"] == ["hi", "there"]
    assert seen[-1][1]["meta"] == {"status": "succeeded", "reason_class": "completed", "reason": None}


async def test_a_frame_counts_once(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    first = await wire.frame(run, {"frame_id": "frm_001"})
    again = await wire.frame(run, {"frame_id": "frm_001"})
    accepted = {"runId": run, "frameId": "frm_001", "status": "accepted"}
    assert (first.status_code, first.json()) == (202, {**accepted, "idempotentReplay": False})
    assert (again.status_code, again.json()) == (200, {**accepted, "idempotentReplay": True})
    await client.finish(run, THREAD)
    assert kinds(await until_done(client, run)).count("run.frame_consumed") == 1


@pytest.mark.parametrize("other", [{"payload": {"text": "ho"}}, {"type": "system_message"}])
async def test_a_frame_id_with_other_content_is_a_conflict(wire: Wire, other: dict[str, object]) -> None:
    run = await wire.new_run()
    await wire.frame(run, {"frame_id": "frm_001"})
    reply = await wire.frame(run, {"frame_id": "frm_001", **other})
    assert error_of(reply) == (409, "conflict", "frame_id payload mismatch for existing frame")


async def test_the_order_of_a_payloads_members_does_not_matter(wire: Wire) -> None:
    run = await wire.new_run()
    await wire.frame(run, {"frame_id": "f", "payload": {"text": "hi", "lang": "en"}})
    again = await wire.frame(run, {"frame_id": "f", "payload": {"lang": "en", "text": "hi"}})
    assert again.status_code == 200


@pytest.mark.parametrize("type_", ["finish", "complete", "run_complete"])
async def test_a_frame_finishes_a_run(wire: Wire, client: RuntimeClient, type_: str) -> None:
    run = await wire.new_run()
    assert (await wire.frame(run, {"frame_id": "f", "type": type_, "payload": {}})).status_code == 202
    assert (await client.snapshot(run, THREAD))["status"] == "succeeded"
    assert (await wire.frame(run, {"frame_id": "f", "type": type_, "payload": {}})).status_code == 200


@pytest.mark.parametrize("type_", ["fail", "error"])
async def test_a_frame_fails_a_run_and_stops_its_agent(wire: Wire, client: RuntimeClient, type_: str) -> None:
    run = await wire.new_run(agent="sleeper")
    await client.say(run, THREAD, "sleep")
    await until(client, run, "run.progress")
    payload = {"reason_class": "quota", "reason": "No money left."}
    assert (await wire.frame(run, {"frame_id": "f", "type": type_, "payload": payload})).status_code == 202
    seen = await until_done(client, run)
    assert seen[-1][1]["meta"] == {"status": "failed", **payload}
    again = await wire.frame(run, {"frame_id": "f", "type": type_, "payload": payload})
    assert again.status_code == 200


@pytest.mark.parametrize("type_", ["cancel", "cancel_requested"])
async def test_a_frame_cancels_a_run(wire: Wire, client: RuntimeClient, type_: str) -> None:
    run = await wire.new_run(agent="sleeper")
    await client.say(run, THREAD, "sleep")
    await until(client, run, "run.progress")
    for status in (202, 200):
        assert (await wire.frame(run, {"frame_id": "f", "type": type_, "payload": {}})).status_code == status
    assert kinds(await until_done(client, run))[-2:] == ["run.cancel_requested", "finish"]
    assert (await client.snapshot(run, THREAD))["status"] == "canceled"
    assert (await wire.frame(run, {"frame_id": "f", "type": type_, "payload": {}})).status_code == 200


async def test_frames_of_a_run_that_has_ended_are_accepted_and_change_nothing(
    wire: Wire, client: RuntimeClient
) -> None:
    run = await wire.new_run()
    await client.finish(run, THREAD)
    before = await client.snapshot(run, THREAD)
    assert [(await wire.frame(run, {"frame_id": "late"})).status_code for _ in range(2)] == [202, 200]
    other = await wire.frame(run, {"frame_id": "late", "payload": {"text": "other"}})
    assert error_of(other) == (409, "conflict", "frame_id payload mismatch for existing frame")
    assert await client.snapshot(run, THREAD) == before


async def test_what_was_given_before_the_finish_is_done_first(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    for frame in ("a", "b", "c"):
        await client.say(run, THREAD, frame)
    await client.finish(run, THREAD)
    seen = await until_done(client, run)
    said = "".join(data["delta"] for _, data in seen if data["type"] == "text-delta")
    assert said.replace("\n", "") == "abc"
    assert seen[-1][1]["meta"]["status"] == "succeeded"


async def test_a_question_and_a_file_show_in_the_stream(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run(agent="asker")
    await client.say(run, THREAD, "make it")
    seen = await until(client, run, "run.input_required")
    assert seen[-1][1]["payload"]["text"] == "Which name?"
    await client.say(run, THREAD, "bob")
    seen = await until(client, run, "run.artifact", seen[-1][0])
    assert seen[-1][1]["payload"]["parts"] == [{"data": {"name": "bob"}}]


async def test_an_agents_failure_ends_the_run_and_its_words_stay_inside(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run(agent="broken")
    await client.say(run, THREAD, "go")
    seen = await until_done(client, run)
    assert seen[-1][1]["meta"]["status"] == "failed"
    assert "secret" not in str(seen)


async def test_a_frame_without_words_reaches_the_agent_as_data(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    assert (await wire.frame(run, {"frame_id": "f", "type": "approval", "payload": {"ok": True}})).status_code == 202
    seen = await until(client, run, "run.input_required")
    assert seen[1][1]["payload"] == {
        "frame_id": "f", "parts": [{"data": {"ok": True}, "media_type": "application/json"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        ({"thread_id": None}, "thread_id must be a string"),
        ({"frame_id": ""}, "frame_id is required"),
        ({"type": 7}, "type must be a string"),
        ({"payload": []}, "payload must be an object"),
        ({"payload": None}, "payload must be an object"),
        ({"frame_id": "a\x00b"}, "frame_id must not contain control characters"),
        ({"frame_id": "ab\n"}, "frame_id must not contain control characters"),
        ({"frame_id": "x" * 256}, "frame_id must have at most 255 characters"),
    ],
)
async def test_a_bad_frame_says_what_is_wrong(wire: Wire, spoiled: dict[str, object], message: str) -> None:
    run = await wire.new_run()
    reply = await wire.frame(run, {"frame_id": "f", **spoiled})
    assert error_of(reply) == (400, "invalid_request", message)


@pytest.mark.parametrize("field", ["thread_id", "frame_id", "type", "payload"])
async def test_a_frame_needs_all_its_fields(wire: Wire, field: str) -> None:
    run = await wire.new_run()
    body = {"thread_id": THREAD, "frame_id": "f", "type": "t", "payload": {}}
    del body[field]
    reply = await wire.post(f"/runs/{run}/frames", body)
    assert error_of(reply) == (400, "invalid_request", f"{field} is required")


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 90])
async def test_a_body_that_is_no_object_is_refused(wire: Wire, body: bytes) -> None:
    run = await wire.new_run()
    reply = await wire.post(f"/runs/{run}/frames", body)
    assert error_of(reply) == (400, "invalid_request", "request body must be a JSON object")


async def test_whose_run_it_is_is_read_from_what_is_stored(wire: Wire) -> None:
    run = await wire.new_run()
    path = f"/runs/{run}/snapshot?thread_id={THREAD}"
    none = await wire.get(path, user=None)
    assert error_of(none) == (401, "unauthorized", "missing or invalid principal headers")
    nan = await wire.get(path, user="ann")
    assert error_of(nan) == (401, "unauthorized", "missing or invalid principal headers")
    other = await wire.get(path, user=7)
    assert error_of(other) == (403, "forbidden", "run/thread does not belong to principal")
    thread = await wire.get(f"/runs/{run}/snapshot?thread_id=other")
    assert error_of(thread) == (404, "not_found", "run/thread ownership record not found")
    unknown = await wire.get(f"/runs/nothing/snapshot?thread_id={THREAD}")
    assert error_of(unknown) == (404, "not_found", "run/thread ownership record not found")
    missing = await wire.get(f"/runs/{run}/snapshot")
    assert error_of(missing) == (400, "invalid_request", "thread_id is required")


async def test_a_path_or_method_that_is_none_of_ours_is_refused_in_the_envelope(wire: Wire) -> None:
    assert error_of(await wire.get("/nothing"))[:2] == (404, "not_found")
    reply = await wire.send("DELETE", "/health")
    assert error_of(reply)[:2] == (405, "invalid_request")
    assert reply.headers["allow"] == "GET"
    assert error_of(await wire.get("/nothing", signed=False))[0] == 401


async def test_a_run_id_may_hold_a_slash(client: RuntimeClient) -> None:
    await client.create_run(THREAD, run="team/run-1", agent="echo")
    assert (await client.snapshot("team/run-1", THREAD))["runId"] == "team/run-1"


async def test_the_client_tells_refusals_by_their_status(server: Server) -> None:
    async with RuntimeClient(server.url, "wrong", owner=Owner(user_id=42)) as wrong:
        with pytest.raises(RuntimeRefused) as refused:
            await wrong.health()
    assert (refused.value.status, refused.value.reason) == (401, "unauthorized")
    assert refused.value.message == "invalid token signature"


async def test_many_creations_of_one_run_at_once_make_one(server: Server, wire: Wire) -> None:
    body = {"run_id": "run_1", "thread_id": THREAD, "agent": "echo"}
    replies = await asyncio.gather(*(wire.post("/runs", body) for _ in range(20)))
    assert sorted(reply.status_code for reply in replies) == [200] * 19 + [202]
    async with RuntimeClient(server.url, SECRET, owner=Owner(user_id=42)) as client:
        assert (await client.snapshot("run_1", THREAD))["latestSeq"] == 1


async def test_secrets_in_a_frame_reach_neither_log_nor_stream(
    server: Server, wire: Wire, client: RuntimeClient
) -> None:
    run = await wire.new_run()
    payload = {"text": "call ann@example.com with sk-abcdefgh12345678", "password": "hunter2"}
    await wire.frame(run, {"frame_id": "f", "payload": payload})
    assert (await wire.frame(run, {"frame_id": "f", "payload": payload})).status_code == 200
    shown = str(await until(client, run, "run.input_required"))
    assert "ann@example.com" in shown
    assert "sk-abcdefgh12345678" not in shown
    log = await read_all(server.exchange.store, RunId(run))
    assert not any(secret in (event.body or b"") for event in log for secret in (b"hunter2", b"sk-abcdefgh12345678"))


@pytest.mark.parametrize("type_", ["user_message", "finish", "cancel"])
async def test_the_time_of_a_frame_must_be_a_time(wire: Wire, type_: str) -> None:
    run = await wire.new_run()
    frame = {"frame_id": "f1", "type": type_}
    message = "occurred_at must be an RFC 3339 time such as 2026-02-19T18:00:00Z"
    for time in ("yesterday", "2026-02-30T18:00:00Z", "2026-02-19T18:00:00"):
        refused = await wire.frame(run, {**frame, "occurred_at": time})
        assert error_of(refused) == (400, "invalid_request", message)
    assert (await wire.frame(run, {**frame, "occurred_at": "2026-02-19T18:00:00+01:00"})).status_code == 202
