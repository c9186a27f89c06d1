"""A call is carried out once: repeated, in flight, elsewhere, and after its process died."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from parley.errors import ContextMismatch, ManifestInvalid, ToolRequestInvalid, UnknownToolPack
from parley.json_values import stable_hash
from parley.testing.processes import until
from parley.tools.executions import KIND
from tests.tools.conftest import OTHER, POLICY, USER, World, summary
from tests.tools.github import TOKEN, Reply
from tests.tools.rules.test_packs import MANIFEST

DENY, FAILED = "policy_denied.explicit_deny", "coding_failed.provider_error"


async def test_the_example_of_the_contract(small: World) -> None:
    outcome = await small.tools.execute(small.ask(run_id="run_123", thread_id="thread_abc"))
    data: Any = outcome.data
    assert summary(outcome) == ("succeeded", "allowed", "policy_allowed.default")
    assert (data["integration_id"], data["provider"], data["operation"]) == ("github.primary", "github", "get_issue")
    assert data["policy"]["reason_codes_version"] == "runtime-policy-reasons.v1"
    assert data["provider_result"]["state"] == "succeeded"
    assert data["provider_result"]["data"]["title"] == "issues 7 of octo/hello"
    receipt = data["receipt"]
    assert receipt["receipt_id"] == f"coding_{receipt['replay_hash'][:24]}"
    assert receipt["result_hash"] == stable_hash(data["provider_result"])
    assert not outcome.replayed


async def test_neither_secrets_nor_people_are_in_an_outcome(small: World) -> None:
    shown = str((await small.tools.execute(small.ask())).data)
    assert "[REDACTED]" in shown
    assert "[REDACTED_EMAIL]" in shown
    assert "[REDACTED_PHONE]" in shown
    for secret in (TOKEN, "ghp_", "someone@example.org", "555"):
        assert secret not in shown


async def test_the_same_ask_again_is_told_the_same_and_calls_nobody(world: World) -> None:
    ask = world.ask("add_issue_comment")
    first = await world.tools.execute(ask)
    again = [await world.tools.execute(ask), await world.another().execute(ask)]
    assert [one.data for one in again] == [first.data] * 2
    assert [one.replayed for one in again] == [True, True]
    assert world.hub.comments == {"octo/hello#7": ["Thank you."]}


async def test_another_request_under_the_same_id_is_refused(world: World) -> None:
    await world.tools.execute(world.ask(tool_call_id="x"))
    for tools in (world.tools, world.another()):
        with pytest.raises(ToolRequestInvalid, match="tool_call_id was used with another request") as found:
            await tools.execute(world.ask(tool_call_id="x", issue_number=8))
        assert found.value.details["problems"] == ["tool_call_id was used with another request"]
    assert len(world.hub.asked) == 1


async def test_who_asks_and_for_which_run_belong_to_the_id(small: World) -> None:
    asks = [small.ask(tool_call_id="x", issue_number=number, **more) for number, more in enumerate(
        [{}, {"run_id": "a"}, {"run_id": "b"}, {"principal": OTHER}, {"principal": OTHER, "run_id": "a"}], 1
    )]  # fmt: skip
    outcomes = [await small.tools.execute(ask) for ask in asks]
    assert [one.replayed for one in outcomes] == [False] * 5
    assert len(small.hub.asked) == 5


async def test_a_call_without_an_id_gets_one(small: World) -> None:
    ask = small.ask(tool_call_id=None)
    ids = [(await small.tools.execute(ask)).data["tool_call_id"] for _ in range(2)]
    assert len(set(ids)) == 2
    assert len(small.hub.asked) == 2


async def test_whoever_asks_while_it_is_under_way_waits_for_it(world: World) -> None:
    world.hub.replies.append(Reply(hold=True, done=True))
    ask = world.ask("add_issue_comment")
    here = [asyncio.create_task(world.tools.execute(ask)) for _ in range(3)]
    await world.hub.began.wait()
    there = asyncio.create_task(world.another().execute(ask))
    with pytest.raises(ToolRequestInvalid):
        await world.tools.execute(replace(ask, request={**ask.request, "body": "Other."}))
    world.hub.release.set()
    outcomes = await asyncio.gather(*here, there)
    assert len({str(one.data) for one in outcomes}) == 1
    assert sorted(one.replayed for one in outcomes) == [False, True, True, True]
    assert world.hub.comments == {"octo/hello#7": ["Thank you."]}


async def test_it_goes_on_when_nobody_waits_for_it_any_more(small: World) -> None:
    small.hub.replies.append(Reply(hold=True, done=True))
    ask = small.ask("add_issue_comment")
    gone = asyncio.create_task(small.tools.execute(ask))
    await small.hub.began.wait()
    gone.cancel()
    await asyncio.wait((gone,))
    small.hub.release.set()
    outcome = await small.tools.execute(ask)
    assert summary(outcome)[0] == "succeeded"
    assert len(small.hub.asked) == 1


async def dies(world: World, ask: Any) -> None:
    """Begin a call in a process that dies before it can say what came of it."""
    world.hub.replies.append(Reply(hold=True, done=True))
    world.hub.began.clear()
    tools = world.another()
    task = asyncio.create_task(tools.execute(ask))
    await world.hub.began.wait()
    under_way = next(iter(tools._under_way.values())).task
    under_way.cancel()
    await asyncio.gather(task, under_way, return_exceptions=True)
    world.hub.release.set()


async def test_a_read_whose_process_died_is_done_again(world: World) -> None:
    ask = world.ask(policy={**POLICY, "budget": {"max_total_sats": 1}})
    await dies(world, ask)
    world.clock.pass_s(60)
    outcome = await world.tools.execute(ask)
    assert summary(outcome) == ("succeeded", "allowed", "policy_allowed.default")
    assert len(world.hub.asked) == 2


async def test_a_write_whose_process_died_is_not_repeated(world: World) -> None:
    ask = world.ask("add_issue_comment")
    await dies(world, ask)
    world.clock.pass_s(60)
    outcome = await world.tools.execute(ask)
    assert summary(outcome) == ("failed", "denied", FAILED)
    assert "unknown" in str(outcome.data["provider_result"])
    again = await world.another().execute(ask)
    assert (again.data, again.replayed) == (outcome.data, True)
    assert world.hub.comments == {"octo/hello#7": ["Thank you."]}


async def test_until_its_time_is_up_a_process_is_believed_to_be_at_it(world: World) -> None:
    ask = world.ask()
    await dies(world, ask)
    waiting = asyncio.create_task(world.tools.execute(ask))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    world.clock.pass_s(60)
    assert summary(await waiting)[0] == "succeeded"


async def test_whoever_is_overtaken_tells_what_the_other_made_of_it(world: World) -> None:
    """A process that was too slow to be believed in comes back: there is one outcome all the same."""
    world.hub.replies.append(Reply(hold=True, done=True))
    ask = world.ask("add_issue_comment")
    slow = asyncio.create_task(world.tools.execute(ask))
    await world.hub.began.wait()
    world.clock.pass_s(60)
    other = await world.another().execute(ask)
    world.hub.release.set()
    assert (await slow).data == other.data
    assert summary(other)[0] == "failed"
    assert len(world.hub.asked) == 1


async def test_a_call_that_was_blocked_may_be_made_again_with_what_it_lacked(world: World) -> None:
    ask = world.ask("add_issue_comment", write_approved=False)
    assert summary(await world.tools.execute(ask)) == ("blocked", "denied", DENY)
    assert (await world.tools.execute(ask)).replayed
    approved = replace(ask, policy={**POLICY, "write_approved": True})
    assert summary(await world.tools.execute(approved)) == ("succeeded", "allowed", "policy_allowed.default")
    assert (await world.tools.execute(approved)).replayed
    assert len(world.hub.asked) == 1


async def test_what_is_stored_holds_no_secret(world: World) -> None:
    ask = world.ask(api_key="hush-hush", note="Bearer hush-hush")
    await world.tools.execute(ask)
    (record,) = await world.records.list(KIND)
    assert TOKEN.encode() not in record.body
    assert b"hush-hush" not in record.body


async def test_a_replay_decides_again_as_it_was_decided_then(world: World) -> None:
    policy = {**POLICY, "budget": {"max_total_sats": 2}}
    ask = world.ask(policy=policy)
    executed: Any = (await world.tools.execute(ask)).data
    await world.tools.execute(world.ask(policy=policy))
    assert summary(await world.tools.execute(world.ask(policy=policy)))[2] == "policy_denied.budget_exhausted"
    replayed: Any = (await world.tools.execute(replace(ask, mode="replay"))).data
    assert sorted(replayed) == ["decision", "evaluation_hash", "reason_code", "replay_hash"]
    assert replayed["evaluation_hash"] == executed["receipt"]["evaluation_hash"]
    assert replayed["replay_hash"] != executed["receipt"]["replay_hash"]
    assert replayed == (await world.another().replay(ask)).data
    fresh = world.ask(policy=policy, tool_call_id=None)
    assert (await world.tools.replay(fresh)).data["reason_code"] == "policy_denied.budget_exhausted"
    assert (await world.tools.replay(fresh)).data == (await world.tools.replay(fresh)).data
    assert len(world.hub.asked) == 2


async def test_what_is_wrong_is_told_in_the_order_of_the_contract(small: World) -> None:
    wrong = small.ask(
        principal=USER, user_id=7, tool_pack="comms.v1", manifest={}, request={"user_id": 7}, policy={"budget": 1}
    )  # fmt: skip
    with pytest.raises(ContextMismatch, match="request context does not match authenticated principal"):
        await small.tools.execute(wrong)
    with pytest.raises(ContextMismatch):
        await small.tools.execute(replace(wrong, user_id=None))
    wrong = replace(wrong, user_id="42", request={"user_id": 42})
    with pytest.raises(UnknownToolPack, match=r"tool_pack is not supported: comms\.v1"):
        await small.tools.execute(wrong)
    wrong = replace(wrong, tool_pack="coding.v1")
    with pytest.raises(ManifestInvalid) as manifest:
        await small.tools.execute(wrong)
    assert manifest.value.details["problems"]
    wrong = replace(wrong, manifest=MANIFEST)
    with pytest.raises(ToolRequestInvalid) as request:
        await small.tools.execute(wrong)
    assert "operation is required" in str(request.value.details["problems"])
    with pytest.raises(ToolRequestInvalid) as policy:
        await small.tools.execute(small.ask(policy={"budget": 1}))
    assert policy.value.details["problems"] == ["policy.budget must be an object"]
    assert small.hub.asked == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"run_id": "a b"}, "run_id must have"),
        ({"thread_id": "x" * 129}, "thread_id must have"),
        ({"deep": None}, "deeper"),
        ({"number": 10**400}, "too large"),
    ],
)
async def test_what_could_not_be_kept_or_hashed_is_refused(small: World, changes: dict[str, Any], problem: str) -> None:
    if "deep" in changes:
        for _ in range(100):
            changes = {"deep": changes}
    with pytest.raises(ToolRequestInvalid) as found:
        await small.tools.execute(small.ask(**changes))
    assert problem in str(found.value.details["problems"])


async def test_a_request_that_contradicts_its_frame_is_refused(small: World) -> None:
    ask = small.ask(run_id="run_1")
    with pytest.raises(ContextMismatch):
        await small.tools.execute(replace(ask, request={**ask.request, "run_id": "run_2"}))


async def test_the_context_is_copied_into_the_request(small: World) -> None:
    run = await small.run()
    await small.tools.execute(small.ask(run_id=run.id, thread_id="thread_abc"))
    asked = json.loads(bytes((await small.entries(run.id))[0].input))
    assert (asked["user_id"], asked["run_id"], asked["thread_id"]) == (42, run.id, "thread_abc")


@pytest.mark.parametrize("status", ["inactive", "error"])
async def test_an_integration_that_is_not_active_is_blocked(small: World, status: str) -> None:
    outcome = await small.tools.execute(small.ask(manifest={**MANIFEST, "status": status}))
    assert summary(outcome) == ("blocked", "denied", DENY)
    assert outcome.data["provider_result"] == {}
    assert small.hub.asked == []


async def test_writes_need_approval_where_it_is_enforced(small: World) -> None:
    def ask(mode: str, **more: Any) -> Any:
        manifest = {**MANIFEST, "policy": {"write_operations_mode": mode}}
        return small.ask("add_issue_comment", manifest=manifest, **more)

    blocked = await small.tools.execute(ask("enforce", write_approved=False))
    assert summary(blocked) == ("blocked", "denied", DENY)
    for passed in (
        ask("enforce", write_approved=True),
        ask("enforce", write_approved=False, policy={**POLICY, "write_approved": True}),
        ask("audit_only", write_approved=False),
    ):
        assert summary(await small.tools.execute(passed))[0] == "succeeded"
    assert len(small.hub.comments["octo/hello#7"]) == 3


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(404, {"message": "Not Found"}), FAILED),
        (Reply(401, {"message": "Bad credentials"}), DENY),
        (Reply(422, {"message": "Validation Failed"}), "manifest_validation.invalid_schema"),
        (Reply(429), "policy_denied.budget_exhausted"),
        (Reply(301, headers=(("location", "http://evil.example/"),)), "ssrf_block.host_not_allowed"),
    ],
)
async def test_a_failure_of_the_provider_is_an_outcome(small: World, reply: Reply, code: str) -> None:
    small.hub.always = reply
    outcome = await small.tools.execute(small.ask())
    data: Any = outcome.data
    assert summary(outcome) == ("failed", "denied", code)
    assert (data["policy"]["decision"], data["policy"]["reason_code"]) == ("denied", code)
    assert (data["provider_result"]["state"], data["provider_result"]["reason_code"]) == ("failed", code)
    assert data["receipt"]["evaluation_hash"] == data["policy"]["evaluation_hash"]


async def test_a_provider_that_does_not_answer_is_hung_up_on(small: World) -> None:
    small.hub.always = Reply(hold=True)
    tools = small.another(limit_s=0.05)
    outcome = await tools.execute(small.ask())
    assert summary(outcome) == ("failed", "denied", FAILED)
    assert "within 0.05 s" in str(outcome.data["provider_result"])
    await asyncio.wait_for(small.hub.hung_up.wait(), 5)


async def test_a_result_that_cannot_be_hashed_is_a_failure(small: World) -> None:
    small.hub.always = Reply(200, b'{"a":' + b"[" * 80 + b"]" * 80 + b"}")
    outcome = await small.tools.execute(small.ask())
    assert summary(outcome) == ("failed", "denied", FAILED)


async def test_closing_waits_for_what_is_under_way(small: World) -> None:
    small.hub.replies.append(Reply(hold=True, done=True))
    tools = small.another()
    call = asyncio.create_task(tools.execute(small.ask()))
    await small.hub.began.wait()
    closing = asyncio.create_task(tools.close())
    await until(lambda: not closing.done())
    small.hub.release.set()
    await closing
    assert summary(await call)[0] == "succeeded"


async def test_what_ended_long_ago_is_forgotten_and_what_broke_off_is_not(world: World) -> None:
    tools = world.another(keep_ms=86_400_000)
    old, new = world.ask(), world.ask()
    await tools.execute(old)
    await dies(world, world.ask())
    world.clock.pass_s(86_400)
    await tools.execute(new)
    await tools.tick()
    await world.tools.tick()
    assert len(await world.records.list(KIND)) == 2
    assert (await tools.execute(new)).replayed
    assert not (await tools.execute(old)).replayed
