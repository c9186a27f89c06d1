"""Translation of SALUTE reports and PACE levels to A2A."""

from parley.drivers.org.organisation import STATES
from parley.orgkernel.pace import held, shown
from parley.orgkernel.salute import SaluteReport, status_text

__all__ = ["STATES", "SaluteReport", "held", "shown", "status_text"]
