"""Reader of the configuration file, `a2a_config.json`."""

from parley.compat.organisation import OrgFile, parse_orgfile, read_orgfile, settings_of

__all__ = ["OrgFile", "parse_orgfile", "read_orgfile", "settings_of"]
