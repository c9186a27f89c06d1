"""A caller that loses access to an agent loses its tasks too: each answers like a task that does not exist, on every
face and for every action, and no new work starts."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from parley import NeedInput, Turn, agent
from parley.execution.driver import Driver
from parley.ids import RunId
from parley.runs.store import Listing
from tests.faces.mcp.wire import call
from tests.permissions.belongings import ANN, HIDDEN, Belongings, drivers, furnish, unknown_like
from tests.permissions.house import EVERY, bearer, open_house, signed
from tests.permissions.probes import Probe
from tests.permissions.requests import ruled
from tests.permissions.test_probes import difference, probes

pytestmark = pytest.mark.asyncio(loop_scope="module")

THREAD = "thread-of-42"
VERSION = {"A2A-Version": "1.0"}
FRAMES = ("user_message", "cancel", "finish", "fail")


def hidden(*allow: str) -> Driver:
    @agent(HIDDEN, visibility="private", allow=allow, capabilities=EVERY)
    async def driver(turn: Turn):
        """Exists for those who are allowed."""
        yield NeedInput("And now?")

    return driver


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Belongings]:
    """Things of Ann and of user 42 at an agent that neither may use any more."""
    folder = tmp_path_factory.mktemp("revoked")
    others = [one for one in drivers(folder) if one.agent.slug != HIDDEN]
    async with open_house(folder, *others, hidden(f"service:{ANN}", "user:42")) as house:
        own = await furnish(house)
        own.ids["hidden run"] = "run-of-42"
        body = {"run_id": own.ids["hidden run"], "thread_id": THREAD, "agent": HIDDEN}
        reply = await house.ask("nobody", "POST", "/internal/v1/runs", body, _signed(own.ids["hidden run"]))
        assert reply.status_code == 202, reply.text
        exchange = house.server.exchange
        own.ids["hidden conversation"] = (await exchange.view(RunId(own.ids["hidden task"]))).run.conversation
        exchange.replace([*(one for one in exchange.agents.hosts if one.agent.slug != HIDDEN), hidden()])
        yield own


def _signed(run: str) -> dict[str, str]:
    return signed(user_id=42, run_id=run, thread_id=THREAD)


async def _runs(own: Belongings) -> list[tuple[str, int]]:
    """The runs of the agent that nobody may use any more, and how far each has come."""
    runs, _ = await own.house.server.exchange.store.list_runs(Listing(agent=HIDDEN, limit=100))
    return [(run.id, run.version) for run in runs]


async def test_a_task_of_a_revoked_agent_is_an_unknown_one_wherever_it_can_be_named(own: Belongings) -> None:
    before, wrong, count = await _runs(own), [], 0
    mine = _mine(own)
    for probe in probes(own):
        rule = ruled(probe.asked)
        assert rule is not None
        if "hidden task" not in probe.whats or ANN not in rule.who or probe.asked.startswith("gRPC"):
            continue
        count += 1
        if said := await _complaint(own, probe, mine):
            wrong.append(said)
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong)
    assert count > 30
    assert await _runs(own) == before


def _mine(own: Belongings) -> dict[str, str]:
    """Further parameters that a request needs besides the id."""
    ids = {what: own.ids[what] for what in ("conversation", "task", "lease")}
    return {"near": own.house.nodes["child"].id, **ids}


async def _complaint(own: Belongings, probe: Probe, mine: dict[str, str], what: str = "hidden task") -> str:
    theirs, unknown = await own.answers(ANN, what, lambda id_: probe.ask(id_, mine))
    if theirs == unknown:
        return ""
    return f"{probe.asked}, {probe.name}: {difference(str(theirs), str(unknown))}"


async def test_nothing_more_is_said_to_a_revoked_agent(own: Belongings) -> None:
    before = await _runs(own)
    at = f"/console/conversations/{own.ids['hidden conversation']}/say"
    said = await own.answer(ANN, ("POST", at, {"text": "hi"}), own.ids["hidden conversation"])
    assert said[0] == 404
    form = {"agent": HIDDEN, "text": "hi"}
    status, begun = await own.answer(ANN, ("POST", "/console/conversations", form), HIDDEN)
    unknown = await own.answer(ANN, ("POST", "/console/conversations", {**form, "agent": "nobody"}), "nobody")
    assert (status, begun) == unknown
    assert status == 404
    tool = await own.house.ask(ANN, "POST", "/mcp", call(HIDDEN, "hi"), {"Accept": "application/json"})
    assert "error" in tool.json()
    assert await _runs(own) == before


@pytest.mark.parametrize("type_", FRAMES)
async def test_a_run_of_a_revoked_agent_takes_no_frames(own: Belongings, type_: str) -> None:
    before = await _runs(own)
    answers = []
    for run in (own.ids["hidden run"], unknown_like(own.ids["hidden run"])):
        body = {"thread_id": THREAD, "frame_id": f"f-{type_}", "type": type_, "payload": {"text": "hi"}}
        reply = await own.house.ask("nobody", "POST", f"/internal/v1/runs/{run}/frames", body, _signed(run))
        answers.append((reply.status_code, reply.json()))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert await _runs(own) == before


async def test_a_run_of_a_revoked_agent_cannot_be_read_followed_canceled_or_opened_again(own: Belongings) -> None:
    before = await _runs(own)
    run, unknown = own.ids["hidden run"], unknown_like(own.ids["hidden run"])
    for method, path, body in (
        ("GET", f"/snapshot?thread_id={THREAD}", None),
        ("GET", f"/stream?thread_id={THREAD}&cursor=0", None),
        ("POST", "/cancel", {"thread_id": THREAD}),
    ):
        replies = [
            await own.house.ask("nobody", method, f"/internal/v1/runs/{one}{path}", body, _signed(one))
            for one in (run, unknown)
        ]
        assert replies[0].status_code == replies[1].status_code == 404, path
        assert replies[0].json() == replies[1].json()
    opened = [
        await own.house.ask("nobody", "POST", "/internal/v1/runs", {"run_id": run, "thread_id": THREAD, "agent": slug},
                            _signed(run))
        for slug in (HIDDEN, "nobody")
    ]  # fmt: skip
    assert [one.status_code for one in opened] == [404, 404]
    assert opened[0].json() == opened[1].json()
    assert await _runs(own) == before


ANNS = ("task", "plan version", "execution", "orchestration", "far task")


async def test_the_tasks_of_other_agents_are_unknown_to_a_key_that_was_replaced_by_a_limited_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("narrowed")
    async with open_house(folder, *drivers(folder)) as house:
        own = await furnish(house)
        assert (await house.ask("admin", "DELETE", f"/admin/keys/{ANN}")).status_code < 300
        made = await house.ask("admin", "POST", "/admin/keys", {"name": ANN, "agents": [HIDDEN]})
        house.who[ANN] = lambda: bearer(made.json()["token"])
        wrong: list[str] = []
        asked = [one for one in probes(own) if "hidden task" in one.whats and not one.asked.startswith("gRPC")]
        for probe in asked:
            rule = ruled(probe.asked)
            assert rule is not None
            wrong += [await _complaint(own, probe, _mine(own), what) for what in ANNS if ANN in rule.who]
        found = [one for one in wrong if one]
        assert not found, f"{len(found)} of {len(wrong)}:\n" + "\n".join(found)
        kept = await house.ask(ANN, "GET", f"/agents/{HIDDEN}/tasks/{own.ids['hidden task']}", None, VERSION)
        assert kept.status_code == 200
