"""Run one agent in a test: in process, on the in-memory store, without a server."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import structs

from parley.app.application import Agents, Parley, read_agents
from parley.errors import ConfigurationError
from parley.execution.driver import Driver
from parley.execution.rules import Content
from parley.ids import RunId
from parley.runs.rules.events import Event
from parley.runs.rules.view import Answer
from parley.runs.streams import read_all

__all__ = ["AgentRun", "run", "run_async"]


class AgentRun(Answer, frozen=True):
    """The result of `run`: the `Answer` of the agent, all its questions, and the events of the run."""

    questions: tuple[str, ...] = ()
    """Every question of the agent, also those that were answered."""
    events: tuple[Event, ...] = ()


def run(
    agent: Driver | str | Path | object,
    content: Content,
    *,
    answers: Iterable[Content] = (),
    agents: Agents = (),
    timeout_s: float = 30.0,
    **settings: Any,
) -> AgentRun:
    """Run an agent until it is done, or asks a question that no answer is left for. `answers` are given to its
    questions in order. `agents` are further agents that it may ask; `settings` are those of the server, by name."""
    if _has_loop():
        raise ConfigurationError("An event loop is running here: use `await parley.testing.run_async(…)`.")
    return asyncio.run(run_async(agent, content, answers=answers, agents=agents, timeout_s=timeout_s, **settings))


async def run_async(
    agent: Driver | str | Path | object,
    content: Content,
    *,
    answers: Iterable[Content] = (),
    agents: Agents = (),
    timeout_s: float = 30.0,
    **settings: Any,
) -> AgentRun:
    """Run an agent as `run` does, in a test that is a coroutine."""
    driver = _only(agent)
    values: dict[str, Any] = {"store": "memory", **settings}
    async with asyncio.timeout(timeout_s), Parley([driver, *agents], **values) as app:
        answer = await app.ask(driver, content)
        questions = [answer.question]
        for given in answers:
            if answer.question is None:
                break
            answer = await app.ask(driver, given, task=answer.run_id)
            questions.append(answer.question)
        events = await read_all(app.exchange.store, RunId(answer.run_id))
    asked = tuple(question for question in questions if question is not None)
    return AgentRun(**structs.asdict(answer), questions=asked, events=tuple(events))


def _only(agent: Driver | str | Path | object) -> Driver:
    found = read_agents([agent]).drivers
    if len(found) != 1:
        raise ConfigurationError(f"{agent} has {len(found)} agents: pass one of them.", field="agent")
    return found[0]


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
