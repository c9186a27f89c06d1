"""An organisation as one agent: its kernel runs here, or elsewhere; its roles and workflows come from a folder."""

from parley.drivers.org.described import Front, Organised
from parley.drivers.org.driver import OrgDriver, Setup
from parley.drivers.org.following import following_organisations

__all__ = ["Front", "OrgDriver", "Organised", "Setup", "following_organisations"]
