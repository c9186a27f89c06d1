"""Planted faults: each breaks one rule of the engine, as a careless change would. The simulation must find them all."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from parley.budgets.service import BudgetCheck
from parley.errors import LeaseLost
from parley.execution import executor as executor_module
from parley.execution import steps as steps_module
from parley.execution.cluster import Slots
from parley.execution.executor import Executor
from parley.execution.membership import Membership
from parley.execution.outbox import Outbox
from parley.execution.turn_order import AgentQueue, Served
from parley.ids import RunId
from parley.nodes import delegations as delegations_module
from parley.nodes.liveness import Liveness
from parley.paired.claims import PairedClaims
from parley.paired.leases import Leases
from parley.push.delivery import HookDelivery, Verdict
from parley.push.hooks import Hooks
from parley.runs import children as children_module
from parley.runs import log as log_module
from parley.runs import service as service_module
from parley.runs.children import Children
from parley.runs.log import Commands, Outcome
from parley.runs.rules import commands as rules
from parley.runs.rules import state as state_module
from parley.runs.rules.events import Rescued, Started, Stepped
from parley.runs.rules.state import is_update
from parley.runs.service import Exchange
from parley.runs.streams import Follower, Streams
from parley.stores import group_commit
from parley.stores import nodes as nodes_module
from parley.testing.simulation.database import SimulatedCluster

Patch = pytest.MonkeyPatch


async def _nothing(*_: object, **__: object) -> None:
    return None


def no_epoch_check(patch: Patch) -> None:
    patch.setattr(rules, "_check_executor", lambda run, epoch: rules._not_ended(run))


def no_end_check(patch: Patch) -> None:
    def only_the_epoch(run: Any, epoch: int) -> None:
        if epoch != run.epoch:
            raise LeaseLost("Another executor works on this run.")

    patch.setattr(rules, "_check_executor", only_the_epoch)


def rescue_keeps_the_epoch(patch: Patch) -> None:
    recover = rules._recover

    def kept(run: Any, command: Any) -> Any:
        return [
            Rescued(run.epoch, one.attempt, one.how) if isinstance(one, Rescued) else one
            for one in recover(run, command)
        ]

    patch.setattr(rules, "_recover", kept)


def begin_without_looking(patch: Patch) -> None:
    patch.setattr(rules, "_started", lambda run, command: Started(run.epoch + 1, command.replica))


def unread_input_is_forgotten(patch: Patch) -> None:
    emit = rules._emit

    def ended(run: Any, command: Any) -> Any:
        found = emit(run, command)
        return [command.report] if found and type(found[0]).__name__ == "TurnEnded" else found

    patch.setattr(rules, "_emit", ended)


def wake_before_commit(patch: Patch) -> None:
    write = Commands._write

    def early(self: Any, box: Any, entries: Any, made: Any, fresh: bool) -> None:
        if made.events and not made.refused:
            self._published(made.run, made.events)
        write(self, box, entries, made, fresh)

    patch.setattr(Commands, "_write", early)


def acknowledge_before_commit(patch: Patch) -> None:
    write = Commands._write

    def early(self: Any, box: Any, entries: Any, made: Any, fresh: bool) -> None:
        write(self, box, entries, made, fresh)
        for entry in made.entries:
            entry.succeed()

    patch.setattr(Commands, "_write", early)


def forget_the_key(patch: Patch) -> None:
    async def unkeyed(self: Any, run_id: Any, commands: Any, key: Any, expected: Any, changes: Any) -> Any:
        return await self.submit(run_id, *commands, expected=expected, changes=changes)

    patch.setattr(Commands, "_execute_once", unkeyed)


def time_runs_backwards(patch: Patch) -> None:
    patch.setattr(log_module, "max", lambda clock, before: clock, raising=False)


def conflict_counts_as_success(patch: Patch) -> None:
    answer = group_commit.answer
    patch.setattr(group_commit, "answer", lambda settled: answer([(done, None) for done, _ in settled]))


def cancel_is_lost_after_a_conflict(patch: Patch) -> None:
    def known(self: Any, run_id: RunId) -> int:
        box = self._boxes.get(run_id)
        return box.run.version if box is not None and box.run is not None else 0

    patch.setattr(Commands, "written", known)


def cancel_stays_on_its_replica(patch: Patch) -> None:
    patch.setattr(Executor, "heard", _nothing)
    published = Exchange._published

    def deaf(self: Any, run: Any, events: Any) -> None:
        cancel, self.execution.cancel = self.execution.cancel, lambda run: None
        try:
            published(self, run, events)
        finally:
            self.execution.cancel = cancel

    patch.setattr(Exchange, "_published", deaf)


def children_go_on(patch: Patch) -> None:
    patch.setattr(Children, "cancel", _nothing)
    patch.setattr(Executor, "_is_orphan", _never)


async def _never(*_: object) -> bool:
    return False


def children_of_the_canceled_begin(patch: Patch) -> None:
    begin = Exchange.begin

    async def slowly(self: Exchange, run_id: RunId, start: rules.Start) -> Outcome:
        """Leave time for a cancel between the moment a child is announced and the one in which it exists: that much is
        allowed."""
        if start.parent:
            await asyncio.sleep(0.2)
        return await begin(self, run_id, start)

    patch.setattr(Exchange, "begin", slowly)
    patch.setattr(Executor, "_is_orphan", _never)
    patch.setattr(service_module, "lets_go", lambda run: False)
    patch.setattr(children_module, "lets_go", lambda run: False)


def another_child_after_a_rescue(patch: Patch) -> None:
    named = uuid.uuid5
    count = iter(range(10**9))
    patch.setattr(service_module.uuid, "uuid5", lambda space, name: named(space, f"{name}{next(count)}"))


def dead_replicas_are_forgotten(patch: Patch) -> None:
    async def forgotten(self: Any, replica: str) -> None:
        await self._cluster.forget(replica)

    patch.setattr(Membership, "_take_up", forgotten)
    patch.setattr(SimulatedCluster, "_dead", lambda self: [])


def lost_turns_stay_lost(patch: Patch) -> None:
    patch.setattr(Membership, "_take_back", _nothing)


def a_lost_lease_is_ignored(patch: Patch) -> None:
    patch.setattr(Executor, "abandon_slots", _nothing)
    patch.setattr(Executor, "abandon", _nothing)


def slots_are_given_back_twice(patch: Patch) -> None:
    give = Slots.give

    async def twice(self: Any, agent: str, replica: str) -> None:
        await give(self, agent, replica)
        if self._held[agent, replica] > 0:
            await give(self, agent, replica)

    patch.setattr(Slots, "give", twice)


def slots_are_kept(patch: Patch) -> None:
    patch.setattr(Slots, "give", _nothing)


def slots_are_not_needed(patch: Patch) -> None:
    take = Slots.take

    async def taken(self: Any, agent: str, limit: int) -> str:
        return await take(self, agent, limit) or self._cluster.replica

    patch.setattr(Slots, "take", taken)


def sleepers_sleep_on(patch: Patch) -> None:
    patch.setattr(Executor, "wake_sleepers", _nothing)


def steps_are_repeated(patch: Patch) -> None:
    patch.setattr(steps_module, "recorded_steps", lambda turn, events: {})


def steps_are_told_before_they_are_durable(patch: Patch) -> None:
    async def hasty(self: Any, *reports: Any) -> None:
        for report in reports:
            await self.put(report)

    patch.setattr(Outbox, "commit", hasty)


def budgets_are_not_checked(patch: Patch) -> None:
    patch.setattr(BudgetCheck, "check", _nothing)


def queues_serve_first_come_first_served(patch: Patch) -> None:
    def first(queue: AgentQueue, agent: str, beginning: Any) -> Any:
        head = min(queue.heads, key=lambda one: one.arrival, default=None)
        return head and (head, Served(agent, head.principal, queue.last + 1))

    patch.setattr(executor_module, "next_served", first)


def streams_hear_only_their_own_replica(patch: Patch) -> None:
    patch.setattr(Streams, "reach", lambda self, run_id, version: None)


def streams_show_events_twice(patch: Patch) -> None:
    def unchecked(self: Any) -> Any:
        return self._batches.popleft().events if self._batches else []

    patch.setattr(Follower, "_buffer_next", unchecked)


def refused_posts_count_as_delivered(patch: Patch) -> None:
    post = HookDelivery._post

    async def always(self: Any, hook: Any, run: Any, event: Any) -> Verdict:
        await post(self, hook, run, event)
        return Verdict("delivered")

    patch.setattr(HookDelivery, "_post", always)


def progress_of_webhooks_is_not_stored(patch: Patch) -> None:
    async def unsaved(self: Any, entry: Any, kept: Any, due: Any) -> Any:
        return entry

    patch.setattr(Hooks, "save", unsaved)


def leases_of_runtimes_never_end(patch: Patch) -> None:
    patch.setattr(PairedClaims, "tick", _nothing)


def leases_of_runtimes_are_not_stored(patch: Patch) -> None:
    patch.setattr(Leases, "hold", _nothing)
    patch.setattr(Leases, "renew", _until)
    patch.setattr(Leases, "name_holder", _nothing)


async def _until(self: object, lease: object, until: int) -> int:
    return until


def stops_do_not_hand_over(patch: Patch) -> None:
    async def closed(self: Any) -> None:
        self._closing = True
        for job in list(self._jobs.values()):
            job.task.cancel()
        await asyncio.sleep(0)

    patch.setattr(Executor, "close", closed)
    patch.setattr(SimulatedCluster, "_dead", lambda self: [])


def slots_in_doubt_stay_taken(patch: Patch) -> None:
    patch.setattr(Slots, "settle", _nothing)


def steps_are_no_updates(patch: Patch) -> None:
    patch.setattr(state_module, "is_update", lambda event, seq, *, open: is_update_unless_step(event, seq, open=open))


def is_update_unless_step(event: Any, seq: int, *, open: bool) -> bool:
    return not isinstance(event, Stepped) and is_update(event, seq, open=open)


def generations_are_checked_before_others_write(patch: Patch) -> None:
    patch.setattr(rules, "check_generation", lambda run, expected: None)


def silent_nodes_stay_online(patch: Patch) -> None:
    patch.setattr(Liveness, "tick", _nothing)


def delegations_have_no_key(patch: Patch) -> None:
    patch.setattr(delegations_module, "_keyed", lambda source, delegation, key: None)


def nodes_are_overwritten(patch: Patch) -> None:
    patch.setattr(nodes_module, "judged", lambda changes, versions: [True for _ in changes])


Mutation = Callable[[Patch], None]

FOCUS = {
    "cancel_is_lost_after_a_conflict": ("flow",),
    "children_of_the_canceled_begin": ("boss",),
    "a_lost_lease_is_ignored": ("room",),
    "budgets_are_not_checked": ("spender",),
    "queues_serve_first_come_first_served": ("room",),
    "slots_in_doubt_stay_taken": ("node", "echo"),
    "generations_are_checked_before_others_write": ("slow", "edge"),
    "silent_nodes_stay_online": ("node", "echo"),
    "delegations_have_no_key": ("node", "echo"),
}
"""The agents that clients ask, where the whole mix would need many more worlds."""

FAULTS = {
    "children_of_the_canceled_begin": ("pause", "slow database"),
    "a_lost_lease_is_ignored": ("partition",),
    "slots_in_doubt_stay_taken": ("lost answers",),
    "silent_nodes_stay_online": ("actor",),
    "delegations_have_no_key": ("connections", "lost answers"),
}
"""The kinds of faults, where others would seldom show it."""

MUTATIONS: list[Mutation] = [
    no_epoch_check,
    no_end_check,
    rescue_keeps_the_epoch,
    begin_without_looking,
    unread_input_is_forgotten,
    wake_before_commit,
    acknowledge_before_commit,
    forget_the_key,
    time_runs_backwards,
    conflict_counts_as_success,
    cancel_is_lost_after_a_conflict,
    cancel_stays_on_its_replica,
    children_go_on,
    children_of_the_canceled_begin,
    another_child_after_a_rescue,
    dead_replicas_are_forgotten,
    lost_turns_stay_lost,
    a_lost_lease_is_ignored,
    slots_are_given_back_twice,
    slots_are_kept,
    slots_are_not_needed,
    sleepers_sleep_on,
    steps_are_repeated,
    steps_are_told_before_they_are_durable,
    budgets_are_not_checked,
    queues_serve_first_come_first_served,
    streams_hear_only_their_own_replica,
    streams_show_events_twice,
    refused_posts_count_as_delivered,
    progress_of_webhooks_is_not_stored,
    leases_of_runtimes_never_end,
    leases_of_runtimes_are_not_stored,
    stops_do_not_hand_over,
    slots_in_doubt_stay_taken,
    steps_are_no_updates,
    generations_are_checked_before_others_write,
    silent_nodes_stay_online,
    delegations_have_no_key,
    nodes_are_overwritten,
]
