"""The standard scenario: agents of every kind, paired runtimes, webhook receivers, and clients that use all of them."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from dev.simulation.actors import PairedFleet, steer, stop
from dev.simulation.nodes import NodeFleet
from parley import Done, NeedInput, Status, Text, Turn, agent
from parley.budgets.rules import LimitEntry, LimitValues
from parley.drivers.workflow import WorkflowDriver
from parley.execution.admission import StopKind
from parley.execution.driver import Driver
from parley.orchestrations.rules.plan import Rules, Step
from parley.paired.driver import EdgeDriver
from parley.runs.rules.agents import Agent, Limits, plain_skill
from parley.runs.rules.usage import Usage
from parley.testing.simulation.clients import ClientCommand, perform
from parley.testing.simulation.faults import KINDS, drawn
from parley.testing.simulation.invariants import MARK, over_budget
from parley.testing.simulation.loop import PROCESS
from parley.testing.simulation.shrink import WorldPlan
from parley.testing.simulation.world import Universe, World

REPLICAS, CLIENTS, COMMANDS, FAULTS = 3, 20, 200, 10
SENDING_S = 12.0
"""Simulated seconds in which commands begin and faults happen."""
ROOM = 2
BUDGET, CALL, BRANCHES = 50, 10, 3
"""Tokens of a tree of the agent `spender`, of each of its calls, and calls that it makes at once at most."""
LIMITS = (
    LimitEntry("agent", "spender", LimitValues(tree_tokens=BUDGET)),
    LimitEntry("agent", "branch", LimitValues(tree_tokens=BUDGET)),
)
PRINCIPALS = ("user:ann", "user:ann", "user:ann", "user:bob", "user:cyn")
"""Principals that ask the agent `room`, which serves them in turn."""


def plan(
    seed: int,
    commands: int = COMMANDS,
    faults: int = FAULTS,
    agents: Sequence[str] | None = None,
    kinds: Sequence[str] = KINDS,
) -> WorldPlan:
    """Return the plan of a world; `agents` are the agents that its clients ask, if not all, and `kinds` those of its
    faults."""
    dice = Random(f"{seed}/commands")
    made = [_command(dice, number, agents or ASKED) for number in range(commands)]
    return WorldPlan(seed, tuple(sorted(made, key=lambda one: one.at)), drawn(seed, faults, REPLICAS, SENDING_S, kinds))


ASKED = (
    "echo", "echo", "echo", "steps", "steps", "asker", "asker", "parent", "room", "room", "sleeper", "fragile",
    "flow", "flow", "boss", "edge", "edge", "slow", "node", "spender", "spender",
)  # fmt: skip


MORE = ("slow", "steps", "echo", "edge", "sleeper")


def _command(dice: Random, number: int, agents: Sequence[str]) -> ClientCommand:
    asked = dice.choice(agents)
    cancels = asked == "boss" or dice.random() < 0.15
    return ClientCommand(
        number % CLIENTS,
        round(dice.uniform(0.0, SENDING_S), 3),
        asked,
        f"{asked}-{number}",
        keyed=dice.random() < 0.8 or asked == "boss",
        streams=dice.random() < 0.35,
        hook=dice.random() < 0.12,
        more_after=round(dice.uniform(0.0, 0.6), 3) if asked in MORE and dice.random() < 0.4 else None,
        guarded=dice.random() < 0.5,
        principal=PRINCIPALS[number % len(PRINCIPALS)] if asked == "room" else "local",
        cancel_after=round(dice.choice((0.01, 0.1, 1.0, 3.0)) * dice.uniform(0.2, 1.0), 3) if cancels else None,
    )


def played(what: WorldPlan, told: bool = False) -> Universe:
    """Play a world to its end."""
    fleets: list[NodeFleet] = []
    world = World(
        what.seed,
        drivers,
        what.faults,
        REPLICAS,
        told=told,
        node_work=lambda id_, turn: fleets[0].work(id_, turn),
        limits=LIMITS,
    )
    world.checks.append(lambda: over_budget(world.database.tables, BUDGET, BRANCHES * CALL))
    fleets.append(NodeFleet(world))
    return world.play(lambda world: actors(world, what, fleets[0]))


def actors(world: World, what: WorldPlan, nodes: NodeFleet) -> Sequence[Coroutine[Any, Any, None]]:
    fleet = PairedFleet(world, "edge")
    world.breaks.append(lambda amount, seconds: _break_one(fleet, nodes, amount, seconds))
    nodes.start()
    commands = [_performed(world, command, nodes) for command in what.commands]
    stopped: list[tuple[StopKind, str]] = [("agent", "spender"), ("principal", "user:bob")]
    stops = [stop(world, kind, name, SENDING_S) for kind, name in stopped]
    return [fleet.pair(), nodes.operate(), *stops, *commands]


def _break_one(fleet: PairedFleet, nodes: NodeFleet, amount: float, seconds: float) -> None:
    """Break a process of the paired runtime, or a node."""
    broken = nodes if int(amount * 1000) % 2 else fleet
    broken.break_one(amount, seconds)


async def _performed(world: World, command: ClientCommand, nodes: NodeFleet) -> None:
    if command.agent == "node":
        return await nodes.delegate(command)
    dice = Random(f"{world.seed}/{command.text}/steering")
    steered = command.agent == "flow" and dice.random() < 0.4
    return await perform(world, command, (lambda run: steer(world, run, dice)) if steered else None)


# Agents. Their outputs carry the epoch of their turn, so that an output of a fenced executor is noticed.


def drivers(world: World, version: int) -> Sequence[Driver]:
    """Return the agents of a replica. A newer version says other things, and takes more steps at the end."""

    @agent("echo")
    async def echo(turn: Turn) -> AsyncGenerator[Any, None]:
        yield said(turn, f"v{version}")
        yield Text(turn.text)

    @agent("slow")
    async def slow(turn: Turn) -> AsyncGenerator[Any, None]:
        for number in range(6):
            yield said(turn, str(number))
            await asyncio.sleep(0.15)
        yield Done("done")

    @agent("steps", rescue="resume")
    async def steps(turn: Turn) -> AsyncGenerator[Any, None]:
        for after, name in pairwise(("", "one", "two", "three")):
            yield said(turn, await turn.step(name, worked, world, turn, name, after))
        yield Text("all steps")

    @agent("asker", rescue="resume")
    async def asker(turn: Turn) -> AsyncGenerator[Any, None]:
        if turn.answer is None:
            yield said(turn, "asking")
            yield NeedInput("May I?", choices=("yes", "no"))
        else:
            yield Text(f"The answer is {turn.answer}.")

    @agent("parent")
    async def parent(turn: Turn) -> AsyncGenerator[Any, None]:
        first = await turn.ask("steps", f"child 1 of {turn.text}")
        yield said(turn, first.state.value)
        second = await turn.ask("echo", f"child 2 of {turn.text}")
        yield Text(second.text)

    @agent("boss")
    async def boss(turn: Turn) -> AsyncGenerator[Any, None]:
        yield said(turn, "delegating")
        yield Text((await turn.ask("endless", f"child of {turn.text}")).text)

    @agent("endless")
    async def endless(turn: Turn) -> AsyncGenerator[Any, None]:
        yield said(turn, "until somebody cancels")
        await turn.sleep(3600.0)
        yield Text("slept")

    @agent("room", max_concurrent=ROOM)
    async def room(turn: Turn) -> AsyncGenerator[Any, None]:
        process = PROCESS.get() or world.loop.world
        world.watch.enter("room", ROOM, process, turn.run_id, turn.epoch)
        try:
            yield said(turn, "inside")
            await asyncio.sleep(Random(turn.text).choice((0.1, 0.1, 0.1, 4.0)))
            yield Text("was inside")
        finally:
            world.watch.leave("room", process, turn.run_id, turn.epoch)

    @agent("spender", rescue="resume")
    async def spender(turn: Turn) -> AsyncGenerator[Any, None]:
        yield said(turn, await turn.step("plan", paid, turn))
        asks = (turn.ask("branch", f"branch {number} of {turn.text}") for number in range(BRANCHES))
        await asyncio.gather(*asks)
        yield Text(await turn.step("sum", paid, turn))

    @agent("branch", rescue="resume")
    async def branch(turn: Turn) -> AsyncGenerator[Any, None]:
        for number in range(Random(turn.text).randint(1, 3)):
            yield said(turn, await turn.step(f"call {number}", paid, turn))
        yield Text("branch")

    @agent("sleeper", rescue="resume")
    async def sleeper(turn: Turn) -> AsyncGenerator[Any, None]:
        began = await turn.now()
        yield said(turn, await turn.step("before", worked, world, turn, "before"))
        await turn.sleep(1.6)
        yield Text(f"slept since {began:%H:%M:%S}")

    @agent("fragile", rescue="fail", timeout_s=20.0)
    async def fragile(turn: Turn) -> AsyncGenerator[Any, None]:
        await asyncio.sleep(0.1)
        yield said(turn, "once only")

    local: list[Driver] = [echo, slow, steps, asker, parent, boss, endless, room, sleeper, fragile, spender, branch]
    return [*local, flow(), edge()]


def said(turn: Turn, text: str) -> Status:
    return Status(text, mark=f"{MARK}{turn.epoch}")


async def worked(world: World, turn: Turn, name: str, after: str = "") -> str:
    """Do the work of a durable step."""
    world.watch.working(turn.run_id, turn.epoch, turn.number, name, after)
    await asyncio.sleep(0.02)
    return name


async def paid(turn: Turn) -> str:
    """Call a pretended model."""
    await asyncio.sleep(0.03)
    turn.record(Usage("model", CALL))
    return "paid"


def flow() -> Driver:
    steps = (
        Step("a", "steps"),
        Step("b", "echo"),
        Step("c", "room", depends_on=("a",)),
        Step("d", "echo", depends_on=("a", "b")),
        Step("e", "fragile", depends_on=("c", "d")),
    )
    rules = Rules(max_parallel=2, step_timeout_ms=60_000, auto_retry=True, max_retries=6, retry_delay_ms=200)
    return WorkflowDriver(_agent("flow"), steps, rules)


def edge() -> Driver:
    return EdgeDriver(_agent("edge"))


def _agent(slug: str) -> Agent:
    return Agent(slug, slug, slug, skills=(plain_skill(slug, slug, slug),), limits=Limits())
