"""Plans by language models, asked over the vendors' wires."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley import Text, Turn, agent
from parley.ids import new_id
from parley.orchestrations.rules.state import Orchestration, words_of
from parley.orchestrations.service import Creation, OrchestrationService
from parley.runs.rules.access import LOCAL
from parley.runs.rules.content import Message, text_part
from tests.drivers.llm.test_driver import Chat, chatting, far, wire
from tests.models.vendors import Vendor, Wire, answer

_ = far, wire

PLAN = {
    "steps": [
        {"id": "one", "agent": "shout", "input": "{{message}}"},
        {"id": "two", "agent": "shout", "dependsOn": ["one"], "input": "again: {{steps.one.output}}"},
    ]
}


@agent("shout")
async def shout(turn: Turn):
    """Says it louder."""
    yield Text(turn.text.upper())


@asynccontextmanager
async def planning(path: Path, wire: Wire, far: Vendor) -> AsyncIterator[Chat]:
    async with chatting(path, wire.name, far) as chat:
        chat.server.exchange.add(shout)
        yield chat


async def create(chat: Chat) -> Orchestration:
    orchestrations = OrchestrationService(chat.server.exchange)
    creation = Creation("chat", LOCAL, Message(new_id(), (text_part("hello"),)), "c")
    state = await orchestrations.create(creation)
    with await chat.server.exchange.follow(state.run, 0) as follower:
        while not state.ended:
            await follower.next()
            state = await orchestrations.read(state.id, LOCAL)
    return state


async def test_a_model_plans_and_its_plan_is_carried_out(tmp_path: Path, wire: Wire, far: Vendor) -> None:
    far.replies = [answer(wire, "Here it is:\n```json\n", json.dumps(PLAN), "\n```")]
    async with planning(tmp_path, wire, far) as chat:
        state = await create(chat)
    assert state.status == "completed"
    assert words_of(state.step("two").output) == "AGAIN: HELLO"
    (asked,) = far.asked
    assert "- shout: Says it louder." in json.dumps(asked.body)
    assert "Be brief." in json.dumps(asked.body)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("I would rather not.", "no JSON object"),
        (json.dumps({"steps": [{"id": "a", "agent": "nobody"}]}), "there is no agent nobody here"),
        (json.dumps({"steps": [{"id": "a"}]}), "missing required field"),
    ],
)
async def test_a_plan_that_cannot_be_used_is_corrected_once(
    tmp_path: Path, wire: Wire, far: Vendor, bad: str, told: str
) -> None:
    far.replies = [answer(wire, bad), answer(wire, json.dumps(PLAN))]
    async with planning(tmp_path, wire, far) as chat:
        assert (await create(chat)).status == "completed"
    assert told in json.dumps(far.asked[1].body["messages"][-1])


async def test_a_second_wrong_plan_is_the_end(tmp_path: Path, wire: Wire, far: Vendor) -> None:
    far.replies = [answer(wire, "no")]
    async with planning(tmp_path, wire, far) as chat:
        state = await create(chat)
    assert (state.status, state.code, len(far.asked)) == ("failed", "plan_invalid", 2)
