"""The server's configuration file, `a2a_config.json`."""

from parley.compat.organisation import settings_of
from parley.compat.orgfile import OrgFile, parse_orgfile, read_orgfile

__all__ = ["OrgFile", "parse_orgfile", "read_orgfile", "settings_of"]
