"""Which pages there are, and which of them the navigation shows: the one list that grows with a page."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from parley.console.desk import Desk
from parley.console.pages.adding import AddingPages
from parley.console.pages.agents import AgentPages
from parley.console.pages.conversations import ConversationPages
from parley.console.pages.entrance import EntrancePages
from parley.console.pages.inbox import InboxPages, count_waiting
from parley.console.pages.keys import KeyPages
from parley.console.pages.operations import OperationPages
from parley.console.pages.orchestrations import OrchestrationPages
from parley.console.pages.organisation import OrganisationPages
from parley.console.pages.page import Page
from parley.console.pages.pairing import PairingPages
from parley.console.pages.run import RunPages
from parley.console.pages.runs import RunsPages
from parley.console.pages.topology import TopologyPages
from parley.console.pages.versions import VersionPages
from parley.core.access import Principal
from parley.core.access import Scope as Right


class Pages(Protocol):
    def pages(self) -> Sequence[Page]: ...


class Section(Struct, frozen=True):
    """Pages that belong together. One without a label is not in the navigation."""

    name: str
    make: Callable[[Desk], Pages]
    label: str = ""
    path: str = ""
    icon: str = ""
    right: Right = "read"
    count: Callable[[Desk, Principal], Awaitable[int]] | None = None
    """A number beside the label, of what wants attention."""


SECTIONS: list[Section] = [
    Section("entrance", EntrancePages),
    Section("inbox", InboxPages, "Inbox", "/inbox", "inbox", count=count_waiting),
    Section("runs", RunsPages, "Runs", "/runs", "runs"),
    Section("runs", RunPages),
    Section("agents", AddingPages),
    Section("agents", PairingPages),
    Section("agents", AgentPages, "Agents", "/agents", "agents"),
    Section("conversations", VersionPages),
    Section("conversations", ConversationPages, "Conversations", "/conversations", "conversations"),
    Section("orchestrations", OrchestrationPages, "Orchestrations", "/orchestrations", "orchestrations"),
    Section("organisation", OrganisationPages, "Organisation", "/organisation", "organisation"),
    Section("topology", TopologyPages, "Topology", "/topology", "topology", "admin"),
    Section("operations", KeyPages),
    Section("operations", OperationPages, "Operations", "/operations", "operations", "admin"),
]
