"""How a language model is asked for a plan, and how its answer is read."""

import re
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.agents import Agent
from parley.core.canonical import Fields, Json, fields_of
from parley.core.mcp import Offer
from parley.core.plans import MAX_STEPS, Refusal, Step, Steps
from parley.errors import PlanInvalid

HEAD = "You plan work that other agents carry out."
_OFFER = re.compile(r"^- ([a-z0-9_-]+): ", re.MULTILINE)
_WORDS = 300
"""Characters of a description that a model is shown."""
_DEFAULT_ACTIONS = {"tool": "execute", "plan": "create", "build": "create"}


class Candidate(Struct, frozen=True):
    """An agent that may carry out steps of a plan."""

    agent: Agent
    actions: tuple[tuple[str, str], ...] = ()
    """The modes and actions it can be asked for, beside being sent a message."""
    tools: tuple[Offer, ...] = ()


class _Drafted(Struct, rename="camel"):
    """A step as a model writes it, in the words of the instructions or of a request for the same action: `stepId` and
    `agentSlug`, `toolName` beside `input`, `message`. `dependsOn` and `depends_on` are both understood."""

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
    """What a model has to know to plan; `more` are the agent's own instructions."""
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
    """The agents in the instructions for a plan; none in any other."""
    return _OFFER.findall(instructions) if instructions.startswith(HEAD) else []


def refusal_among(candidates: Sequence[Candidate]) -> Refusal:
    """Tells why a step cannot be carried out by these agents."""
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
        return "its input has to name a `toolName`, and what the tool is given as the object `input`."
    tool = next((each for each in one.tools if name in (each.name, each.full)), None)
    if tool is None:
        return f"agent {step.agent} has no tool {name}; it has {', '.join(each.name for each in one.tools)}."
    required = tool.schema.get("required", [])
    missing = [str(each) for each in required if each not in asked] if isinstance(required, list) else []
    return f"the tool {name} also needs in its input: {', '.join(missing)}." if missing else None


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
    return tuple(map(_step, drafted.steps))


def _step(one: _Drafted) -> Step:
    mode, action = one.mode, one.action or _DEFAULT_ACTIONS.get(one.mode, "")
    if mode in ("", "converse") and action in ("", "message"):
        # A step without a mode is sent its input as a message.
        mode = action = ""
    return Step(
        one.id or one.step_id, one.agent or one.agent_slug, one.name, mode, action, one.depends_on, _input(one)
    )  # fmt: skip


def _input(one: _Drafted) -> Raw | UnsetType:
    """Nothing, however it is written, leaves the step to what it is given without an input."""
    given = UNSET if one.input is UNSET or bytes(one.input) in (b"null", b'""') else Raw(bytes(one.input))
    if one.tool_name:
        call: dict[str, object] = {"toolName": one.tool_name, "input": {} if given is UNSET else given}
        if one.timeout_ms is not None:
            call["timeoutMs"] = one.timeout_ms
        return Raw(msgspec.json.encode(call))
    return Raw(msgspec.json.encode(one.message)) if given is UNSET and one.message else given


def repair(error: PlanInvalid) -> str:
    """What a model is told whose plan cannot be used."""
    return f"This plan cannot be used. {error.message} Answer with the corrected JSON object and nothing else."
