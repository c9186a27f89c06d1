"""Registry of tasks, their states, artifacts and messages: the logs of runs, which survive a restart."""

from parley.runs.rules.state import Run, State
from parley.runs.rules.view import View
from parley.runs.service import Exchange as TaskRegistry

__all__ = ["Run", "State", "TaskRegistry", "View"]
