"""The driver `agentzero` in a definition: where it is, and who we are to it."""

from pathlib import Path

from msgspec.structs import replace

from parley.core.agents import Agent
from parley.definitions.kind import Site
from parley.drivers.agentzero import AgentZeroDriver, AgentZeroOptions, blank_agentzero
from parley.errors import Invalid


def start_agentzero(slug: str, options: AgentZeroOptions, site: Site) -> Agent:
    return blank_agentzero(slug)


def build_agentzero(agent: Agent, options: AgentZeroOptions, site: Site) -> AgentZeroDriver:
    if (options.reports or options.organisation) is not None and agent.limits.max_concurrent != 1:
        raise Invalid("reports name no task: with them max_concurrent must be 1", field="reports")
    return AgentZeroDriver(agent, replace(options, **_placed(options, site.folder)))


def _placed(options: AgentZeroOptions, folder: Path) -> dict[str, str]:
    """Paths are relative to the definition."""
    named = {name: getattr(options, name) for name in ("key_file", "organisation", "reports", "roles", "workflows")}
    return {name: str((folder / path).absolute()) for name, path in named.items() if path is not None}
