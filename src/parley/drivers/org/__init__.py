"""An organisation as one agent: its kernel runs in this process, its roles and workflows are read from a folder."""

from parley.drivers.org.driver import OrgDriver, Setup, following_organisations

__all__ = ["OrgDriver", "Setup", "following_organisations"]
