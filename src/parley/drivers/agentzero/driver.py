"""Agent-Zero as a driver: a turn becomes a message in one of its chats, and a cancel stops the work there."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from msgspec.structs import replace

from parley.drivers.agentzero.chat import Look, owner
from parley.drivers.agentzero.client import KeyClient, SessionClient
from parley.drivers.agentzero.options import AgentZeroOptions, blank_agentzero, check_options, places_of
from parley.drivers.agentzero.turns import KeyTurn, SessionTurn
from parley.drivers.agentzero.watch import PACE_EMERGENCY, Watch
from parley.drivers.kind import Site
from parley.drivers.org.organisation import Organised
from parley.drivers.remote.connections import OUTSIDE, OutboundConnections
from parley.drivers.remote.translation import ConnectionLost, RemoteRefused
from parley.errors import Invalid, ParleyError
from parley.execution.rules import Output
from parley.execution.turn import Turn
from parley.runs.rules.agents import Agent
from parley.runs.rules.events import Canceled, Failed
from parley.runs.rules.state import Run
from parley.telemetry import tell

STOP_S = 5.0
LAST_LOOK_S = 2.0
"""Time for reading the chat's log after a turn was interrupted. Files are fetched in the rest of the grace period."""


class AgentZeroDriver:
    def __init__(self, agent: Agent, options: AgentZeroOptions, outside: OutboundConnections = OUTSIDE) -> None:
        check_options(options)
        self._agent = agent
        self._options = options
        self._keyed = any(one is not None for one in (options.key, options.key_from, options.key_file))
        self._session = SessionClient(options, outside)
        self._key = KeyClient(options, outside)
        self._organised = Organised(places_of(options), agent.slug)

    @property
    def url(self) -> str:
        return self._options.url

    @property
    def agent(self) -> Agent:
        """The agent. With an organisation, fields that its definition leaves out are filled from the active one."""
        return self._organised.described(self._agent)

    @property
    def options(self) -> AgentZeroOptions:
        return self._options

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AgentZeroDriver):
            return False
        return (self._agent, self._options) == (other._agent, other._options)

    def __hash__(self) -> int:
        return hash((self._agent.slug, self._options.url))

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        work, watch = self._work(turn)
        async for output in self._outputs(turn, work):
            if isinstance(output, Failed) and output.code != PACE_EMERGENCY:
                async for partial in watch.salvaged(output):
                    yield partial
                return
            yield output

    async def salvage(self, turn: Turn, ending: Failed | Canceled) -> AsyncGenerator[Output, None]:
        """Deliver the files of an interrupted turn, and report why it failed. Reads the chat once more for that."""
        work, watch = self._work(turn)
        try:
            async with asyncio.timeout(LAST_LOOK_S):
                await work.look()
        except (TimeoutError, ConnectionLost, RemoteRefused, ParleyError) as error:
            tell("agentzero.file_lost", run=turn.run_id, agent=self._agent.slug, why=str(error))
        async for output in watch.salvaged(ending):
            yield output

    async def _outputs(self, turn: Turn, work: SessionTurn | KeyTurn) -> AsyncGenerator[Output, None]:
        try:
            async for output in work.outputs():
                yield output
        except ConnectionLost as lost:
            yield _lost(lost, begun=work.begun)
        except RemoteRefused as refused:
            yield Failed("agentzero_refused", f"Agent-Zero refused: {refused.words}.")
        except ParleyError as error:
            tell("agentzero.not_set_up", run=turn.run_id, agent=self._agent.slug, why=error.message)
            yield Failed("agentzero_refused", "This Agent-Zero is misconfigured; its operator has the details.")

    def _work(self, turn: Turn) -> tuple[SessionTurn | KeyTurn, Watch]:
        client = self._key if self._keyed else self._session
        watch = Watch(turn, self._options, client, self._organised)
        return KeyTurn(turn, self._key, watch) if self._keyed else SessionTurn(turn, self._session, watch), watch

    async def cancel_work(self, run: Run) -> None:
        """Stop the work in Agent-Zero if it is still running and still belongs to this run. An idle chat is kept, with
        its memory."""
        context = run.notes.get("context")
        if not context:
            return
        try:
            async with asyncio.timeout(STOP_S):
                await self._stopped(run, context)
        except (TimeoutError, RemoteRefused, ParleyError) as error:
            tell("agentzero.not_stopped", run=run.id, agent=run.agent, why=getattr(error, "words", "timeout"))

    async def _stopped(self, run: Run, context: str) -> None:
        client = self._key if self._keyed else self._session
        for pause in (0.2, 0.5, 1.0, 2.0, 5.0):
            try:
                look = await client.look(context)
                if look.running and self._is_of(look, run):
                    return await client.stop(context)
                if run.notes.get("sent") == run.notes.get("sending"):
                    return None
            except ConnectionLost:
                pass
            # A message that was being sent when the turn was interrupted may still arrive.
            await asyncio.sleep(pause)
        return None

    def _is_of(self, look: Look, run: Run) -> bool:
        """Tell whether the chat works for this run. With an API key the answer is always True: Agent-Zero chooses the
        message ids itself, so the owner cannot be found."""
        return self._keyed or owner(look.items) == run.id


def _lost(lost: ConnectionLost, *, begun: bool) -> Failed:
    if begun:
        return Failed("agentzero_lost", f"The connection to Agent-Zero was lost ({lost.why}).")
    if lost.unsent:
        return Failed("agentzero_unreachable", f"Agent-Zero cannot be reached ({lost.why}).")
    words = f"The connection broke before Agent-Zero answered ({lost.why}); it may still have started the work."
    return Failed("agentzero_lost", words)


# The driver `agentzero` in a definition: its URL, and our credentials for it.


def start_agentzero(slug: str, options: AgentZeroOptions, site: Site) -> Agent:
    return blank_agentzero(slug)


def build_agentzero(agent: Agent, options: AgentZeroOptions, site: Site) -> AgentZeroDriver:
    if (options.reports or options.organisation) is not None and agent.limits.max_concurrent != 1:
        raise Invalid("max_concurrent must be 1, because reports do not name their task", field="reports")
    return AgentZeroDriver(agent, replace(options, **_placed(options, site.folder)))


def _placed(options: AgentZeroOptions, folder: Path) -> dict[str, str]:
    """Make the paths in the options absolute; they are relative to the definition."""
    named = {name: getattr(options, name) for name in ("key_file", "organisation", "reports", "roles", "workflows")}
    return {name: str((folder / path).absolute()) for name, path in named.items() if path is not None}
