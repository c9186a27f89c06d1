"""Tasks, their states, artifacts and messages: a run's log is the registry, and it survives the process."""

from parley.core.runs import Run, State
from parley.core.views import View
from parley.engine.exchange import Exchange as TaskRegistry

__all__ = ["Run", "State", "TaskRegistry", "View"]
