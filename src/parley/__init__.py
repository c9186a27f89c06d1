"""Parley, a server for agents. This module exports the names that an agent author needs."""

# pyright: reportImportCycles=false
# A type checker sees the imports below; a program imports each module when one of its names is used.
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.app.application import Parley
    from parley.drivers.framework import ask_caller, emit
    from parley.drivers.function import agent
    from parley.errors import AgentError, StepFailed
    from parley.execution.rules import ArtifactChunk, Done, NeedAuth, NeedInput, Note, Reply, Status, Text
    from parley.execution.turn import Turn
    from parley.runs.rules.agents import Skill
    from parley.runs.rules.content import Part
    from parley.runs.rules.events import Failed, Rejected
    from parley.runs.rules.state import State
    from parley.runs.rules.usage import Usage
    from parley.runs.rules.view import Answer
    from parley.settings import Settings

__version__ = "0.2.0"

__all__ = [
    "AgentError",
    "Answer",
    "ArtifactChunk",
    "Done",
    "Failed",
    "NeedAuth",
    "NeedInput",
    "Note",
    "Parley",
    "Part",
    "Rejected",
    "Reply",
    "Settings",
    "Skill",
    "State",
    "Status",
    "StepFailed",
    "Text",
    "Turn",
    "Usage",
    "agent",
    "ask_caller",
    "emit",
]

_MODULES = {
    "parley.app.application": ("Parley",),
    "parley.runs.rules.agents": ("Skill",),
    "parley.runs.rules.view": ("Answer",),
    "parley.runs.rules.content": ("Part",),
    "parley.runs.rules.events": ("Failed", "Rejected"),
    "parley.runs.rules.state": ("State",),
    "parley.runs.rules.usage": ("Usage",),
    "parley.execution.rules": ("ArtifactChunk", "Done", "NeedAuth", "NeedInput", "Note", "Reply", "Status", "Text"),
    "parley.drivers.framework": ("ask_caller", "emit"),
    "parley.drivers.function": ("agent",),
    "parley.execution.turn": ("Turn",),
    "parley.errors": ("AgentError", "StepFailed"),
    "parley.settings": ("Settings",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import parley` stays fast."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found: object = getattr(import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:
        from parley.extras import explained

        raise explained(error) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
