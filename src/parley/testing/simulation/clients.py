"""Clients of a simulated world: they send, follow, answer and cancel, and repeat each call until they get an answer."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from msgspec import Struct

from parley.errors import AnswerInvalid, GenerationMismatch, InvalidState, NotCancelable, ParleyError, RunEnded
from parley.ids import RunId
from parley.push.hooks import Hook
from parley.runs.log import Outcome
from parley.runs.requests import Send
from parley.runs.rules.access import LOCAL, Principal
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import ENDINGS, Event
from parley.runs.rules.state import Run, evolve
from parley.testing.simulation.invariants import AFTER_INPUT, Followed, SentInput
from parley.testing.simulation.loop import PROCESS
from parley.testing.simulation.replica import CallBroken, SimulatedConnection, SimulatedEngine, stream
from parley.testing.simulation.world import World

POLL_S = (0.2, 1.0)
KEEP_ALIVE_S = 3.0
LONG_POLL_S = 1.5


class ClientCommand(Struct, frozen=True):
    """One piece of work of a client: send a message, and see it through to its end."""

    client: int
    at: float
    agent: str
    text: str
    keyed: bool = True
    streams: bool = False
    """Follow the run from its beginning, instead of asking for its state from time to time."""
    hook: bool = False
    cancel_after: float | None = None
    more_after: float | None = None
    """Give the run another message after so many seconds, whatever it does then."""
    guarded: bool = False
    """Give it two further messages at once, each only for the generation that the client has seen last."""
    answers: tuple[str, ...] = ("yes",)
    principal: str = "local"
    """The principal that sends the message."""
    key: str = ""
    """Tells this command from others with the same text."""

    def __str__(self) -> str:
        how = ["with a key" if self.keyed else "without a key", *(["streams"] if self.streams else [])]
        how += ["webhook"] if self.hook else []
        how += [f"more after {self.more_after:.2f} s"] if self.more_after is not None else []
        how += ["for its generation"] if self.more_after is not None and self.guarded else []
        how += [f"cancel after {self.cancel_after:.2f} s"] if self.cancel_after is not None else []
        how += [f"as {self.principal}"] if self.principal != "local" else []
        return f"{self.at:7.3f} s  client {self.client} asks {self.agent}: {self.text!r} ({', '.join(how)})"


Meanwhile = Callable[[RunId], Coroutine[Any, Any, None]]
"""Something else to do with a run that has begun."""


async def perform(world: World, command: ClientCommand, meanwhile: Meanwhile | None = None) -> None:
    """Carry out a command."""
    client = _Client(world, command)
    await asyncio.sleep(max(0.0, command.at - world.loop.time()))
    await client.perform(meanwhile)


class _Client:
    def __init__(self, world: World, command: ClientCommand) -> None:
        self._world = world
        self._command = command
        self._dice = Random(f"{world.seed}/{command.text}{command.key}")
        self._name = f"client {command.client}"
        self._answered = 0
        self._known: Run | None = None
        """The state of the run that it was shown last."""

    async def perform(self, meanwhile: Meanwhile | None) -> None:
        command = self._command
        run = await self._sent()
        works: list[Coroutine[Any, Any, None]] = [self._follow(run.id) if command.streams else self._poll(run.id)]
        if command.cancel_after is not None:
            works.append(self._cancel(run.id, command.cancel_after))
        if command.more_after is not None:
            works.append(self._give_more(run, command.more_after))
            works += [self._give_more(run, command.more_after, 2)] if command.guarded else []
        if meanwhile is not None:
            works.append(meanwhile(run.id))
        await asyncio.gather(*works)

    async def _call(self, what: str, work: Callable[[SimulatedEngine], Any]) -> Any:
        async def handled(engine: SimulatedEngine, gone: "asyncio.Future[None]") -> Any:
            return await work(engine)

        return await self._world.ask(handled, what, self._dice)

    async def _sent(self) -> Run:
        command, history = self._command, self._world.history
        text, name = command.text, f"{command.text}{command.key}"
        given = SentInput(name, command.agent, command.keyed)
        history.inputs.append(given)
        message, sender = Message(name, (text_part(text),)), Principal.parse(command.principal)
        key = name if command.keyed else None

        async def send(engine: SimulatedEngine) -> Run:
            given.attempts += 1
            outcome: Outcome = await engine.exchange.send(Send(command.agent, sender, message, key=key))
            if command.hook:
                hook = Hook(outcome.run.id, f"http://receiver-{command.client % 3}/")
                await engine.push.attach(outcome.run, hook, AFTER_INPUT, replayed=outcome.replayed)
            return outcome.run

        run: Run = await self._call("send", send)
        self._world.watch.acknowledged(run, self._name)
        given.run = run.id
        if command.hook:
            history.hooks.append(run.id)
        return run

    async def _poll(self, run_id: RunId) -> None:
        """Ask for the state of the run until it has ended; answer its questions."""
        while True:
            run = await self._get(run_id)
            if run.ended:
                return
            if run.settled:
                await self._answer(run)
            await asyncio.sleep(self._dice.uniform(*POLL_S))

    async def _get(self, run_id: RunId) -> Run:
        """Ask for the state of the run: as it is, or once it has a higher generation than the client has seen."""
        known, waits = self._known, self._dice.random() < 0.4

        async def get(engine: SimulatedEngine) -> Run:
            run = await engine.exchange.visible(run_id, LOCAL)
            return await engine.exchange.outgrown(run, known.generation, LONG_POLL_S) if known and waits else run

        run: Run = await self._call("get", get)
        # Another task of the client may have been shown a newer state meanwhile.
        self._world.watch.shown(run, known or run, self._name)
        if self._known is None or self._known.version < run.version:
            self._known = run
        return run

    async def _answer(self, run: Run) -> None:
        """Answer the open question; of a repeated answer with the same key one is taken."""
        choices = self._command.answers
        text = choices[min(self._answered, len(choices) - 1)]
        key = f"answer-{self._command.text}{self._command.key}-{run.epoch}"
        message = Message(key, (text_part(text),))

        async def give(engine: SimulatedEngine) -> Run:
            send = Send(run.agent, LOCAL, message, run.id, key=key)
            return (await engine.exchange.send(send)).run

        try:
            answered = await self._call("answer", give)
            self._world.watch.acknowledged(answered, self._name)
            self._answered += 1
        except (RunEnded, InvalidState, AnswerInvalid):
            return

    async def _give_more(self, run: Run, after_s: float, number: int = 1) -> None:
        """Give the run another message, with a key, unless it has ended, or has changed in the meantime."""
        await asyncio.sleep(after_s)
        name = f"{self._command.text}{self._command.key} more {number}"
        given = SentInput(name, run.agent, keyed=True)
        self._world.history.inputs.append(given)
        message = Message(name, (text_part("and more"),))
        known = await self._get(run.id) if self._command.guarded else None
        send = Send(run.agent, LOCAL, message, run.id, key=name, generation=known and known.generation)

        async def give(engine: SimulatedEngine) -> Run:
            return (await engine.exchange.send(send)).run

        try:
            after: Run = await self._call("more", give)
        except (RunEnded, AnswerInvalid, GenerationMismatch):
            return
        self._world.watch.acknowledged(after, self._name)
        if known is not None:
            self._world.watch.guarded(after, name, known.generation)
        given.run = run.id

    async def _cancel(self, run_id: RunId, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            run: Run = (await self._call("cancel", lambda engine: engine.exchange.cancel(run_id, LOCAL))).run
        except NotCancelable:
            return
        self._world.watch.acknowledged(run, self._name)
        if run.ended:
            self._world.history.canceled.append(run_id)

    async def _follow(self, run_id: RunId) -> None:
        """Follow the run from its beginning to its end, over as many connections as that takes."""
        reader = Followed(run_id)
        self._world.history.followed.append(reader)
        while not reader.ended:
            try:
                await self._read(reader)
            except CallBroken:
                await asyncio.sleep(0.02 + self._dice.random() * 0.2)
            except ParleyError as error:
                if error.code not in ("store_unavailable", "stopping"):
                    raise
                await asyncio.sleep(0.05 + self._dice.random() * 0.2)

    async def _read(self, reader: Followed) -> None:
        world, process = self._world, PROCESS.get() or self._world.loop.world
        world.history.operations["follow"] += 1

        async def work(engine: SimulatedEngine, gone: "asyncio.Future[None]", connection: SimulatedConnection) -> None:
            exchange, run_id = engine.exchange, RunId(reader.run)
            with await exchange.follow(run_id, reader.cursor) as follower:
                run = (await exchange.view(run_id, upto=reader.cursor)).run if reader.cursor else None
                while not gone.done():
                    events = await follower.next(KEEP_ALIVE_S)
                    for event in events:
                        assert event.payload is not None
                        run = evolve(run, run_id, event.seq, event.at, event.payload)
                        connection.say((event, run.generation))
                    if events and events[-1].type in ENDINGS:
                        return

        async for event, generation in stream(self._dice.choice(world.replicas), process, work):
            await self._take(reader, event, generation)

    async def _take(self, reader: Followed, event: Event, generation: int) -> None:
        self._world.watch.seen(reader, event, generation)
        if event.type in ENDINGS:
            reader.ended = True
        elif event.type in ("input_required", "auth_required"):
            run = await self._get(RunId(reader.run))
            if run.settled and not run.ended:
                await self._answer(run)
