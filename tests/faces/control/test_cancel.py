"""Cancel over the wire: durable, once, whoever asks and however often."""

import asyncio

from parley.client.control import RuntimeClient
from tests.faces.control.wire import THREAD, Wire, error_of, kinds, until, until_done


async def test_a_run_at_work_is_canceled_once(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run(agent="sleeper")
    await client.say(run, THREAD, "sleep")
    await until(client, run, "run.progress")
    body = {"thread_id": THREAD, "reason": "user requested stop"}
    first = await wire.post(f"/runs/{run}/cancel", body)
    assert first.status_code == 202
    assert first.json() == {"runId": run, "status": "canceling", "cancelRequested": True, "idempotentReplay": False}
    again = await wire.post(f"/runs/{run}/cancel", body)
    assert again.status_code == 200
    assert again.json()["idempotentReplay"] is True
    seen = await until_done(client, run)
    asked = next(data for _, data in seen if data.get("eventType") == "run.cancel_requested")
    assert asked["payload"]["reason"] == "user requested stop"
    assert asked["payload"]["requested_by"] == "control_plane"
    assert seen[-1][1]["meta"]["status"] == "canceled"


async def test_a_run_that_waits_is_canceled_at_once(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    assert (await client.cancel(run, THREAD))["status"] == "canceling"
    assert (await client.snapshot(run, THREAD))["status"] == "canceled"
    again = await client.cancel(run, THREAD)
    assert again == {"runId": run, "status": "canceled", "cancelRequested": True, "idempotentReplay": True}


async def test_a_run_that_has_ended_stays_as_it_ended(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    await client.finish(run, THREAD)
    late = await client.cancel(run, THREAD)
    assert late == {"runId": run, "status": "succeeded", "cancelRequested": False, "idempotentReplay": True}


async def test_a_storm_of_cancels_leaves_one_end(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run(agent="sleeper")
    await client.say(run, THREAD, "sleep")
    await until(client, run, "run.progress")
    path, body = f"/runs/{run}/cancel", {"thread_id": THREAD}
    replies = await asyncio.gather(*(wire.post(path, body) for _ in range(50)))
    assert sorted(reply.status_code for reply in replies) == [200] * 49 + [202]
    shown = kinds(await until_done(client, run))
    assert shown.count("run.cancel_requested") == 1
    assert shown.count("finish") == 1


async def test_frames_after_a_cancel_start_no_work(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    await client.cancel(run, THREAD)
    assert (await wire.frame(run, {"frame_id": "late"})).status_code == 202
    assert "run.frame_consumed" not in kinds(await until_done(client, run))


async def test_a_cancel_needs_its_thread_and_its_owner(wire: Wire) -> None:
    run = await wire.new_run()
    path, body = f"/runs/{run}/cancel", {"thread_id": THREAD}
    assert error_of(await wire.post(path, {})) == (400, "invalid_request", "thread_id is required")
    assert error_of(await wire.post(path, body, user=None))[:2] == (401, "unauthorized")
    assert error_of(await wire.post(path, body, user=7))[:2] == (403, "forbidden")
    assert error_of(await wire.post(path, {"thread_id": "other"}))[:2] == (404, "not_found")
