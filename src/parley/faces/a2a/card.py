"""The agent card: what a client must know before it speaks to an agent."""

from typing import Any

from parley.core.agents import Agent, Skill

EXTENSIONS: list[dict[str, Any]] = [
    {
        "uri": "urn:parley:extension:resumable-streams:1",
        "description": "Every stream event has an id; `Last-Event-ID` resumes a stream after it, also after a restart.",
        "required": False,
    },
    {
        "uri": "urn:parley:extension:idempotency-key:1",
        "description": "`Idempotency-Key` makes a send repeatable: the same key and message lead to the same task.",
        "required": False,
    },
]


def card(agent: Agent, base_url: str) -> dict[str, Any]:
    return {
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "supportedInterfaces": [
            {"url": f"{base_url}/agents/{agent.slug}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "capabilities": {"streaming": agent.streaming, "pushNotifications": False, "extensions": EXTENSIONS},
        "defaultInputModes": list(agent.input_modes),
        "defaultOutputModes": list(agent.output_modes),
        "skills": [_skill(skill) for skill in agent.skills],
    }


def _skill(skill: Skill) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "id": skill.id, "name": skill.name, "description": skill.description, "tags": list(skill.tags),
    }  # fmt: skip
    if skill.examples:
        wire["examples"] = list(skill.examples)
    return wire
