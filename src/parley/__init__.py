"""Parley: an exchange for agents. What an agent's author needs is here; the rest is in its rooms."""

from parley.core.agents import Skill
from parley.core.artifacts import Part
from parley.core.events import Failed, Rejected
from parley.core.turns import ArtifactChunk, Done, NeedAuth, NeedInput, Note, Reply, Status, Text
from parley.drivers.function import agent
from parley.engine.turns import Answer, Turn
from parley.errors import AgentError

__version__ = "0.1.0"

__all__ = [
    "AgentError",
    "Answer",
    "ArtifactChunk",
    "Done",
    "Failed",
    "NeedAuth",
    "NeedInput",
    "Note",
    "Part",
    "Rejected",
    "Reply",
    "Skill",
    "Status",
    "Text",
    "Turn",
    "agent",
]
