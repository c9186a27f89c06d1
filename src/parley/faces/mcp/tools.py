"""An agent as a tool: its name, what it takes, and what it gives back."""

from typing import Annotated

from msgspec import Meta, Struct

from parley.core.access import Principal, may_use
from parley.core.agents import Agent, Skill
from parley.engine.exchange import Exchange
from parley.errors import Invalid

_STATES = [
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected",
]  # fmt: skip
_TEXT = {"type": "string"}
INPUT: dict[str, object] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "minLength": 1, "description": "What to say to the agent."},
        "conversation": {
            "type": "string",
            "description": "The conversationId of an earlier result, to go on with what was said there.",
        },
        "task": {
            "type": "string",
            "description": "The taskId of an earlier result that asked something, to answer it.",
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}
OUTPUT: dict[str, object] = {
    "type": "object",
    "properties": {
        "taskId": _TEXT,
        "conversationId": _TEXT,
        "agent": _TEXT,
        "state": {"type": "string", "enum": _STATES},
        "text": {"type": "string", "description": "What the agent said."},
        "question": {"type": "string", "description": "What it asks, when the state is input-required."},
        "artifacts": {
            "type": "array",
            "description": "What it has made; each can be read as a resource.",
            "items": {
                "type": "object",
                "properties": {"artifactId": _TEXT, "name": _TEXT, "uri": _TEXT, "mimeType": _TEXT},
                "required": ["artifactId", "uri"],
            },
        },
    },
    "required": ["taskId", "conversationId", "agent", "state", "text", "artifacts"],
}


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    message: Annotated[str, Meta(min_length=1)]
    conversation: str | None = None
    task: str | None = None


def usable(exchange: Exchange, principal: Principal) -> list[Agent]:
    """The agents that a principal may use with words alone: none that needs an extension of A2A."""
    return [agent for agent in exchange.agents.values() if may_use(principal, agent) and not _needs_more(agent)]


def agent_of(exchange: Exchange, principal: Principal, name: str) -> Agent:
    agent = exchange.agents.get(name)
    if agent is None or not may_use(principal, agent) or _needs_more(agent):
        raise Invalid(f"Unknown tool: {name[:80]}", field="name")
    return agent


def tool_of(agent: Agent) -> dict[str, object]:
    return {
        "name": agent.slug,
        "title": agent.name,
        "description": _description(agent),
        "inputSchema": INPUT,
        "outputSchema": OUTPUT,
    }


def _needs_more(agent: Agent) -> bool:
    return any(extension.required for extension in agent.extensions)


def _description(agent: Agent) -> str:
    """With its skills, unless the only one says the same again."""
    skills = [_skill(one) for one in agent.skills if one.description not in agent.description]
    return "\n".join((agent.description, "", "Skills:", *skills)) if skills else agent.description


def _skill(skill: Skill) -> str:
    example = f" (for example: {skill.examples[0]})" if skill.examples else ""
    return f"- {skill.name}: {skill.description}{example}"
