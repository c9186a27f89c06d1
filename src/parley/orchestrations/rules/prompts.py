"""Prompts that ask a language model for a plan, and the parser of its answer."""

import re
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.errors import PlanInvalid
from parley.json_values import Fields, Json, fields_of
from parley.orchestrations.rules.plan import MAX_STEPS, Refusal, Step, Steps
from parley.runs.rules.agents import Agent
from parley.tools.rules.mcp import ToolOffer

HEAD = "You plan work that other agents carry out."
_OFFER = re.compile(r"^- ([a-z0-9_-]+): ", re.MULTILINE)
_WORDS = 300
"""Characters of a description that a model is shown."""
_DEFAULT_ACTIONS = {"tool": "execute", "plan": "create", "build": "create"}


class Candidate(Struct, frozen=True):
    """An agent that may carry out steps of a plan."""

    agent: Agent
    actions: tuple[tuple[str, str], ...] = ()
    """Modes and actions that it supports in addition to being sent a message."""
    tools: tuple[ToolOffer, ...] = ()


class _Drafted(Struct, rename="camel"):
    """A step as a model writes it, with the names of the instructions or of a request for the same action: `stepId` and
    `agentSlug`, `toolName` beside `input`, `message`. `dependsOn` and `depends_on` are both accepted."""

    id: str = ""
    step_id: str = ""
    agent: str = ""
    agent_slug: str = ""
    name: str = ""
    mode: str = ""
    action: str = ""
    depends_on: tuple[str, ...] = ()
    input: Raw | UnsetType = UNSET
    tool_name: str = ""
    timeout_ms: int | None = None
    message: str = ""


class _Plan(Struct):
    steps: tuple[_Drafted, ...]


def instructions_for(candidates: Sequence[Candidate], more: str | None) -> str:
    """Return the planning instructions for a model; `more` are the agent's own instructions."""
    offers = "\n".join(_offered(one) for one in candidates)
    asked = (
        f"{HEAD} Answer with one JSON object and nothing else:\n"
        '{"steps": [{"id": "short-name", "name": "What it does", "agent": "one of the agents below", '
        '"mode": "converse", "dependsOn": ["ids of steps that must be done before"], "input": "what the agent is '
        'told"}]}\n'
        "The modes of a step: `converse` sends the agent its input as a message. With "
        '`"mode": "tool", "action": "execute"` the agent\'s tool is called: the input is '
        '{"toolName": "one of its tools", "input": {as the schema of the tool says}}. With '
        '`"mode": "plan", "action": "create"` or `"mode": "build", "action": "create"` the agent writes a plan or a '
        'deliverable: the input is {"message": "what to write"}. Ask an agent only for what it can do.\n'
        f"At most {MAX_STEPS} steps, as few as will do; steps that need not wait for each other run side by side. "
        "In an input {{message}} stands for the request, {{steps.ID.output}} for what a step that it depends on "
        "has brought, {{steps.ID.output.NAME}} for a member of an output that is JSON.\n"
        f"The agents:\n{offers}"
    )
    return f"{asked}\n\n{more}" if more else asked


def _offered(one: Candidate) -> str:
    agent = one.agent
    lines = [f"- {agent.slug}: {_short(agent.description)}"]
    lines += [f"  skill {_short(skill.name)}: {_short(skill.description)}" for skill in agent.skills]
    if agent.capabilities:
        lines.append(f"  capabilities: {', '.join(agent.capabilities)}")
    lines.append(f"  can do: {', '.join(['converse', *(f'{mode} {action}' for mode, action in one.actions)])}")
    for tool in one.tools:
        schema = msgspec.json.encode(tool.schema).decode()
        lines.append(f"  tool {tool.name}: {_short(tool.description)} Its input: {schema}")
    return "\n".join(lines)


def _short(text: str) -> str:
    return " ".join(text.split())[:_WORDS]


def agents_offered(instructions: str) -> list[str]:
    """Return the agents named in instructions for a plan; none for any other instructions."""
    return _OFFER.findall(instructions) if instructions.startswith(HEAD) else []


def refusal_among(candidates: Sequence[Candidate]) -> Refusal:
    """Return a function that gives the reason why a step cannot be carried out by these agents."""
    known = {one.agent.slug: one for one in candidates}

    def refusal(step: Step) -> str | None:
        if not step.agent:
            return "missing required field `agent`."
        one = known.get(step.agent)
        if one is None:
            return f"there is no agent {step.agent} here."
        if not step.mode:
            return None
        if (step.mode, step.action) not in one.actions:
            able = ", ".join(["converse", *(f"{mode} {action}" for mode, action in one.actions)])
            return f"agent {step.agent} cannot do {step.mode} {step.action}; it can do {able}."
        return _unusable_tool(one, step) if step.mode == "tool" else None

    return refusal


def _unusable_tool(one: Candidate, step: Step) -> str | None:
    given: Fields = {} if step.input is UNSET else fields_of(cast(Json, msgspec.json.decode(step.input)))
    name, asked = given.get("toolName"), given.get("input", {})
    if not isinstance(name, str) or not isinstance(asked, dict):
        return "its input must have `toolName` and, as the object `input`, the arguments of the tool."
    tool = next((each for each in one.tools if name in (each.name, each.full)), None)
    if tool is None:
        return f"agent {step.agent} has no tool {name}; it has {', '.join(each.name for each in one.tools)}."
    required = tool.schema.get("required", [])
    missing = [str(each) for each in required if each not in asked] if isinstance(required, list) else []
    return f"the input of tool {name} must also have: {', '.join(missing)}." if missing else None


def plan_in(answer: str) -> Steps:
    """Return the plan in a model's answer, whatever text surrounds it."""
    start, end = answer.find("{"), answer.rfind("}")
    if not 0 <= start < end:
        raise PlanInvalid("The answer contains no JSON object.")
    text = answer[start : end + 1].replace('"depends_on"', '"dependsOn"')
    try:
        drafted = msgspec.json.decode(text, type=_Plan)
    except msgspec.MsgspecError as error:
        raise PlanInvalid(f"The JSON object is not a plan: {error}") from None
    return tuple(map(_step, drafted.steps))


def _step(one: _Drafted) -> Step:
    mode, action = one.mode, one.action or _DEFAULT_ACTIONS.get(one.mode, "")
    if mode in ("", "converse") and action in ("", "message"):
        # A step without a mode is sent its input as a message.
        mode = action = ""
    return Step(one.id or one.step_id, one.agent or one.agent_slug, one.name, mode, action, one.depends_on, _input(one))


def _input(one: _Drafted) -> Raw | UnsetType:
    """Return the input of a step. An empty value in any form counts as no input, so the step gets its default input."""
    given = UNSET if one.input is UNSET or bytes(one.input) in (b"null", b'""') else Raw(bytes(one.input))
    if one.tool_name:
        call: dict[str, object] = {"toolName": one.tool_name, "input": {} if given is UNSET else given}
        if one.timeout_ms is not None:
            call["timeoutMs"] = one.timeout_ms
        return Raw(msgspec.json.encode(call))
    return Raw(msgspec.json.encode(one.message)) if given is UNSET and one.message else given


def repair(error: PlanInvalid) -> str:
    """Return the message for a model whose plan cannot be used."""
    return f"This plan cannot be used. {error.message} Answer with the corrected JSON object and nothing else."
