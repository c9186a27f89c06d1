"""Parley: an exchange for agents. What an agent's author needs is here; the rest is in its rooms."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_ROOMS = {
    "parley.core.agents": ("Skill",),
    "parley.core.artifacts": ("Part",),
    "parley.core.events": ("Failed", "Rejected"),
    "parley.core.turns": ("ArtifactChunk", "Done", "NeedAuth", "NeedInput", "Note", "Reply", "Status", "Text"),
    "parley.drivers.function": ("agent",),
    "parley.engine.turns": ("Answer", "Turn"),
    "parley.errors": ("AgentError",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    """A name is fetched from its room when it is used first: the package loads in no time, whatever of it is needed."""
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_ROOM_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
