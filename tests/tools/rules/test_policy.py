"""The policy of a call: the contract's order, one reason for each refusal, and a hash that holds."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.json_values import Fields, Json, stable_hash
from parley.tools.rules.policy import (
    DENY,
    EXHAUSTED,
    MODES,
    REASON_CODES,
    REASON_CODES_VERSION,
    Figures,
    Policy,
    concluded,
    evaluate,
    policy_problems,
)

NOW = 1_771_500_000_000
FINE: Fields = {"authorization_id": "auth_abc", "authorization_mode": "delegated_budget"}
CONTEXT = "loop_detected.no_progress"


def decided(*, spent: int = 0, reserved: int = 0, unapproved: bool = False, **given: Any) -> str:
    policy = Policy({**FINE, **given}, "coding.execute.v1")
    assert policy_problems(policy.given) == []
    return evaluate(policy, Figures(spent, reserved), NOW, denied=unapproved).reason_code


def test_there_are_25_codes() -> None:
    assert len(set(REASON_CODES)) == 25
    assert REASON_CODES_VERSION == "runtime-policy-reasons.v1"


def test_the_example_of_the_contract_is_allowed() -> None:
    assert decided(budget={"max_total_sats": 5000}) == "policy_allowed.default"


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"context": {"reason_code": CONTEXT}}, CONTEXT),
    ({"denied": True, "reason_code": "policy_denied.suppressed_recipient"}, "policy_denied.suppressed_recipient"),
    ({"authorization_id": None}, "policy_denied.authorization_missing"),
    ({"authorization_expires_at": "2026-02-19T11:19:59Z"}, "policy_denied.authorization_expired"),
    ({"authorization_status": "revoked"}, "policy_denied.authorization_revoked"),
    ({"authorization_mode": "whatever"}, "policy_denied.invalid_authorization_mode"),
    ({"budget": {"max_total_sats": 0}}, EXHAUSTED),
]
"""In the order of the contract, each by itself."""


@pytest.mark.parametrize(("given", "reason"), REFUSALS)
def test_each_reason_by_itself(given: dict[str, Any], reason: str) -> None:
    assert decided(**given) == reason


@pytest.mark.parametrize("pair", list(itertools.combinations(REFUSALS, 2)), ids=str)
def test_of_two_reasons_the_first_in_the_order_of_the_contract_is_told(
    pair: tuple[tuple[dict[str, Any], str], tuple[dict[str, Any], str]],
) -> None:
    (first, reason), (second, _) = pair
    assert decided(**{**second, **first}) == reason


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"denied": True}, DENY),
        ({"denied": False}, "policy_allowed.default"),
        ({"decision": "denied"}, DENY),
        ({"denied": True, "reason_code": "policy_allowed.default"}, DENY),
        ({"denied": True, "reason_code": CONTEXT}, DENY),
        ({"denied": True, "reason_code": 7}, DENY),
        ({"authorization_mode": "deny"}, DENY),
        ({"authorization_mode": "deny", "authorization_id": ""}, DENY),
        ({"authorization_id": "  "}, "policy_denied.authorization_missing"),
        ({"authorization_mode": None}, "policy_denied.invalid_authorization_mode"),
        ({"authorization_status": "expired"}, "policy_denied.authorization_expired"),
        ({"authorization_status": "active"}, "policy_allowed.default"),
        ({"authorization_expires_at": "2026-02-19T11:20:00+00:00"}, "policy_denied.authorization_expired"),
        ({"authorization_expires_at": "2026-02-19T11:20:01"}, "policy_allowed.default"),
        ({"authorization_expires_at": "2026-02-19T13:20:00+02:00"}, "policy_denied.authorization_expired"),
        ({"context": {"anything": "else"}}, "policy_allowed.default"),
    ],
)  # fmt: skip
def test_who_may(given: dict[str, Any], reason: str) -> None:
    assert decided(**given) == reason


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("deny", "delegated_budget_with_threshold")])
def test_modes_that_allow(mode: str) -> None:
    assert decided(authorization_mode=mode) == "policy_allowed.default"


@pytest.mark.parametrize(
    ("budget", "spent", "reserved", "reason"),
    [
        ({"max_total_sats": 10}, 9, 0, "policy_allowed.default"),
        ({"max_total_sats": 10}, 9, 1, EXHAUSTED),
        ({"max_total_sats": 10}, 10, 0, EXHAUSTED),
        ({"max_total_sats": 10, "cost_sats": 5}, 5, 0, "policy_allowed.default"),
        ({"max_total_sats": 10, "cost_sats": 5}, 3, 3, EXHAUSTED),
        ({"max_total_sats": 10, "cost_sats": 0}, 10, 0, EXHAUSTED),
        ({"max_total_sats": 10, "remaining_sats": 100}, 10, 0, EXHAUSTED),
        ({"max_total_sats": 10, "remaining_sats": 0}, 0, 0, EXHAUSTED),
        ({"remaining_sats": 0}, 0, 0, EXHAUSTED),
        ({"remaining_sats": -5}, 0, 0, EXHAUSTED),
        ({"remaining_sats": 1}, 10**6, 0, "policy_allowed.default"),
        ({"max_per_call_sats": 4, "cost_sats": 5}, 0, 0, EXHAUSTED),
        ({"max_per_call_sats": 5, "cost_sats": 5}, 0, 0, "policy_allowed.default"),
        ({}, 10**9, 10**9, "policy_allowed.default"),
    ],
)
def test_budgets(budget: Fields, spent: int, reserved: int, reason: str) -> None:
    assert decided(budget=budget, spent=spent, reserved=reserved) == reason


@pytest.mark.parametrize(
    ("budget", "approved", "reason"),
    [
        ({"threshold_sats": 5, "cost_sats": 5}, None, "policy_allowed.default"),
        ({"threshold_sats": 5, "cost_sats": 6}, None, "policy_denied.consent_required"),
        ({"threshold_sats": 5, "cost_sats": 6}, False, "policy_denied.consent_required"),
        ({"threshold_sats": 5, "cost_sats": 6}, True, "policy_allowed.default"),
        ({}, None, "policy_denied.consent_required"),
        ({"cost_sats": 9, "max_per_call_sats": 8}, True, EXHAUSTED),
        ({"cost_sats": 9, "max_total_sats": 8}, True, EXHAUSTED),
        ({"cost_sats": 9, "max_total_sats": 8}, None, "policy_denied.consent_required"),
    ],
)
def test_above_a_threshold_somebody_has_to_consent(budget: Fields, approved: bool | None, reason: str) -> None:
    mode = {"authorization_mode": "delegated_budget_with_threshold"}
    assert decided(budget=budget, **mode, **({} if approved is None else {"approved": approved})) == reason
    assert decided(budget={**budget, "threshold_sats": 0, "max_per_call_sats": 99}) in (
        "policy_allowed.default", EXHAUSTED,
    )  # fmt: skip


def test_a_denial_from_elsewhere_stands_where_explicit_ones_do() -> None:
    assert decided(unapproved=True) == DENY
    assert decided(unapproved=True, authorization_id=None) == DENY
    assert decided(unapproved=True, context={"reason_code": CONTEXT}) == CONTEXT
    assert decided(unapproved=True, decision="denied", reason_code=EXHAUSTED) == EXHAUSTED


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"authorization_id": 7}, "authorization_id"),
        ({"authorization_id": "x" * 257}, "authorization_id"),
        ({"authorization_id": "a\x00b"}, "authorization_id"),
        ({"authorization_mode": ["deny"]}, "authorization_mode"),
        ({"authorization_status": "sleeping"}, "authorization_status"),
        ({"authorization_expires_at": "tomorrow"}, "authorization_expires_at"),
        ({"authorization_expires_at": 1}, "authorization_expires_at"),
        ({"denied": "yes"}, "denied"),
        ({"approved": 1}, "approved"),
        ({"write_approved": "true"}, "write_approved"),
        ({"budget": 5}, "budget"),
        ({"budget": {"max_total_sats": "5"}}, "max_total_sats"),
        ({"budget": {"max_total_sats": -1}}, "max_total_sats"),
        ({"budget": {"cost_sats": 1.5}}, "cost_sats"),
        ({"budget": {"cost_sats": True}}, "cost_sats"),
        ({"budget": {"threshold_sats": 10**400}}, "threshold_sats"),
        ({"context": "x"}, "context"),
        ({"context": {"reason_code": DENY}}, "context.reason_code"),
        ({"context": {"reason_code": "loop_detected.invented"}}, "context.reason_code"),
    ],
)
def test_a_policy_that_cannot_be_understood_is_not_taken_for_none(given: Fields, named: str) -> None:
    problems = policy_problems({**FINE, **given})
    assert len(problems) == 1
    assert problems[0].startswith(f"policy.{'budget.' if named.endswith('_sats') else ''}{named} ")


anything: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(REASON_CODES),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
sats = st.integers(0, 20)
policies = st.fixed_dictionaries(
    {},
    optional={
        "authorization_id": st.sampled_from(["a", ""]) | anything,
        "authorization_mode": st.sampled_from(MODES) | anything,
        "authorization_status": st.sampled_from(["active", "revoked"]) | anything,
        "authorization_expires_at": st.just("2030-01-01T00:00:00Z") | anything,
        "denied": st.booleans() | anything,
        "approved": st.booleans() | anything,
        "reason_code": st.sampled_from(REASON_CODES) | anything,
        "budget": anything | st.dictionaries(
            st.sampled_from(["max_total_sats", "max_per_call_sats", "threshold_sats", "remaining_sats", "cost_sats"]),
            sats | anything,
        ),
        "context": anything | st.dictionaries(st.just("reason_code"), st.sampled_from(REASON_CODES) | anything),
    },
)  # fmt: skip


@given(policies, sats, sats, st.booleans())
def test_whatever_is_understood_is_decided_and_the_same_each_time(
    given: Fields, spent: int, reserved: int, denied: bool
) -> None:
    if policy_problems(given):
        return
    policy, figures = Policy(given, "coding.execute.v1"), Figures(spent, reserved)
    found = evaluate(policy, figures, NOW, denied=denied)
    assert found == evaluate(Policy(dict(reversed(given.items())), "coding.execute.v1"), figures, NOW, denied=denied)
    assert found.reason_code in REASON_CODES
    assert found.allowed == (found.reason_code == "policy_allowed.default")
    assert not (denied and found.allowed)
    assert len(found.hash) == 64
    remaining = policy.remaining(figures)
    if found.allowed and remaining is not None:
        assert remaining - policy.cost >= 0
        later = evaluate(policy, Figures(spent, reserved + max(remaining, 0)), NOW)
        assert policy.sats("max_total_sats") is None or not later.allowed


def test_the_hash_is_of_the_figures_it_was_decided_on() -> None:
    policy = Policy({**FINE, "budget": {"max_total_sats": 9}, "context": {"note": "x"}}, "coding.execute.v1")
    found = evaluate(policy, Figures(3, 1), NOW)
    assert found.hash == stable_hash(
        {
            "decision": "allowed",
            "reason_code": "policy_allowed.default",
            "policy": {
                "authorization_id": "auth_abc", "authorization_mode": "delegated_budget", "decision": "allowed",
                "reason_code": "policy_allowed.default", "policy_id": "coding.execute.v1",
            },
            "budget": {"spent_sats": 3, "reserved_sats": 1, "remaining_sats": 5},
            "context": {},
        }
    )  # fmt: skip
    failed = concluded(policy, Figures(3, 1), "coding_failed.provider_error")
    assert (failed.decision, failed.hash != found.hash) == ("denied", True)
    assert evaluate(policy, Figures(3, 2), NOW).hash != found.hash
