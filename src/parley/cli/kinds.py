"""What `parley new` can begin."""

from enum import StrEnum


class Kind(StrEnum):
    AGENT = "agent"
    NODE = "node"
    ADAPTER = "adapter"
    ORG = "org"
