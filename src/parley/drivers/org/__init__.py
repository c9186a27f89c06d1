"""An organisation as one agent: its kernel runs here, its roles and workflows come from a folder."""

from parley.drivers.org.driver import OrgDriver, Setup
from parley.drivers.org.following import following_organisations

__all__ = ["OrgDriver", "Setup", "following_organisations"]
