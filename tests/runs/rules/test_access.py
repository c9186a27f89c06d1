"""Rights that a run keeps for the runs that it starts."""

import pytest

from parley.ids import ConversationId, RunId
from parley.runs.rules.access import ALL_SCOPES, LOCAL, Principal, Reach, may_use
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Message
from parley.runs.rules.events import InputReceived, Submitted, caller_of, encode, sealed

RUN = RunId("r")
SHOP, DESK = Agent("shop", "Shop", "Sells."), Agent("desk", "Desk", "Helps.")
HIDDEN = Agent("hidden", "Hidden", "Hides.", visibility="private", allow=("service:ci",))


def submitted(principal: Principal) -> Submitted:
    return Submitted("desk", ConversationId("c"), str(principal), reach=principal.reach)


def caller(*payloads: Submitted | InputReceived) -> Principal:
    found = caller_of(sealed(RUN, seq, 0, one, bytes(32)) for seq, one in enumerate(payloads, 1))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "principal",
    [
        LOCAL,
        Principal("user", "ann"),
        Principal("service", "ci", agents=frozenset(("desk", "shop"))),
        Principal("service", "ops", ALL_SCOPES),
    ],
    ids=str,
)
def test_a_log_tells_the_rights_of_its_caller(principal: Principal) -> None:
    found = caller(submitted(principal))
    for agent in (SHOP, DESK, HIDDEN):
        assert may_use(found, agent) == may_use(principal, agent)


def test_the_log_of_a_caller_without_limits_is_as_it_was_before_there_were_any() -> None:
    for principal in (LOCAL, Principal("user", "ann")):
        assert b"reach" not in encode(submitted(principal))
    assert b"agents" not in encode(InputReceived(Message("m", ())))


def test_a_sender_who_is_limited_limits_the_run_and_no_other_sender_widens_it() -> None:
    begun, said = submitted(Principal("service", "ci")), Message("m", ())
    assert may_use(caller(begun), SHOP)
    narrowed = caller(begun, InputReceived(said), InputReceived(said, agents=("desk",)), InputReceived(said))
    assert may_use(narrowed, DESK)
    assert not may_use(narrowed, SHOP)


def test_a_limit_to_agents_ends_the_rights_of_an_administrator() -> None:
    begun = submitted(Principal("service", "ci", ALL_SCOPES))
    narrowed = caller(begun, InputReceived(Message("m", ()), agents=("desk",)))
    assert not narrowed.may("admin")
    assert not may_use(narrowed, SHOP)


def test_limits_that_have_no_agent_in_common_leave_none() -> None:
    limited = Principal("service", "ci", agents=frozenset(("desk",))).narrowed(("shop",))
    assert not any(may_use(limited, agent) for agent in (SHOP, DESK, HIDDEN))


def test_rights_can_be_read_from_a_name_without_any() -> None:
    assert Principal.parse("service:ci", Reach(("desk",))).agents == {"desk"}
    assert Principal.parse("service:ci").reach is None
