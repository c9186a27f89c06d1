"""SALUTE reports and PACE levels in the words of A2A."""

from parley.drivers.levels import STATES
from parley.orgkernel.pace import held, shown
from parley.orgkernel.salute import Report, status_text

__all__ = ["STATES", "Report", "held", "shown", "status_text"]
