"""How a language model is asked for a plan, and how its answer is read."""

import re
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.agents import Agent
from parley.core.plans import MAX_STEPS, Step, Steps
from parley.errors import PlanInvalid

HEAD = "You plan work that other agents carry out."
_OFFER = re.compile(r"^- ([a-z0-9_-]+): ", re.MULTILINE)


class _Drafted(Struct, rename="camel"):
    """A step as a model writes it: `dependsOn` and `depends_on` are both understood."""

    id: str
    agent: str
    name: str = ""
    depends_on: tuple[str, ...] = ()
    input: Raw | UnsetType = UNSET


class _Plan(Struct):
    steps: tuple[_Drafted, ...]


def instructions_for(agents: Sequence[Agent], more: str | None) -> str:
    """What a model has to know to plan; `more` are the agent's own instructions."""
    offers = "\n".join(f"- {agent.slug}: {' '.join(agent.description.split())[:300]}" for agent in agents)
    asked = (
        f"{HEAD} Answer with one JSON object and nothing else:\n"
        '{"steps": [{"id": "short-name", "name": "What it does", "agent": "one of the agents below", '
        '"dependsOn": ["ids of steps that must be done before"], "input": "what the agent is told"}]}\n'
        f"At most {MAX_STEPS} steps, as few as will do; steps that need not wait for each other run side by side. "
        "In an input {{message}} stands for the request, {{steps.ID.output}} for what a step that it depends on "
        f"has brought.\nThe agents:\n{offers}"
    )
    return f"{asked}\n\n{more}" if more else asked


def agents_offered(instructions: str) -> list[str]:
    """The agents in the instructions for a plan; none in any other."""
    return _OFFER.findall(instructions) if instructions.startswith(HEAD) else []


def plan_in(answer: str) -> Steps:
    """The plan in a model's answer, whatever is said around it."""
    start, end = answer.find("{"), answer.rfind("}")
    if not 0 <= start < end:
        raise PlanInvalid("There is no JSON object in it.")
    text = answer[start : end + 1].replace('"depends_on"', '"dependsOn"')
    try:
        drafted = msgspec.json.decode(text, type=_Plan)
    except msgspec.MsgspecError as error:
        raise PlanInvalid(f"It is not a plan: {error}") from None
    return tuple(
        Step(one.id, one.agent, one.name, depends_on=one.depends_on, input=_input(one.input)) for one in drafted.steps
    )


def _input(given: Raw | UnsetType) -> Raw | UnsetType:
    """Nothing, however it is written, leaves the step to what it is given without an input."""
    return UNSET if given is UNSET or bytes(given) in (b"null", b'""') else Raw(bytes(given))


def repair(error: PlanInvalid) -> str:
    """What a model is told whose plan cannot be used."""
    return f"This plan cannot be used. {error.message} Answer with the corrected JSON object and nothing else."
