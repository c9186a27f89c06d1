"""Agent-Zero as a driver: a turn becomes a message in one of its chats, and nobody's work goes on unwanted."""

import asyncio
from collections.abc import AsyncGenerator

from parley.core.agents import Agent
from parley.core.events import Canceled, Failed
from parley.core.runs import Run
from parley.core.turns import Output
from parley.drivers.agentzero.client import KeyClient, SessionClient
from parley.drivers.agentzero.keyed import KeyTurn
from parley.drivers.agentzero.options import AgentZeroOptions, check_options, places_of
from parley.drivers.agentzero.sessions import SessionTurn
from parley.drivers.agentzero.shown import owner
from parley.drivers.agentzero.watch import PACE_EMERGENCY, Watch
from parley.drivers.agentzero.words import Look
from parley.drivers.organised import Organised
from parley.drivers.remote.outside import OUTSIDE, Outside
from parley.drivers.remote.words import Lost, Refused
from parley.engine.turns import Turn
from parley.errors import ParleyError
from parley.telemetry import tell

STOP_S = 5.0
LAST_LOOK_S = 2.0
"""How long a chat is asked for its log when a turn was interrupted; files are fetched in what is left of the grace."""


class AgentZeroDriver:
    def __init__(self, agent: Agent, options: AgentZeroOptions, outside: Outside = OUTSIDE) -> None:
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
        """As it is defined; with an organisation, as that one says at the moment."""
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
        """Deliver the files of an interrupted turn, and report why it failed. Agent-Zero is asked once more."""
        work, watch = self._work(turn)
        try:
            async with asyncio.timeout(LAST_LOOK_S):
                await work.look()
        except (TimeoutError, Lost, Refused, ParleyError) as error:
            tell("agentzero.file_lost", run=turn.run_id, agent=self._agent.slug, why=str(error))
        async for output in watch.salvaged(ending):
            yield output

    async def _outputs(self, turn: Turn, work: SessionTurn | KeyTurn) -> AsyncGenerator[Output, None]:
        try:
            async for output in work.outputs():
                yield output
        except Lost as lost:
            yield _lost(lost, begun=work.begun)
        except Refused as refused:
            yield Failed("agentzero_refused", f"Agent-Zero refused: {refused.words}.")
        except ParleyError as error:
            tell("agentzero.not_set_up", run=turn.run_id, agent=self._agent.slug, why=error.message)
            yield Failed("agentzero_refused", "This Agent-Zero is not set up right; its operator has the details.")

    def _work(self, turn: Turn) -> tuple[SessionTurn | KeyTurn, Watch]:
        client = self._key if self._keyed else self._session
        watch = Watch(turn, self._options, client, self._organised)
        return KeyTurn(turn, self._key, watch) if self._keyed else SessionTurn(turn, self._session, watch), watch

    async def forsake(self, run: Run) -> None:
        """End the work over there, if it goes on and is still this run's. A chat that is at rest keeps its memory."""
        context = run.notes.get("context")
        if not context:
            return
        try:
            async with asyncio.timeout(STOP_S):
                await self._stopped(run, context)
        except (TimeoutError, Refused, ParleyError) as error:
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
            except Lost:
                pass
            # A message that was on its way when the turn was broken off may still arrive.
            await asyncio.sleep(pause)
        return None

    def _is_of(self, look: Look, run: Run) -> bool:
        """With a key Agent-Zero names the messages itself, and there is no telling."""
        return self._keyed or owner(look.items) == run.id


def _lost(lost: Lost, *, begun: bool) -> Failed:
    if begun:
        return Failed("agentzero_lost", f"Agent-Zero cannot be reached any more ({lost.why}).")
    if lost.unsent:
        return Failed("agentzero_unreachable", f"Agent-Zero cannot be reached ({lost.why}).")
    words = f"The connection broke before Agent-Zero answered ({lost.why}); it may have begun all the same."
    return Failed("agentzero_lost", words)
