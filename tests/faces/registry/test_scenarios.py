"""The contract's own walk through its interface, on every store, with and without Redis."""

from tests.faces.registry.conftest import Site
from tests.faces.registry.fleet import Fleet, following


async def test_two_nodes_register_find_each_other_and_go(site: Site, fleet: Fleet) -> None:
    assert (await fleet.ask("GET", "/healthz")).json() == {"status": "ok"}
    assert (await fleet.ask("GET", "/workspaces")).json() == []
    one, two = await fleet.create("Echo", role="Repeats"), await fleet.create("Summary", tier=2)
    listed = (await fleet.ask("GET", "/workspaces")).json()
    assert [node["name"] for node in listed] == ["Echo", "Summary"]
    assert (await fleet.show(one))["status"] == "provisioning"

    for node, port in ((one, 9001), (two, 9002)):
        reply = await node.register(f"http://127.0.0.1:{port}")
        assert reply.json() == {"status": "registered", "issuer": fleet.at, "auth_token": node.token}
        assert len(node.token) == 43
    assert (await one.register("http://127.0.0.1:9001")).json() == {"status": "registered", "issuer": fleet.at}
    shown = await fleet.show(one)
    assert (shown["status"], shown["url"]) == ("online", "http://127.0.0.1:9001")
    assert shown["agent_card"]["exact"] == 42

    assert (await one.beat(error_rate=0.0, active_tasks=2, uptime_seconds=120)).json() == {"status": "ok"}
    shown = await fleet.show(one)
    assert (shown["active_tasks"], shown["uptime_seconds"]) == (2, 120)

    found = (await one.discover(two)).json()
    assert (found["id"], found["url"], found["name"]) == (two.id, "http://127.0.0.1:9002", "Summary")
    assert found["token"].count(".") == 2
    outside = (await fleet.ask("GET", f"/registry/discover/{two.id}")).json()
    assert (outside["id"], outside["url"], "token" in outside) == (two.id, "http://127.0.0.1:9002", False)
    (peer,) = (await one.get(f"/registry/{one.id}/peers")).json()
    assert (peer["id"], peer["name"], peer["status"]) == (two.id, "Summary", "online")
    assert peer["agent_card"]["exact"] == 42
    assert (await one.get(f"/registry/{one.id}/peers?q=nobody")).json() == []
    pair = {"caller_id": one.id, "target_id": two.id}
    assert (await one.post("/registry/check-access", pair)).json() == {"allowed": True}

    assert (await fleet.ask("PATCH", f"/workspaces/{one.id}", {"x": 10.5, "y": 2})).status_code == 200
    assert (await fleet.ask("PATCH", f"/workspaces/{one.id}", {"name": "Echo 2"})).json()["name"] == "Echo 2"
    assert (await fleet.show(one))["x"] == 10.5

    card = {"workspace_id": one.id, "agent_card": {"name": "Another"}}
    assert (await one.post("/registry/update-card", card)).json() == {"status": "updated"}
    assert (await fleet.show(one))["agent_card"] == {"name": "Another"}

    await one.beat(error_rate=0.8, sample_error="timeout")
    shown = await fleet.show(one)
    assert (shown["status"], shown["last_sample_error"]) == ("degraded", "timeout")
    await one.beat(error_rate=0.3)
    assert (await fleet.show(one))["status"] == "degraded"
    await one.beat(error_rate=0.05)
    assert (await fleet.show(one))["status"] == "online"

    await one.beat(current_task="Reading")
    assert (await fleet.show(one))["current_task"] == "Reading"
    await one.beat(current_task="")
    assert (await fleet.show(one))["current_task"] == ""

    async with following(fleet.http, f"{fleet.at}/workspaces/events/stream", {}, after=0) as stream:
        seen = [(event["event"], event["workspace_id"]) for event in await stream.until("TASK_UPDATED")]
    assert seen == [
        ("WORKSPACE_PROVISIONING", one.id), ("WORKSPACE_PROVISIONING", two.id), ("WORKSPACE_ONLINE", one.id),
        ("WORKSPACE_ONLINE", two.id), ("WORKSPACE_ONLINE", one.id), ("WORKSPACE_UPDATED", one.id),
        ("WORKSPACE_UPDATED", one.id), ("AGENT_CARD_UPDATED", one.id), ("WORKSPACE_DEGRADED", one.id),
        ("WORKSPACE_ONLINE", one.id), ("TASK_UPDATED", one.id),
    ]  # fmt: skip

    reply = await fleet.ask("DELETE", f"/workspaces/{one.id}")
    assert reply.json() == {"status": "removed", "removed": [one.id]}
    gone = await fleet.ask("GET", f"/workspaces/{one.id}")
    assert gone.status_code == 410
    assert gone.json()["last_event"]["event"] == "WORKSPACE_REMOVED"
    assert (await one.beat()).json() == {"error": "invalid workspace auth token"}
    assert (await one.register()).status_code == 401
    assert [node["id"] for node in (await fleet.ask("GET", "/workspaces")).json()] == [two.id]


async def test_activities_are_noted_filtered_and_told(site: Site, fleet: Fleet) -> None:
    one = await fleet.online("Echo")
    path = f"/workspaces/{one.id}/activity"
    reports = [
        {"activity_type": "a2a_receive", "method": "message/send", "summary": "hello", "duration_ms": 12,
         "request_body": {"secret": 1}, "response_body": {"parts": []}},
        {"activity_type": "error", "status": "error", "error_detail": "broke"},
        {"activity_type": "agent_log", "summary": "thinking"},
    ]  # fmt: skip
    for report in reports:
        assert (await one.post(path, report)).json() == {"status": "logged"}
    refused = await one.post(path, {"activity_type": "nonsense"})
    assert refused.status_code == 400
    assert "nonsense" in refused.json()["error"]

    found = (await one.get(path)).json()
    assert [entry["activity_type"] for entry in found] == ["agent_log", "error", "a2a_receive"]
    assert found[2]["request_body"] == {"secret": 1}
    assert found[1]["error_detail"] == "broke"
    assert [entry["summary"] for entry in (await one.get(f"{path}?type=agent_log")).json()] == ["thinking"]
    assert (await one.get(f"{path}?limit=1")).json() == found[:1]
    assert (await one.get(f"{path}?before={found[0]['id']}&limit=1")).json() == [found[1]]
    for wrong in ("type=nonsense", "limit=0", "limit=x", "before=-1"):
        assert (await one.get(f"{path}?{wrong}")).status_code == 400
    async with following(fleet.http, f"{fleet.at}/workspaces/{one.id}/events/stream", one.headers, after=0) as stream:
        told = (await stream.until("ACTIVITY_LOGGED"))[-1]
    assert told["payload"]["summary"] == "hello"
    assert "request_body" not in told["payload"]
