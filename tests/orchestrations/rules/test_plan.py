import msgspec
import pytest
from msgspec import Raw

from parley.errors import PlanInvalid
from parley.orchestrations.rules.plan import (
    MAX_STEPS,
    Rules,
    Step,
    check_plan,
    check_rules,
    dependants,
    rendered,
    retry_delay_ms,
)
from tests.orchestrations.plans import step

WRONG: dict[str, tuple[list[Step], str]] = {
    "nothing": ([], "1 to 200 steps"),
    "too many": ([step(f"s{n}") for n in range(MAX_STEPS + 1)], "1 to 200 steps"),
    "twice": ([step("a"), step("a")], "Two steps"),
    "id": ([step("a b")], "must contain only letters"),
    "missing": ([step("a", "b")], "depends on b, which is not a step of the plan"),
    "circle": ([step("a", "b"), step("b", "a")], "depend on each other"),
    "itself": ([step("a", "a")], "depend on each other"),
    "unknown reference": ([step("a", text="{{user}}")], "is not a known reference"),
    "not before": ([step("a"), step("b", text="{{steps.a.output}}")], "so it must depend on it"),
    "refused": ([step("odd")], "no odd ones"),
}


@pytest.mark.parametrize("which", WRONG)
def test_a_plan_that_cannot_be_carried_out_is_refused_with_the_reason(which: str) -> None:
    steps, reason = WRONG[which]
    with pytest.raises(PlanInvalid, match=reason):
        check_plan(steps, lambda step: "no odd ones" if step.id == "odd" else None)


def test_a_step_may_use_what_was_done_long_before_it() -> None:
    check_plan([step("c", "b", text="{{steps.a.output}} and {{ message }}"), step("b", "a"), step("a")])
    assert dependants([step("c", "b"), step("b", "a"), step("a")], "a") == {"b", "c"}


def test_an_input_is_filled_in_wherever_it_holds_a_reference() -> None:
    given = {"q": "{{message}}!", "deep": [{"x": "<{{steps.a.output}}>", "n": 3}], "b": True}
    one = Step("b", "worker", depends_on=("a",), input=Raw(msgspec.json.encode(given)))
    filled = rendered(one, "hello", {"steps.a.output": "{{message}}"})
    assert filled == {"q": "hello!", "deep": [{"x": "<{{message}}>", "n": 3}], "b": True}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{steps.a.output.rows}}", []), ("{{ steps.a.output.count }}", 0),
        ("{{steps.a.output.deep.0.x}}", {"y": None}),
        ("{{steps.a.output.none}}", None), ("{{steps.a.output.deep.7}}", None), ("{{steps.a.output.count.x}}", None),
        ("n: {{steps.a.output.count}}", "n: 0"), ("{{steps.a.output.rows}} {{steps.a.output.word}}", "[] hi"),
        ("{{steps.a.output.none}}.", "."), ("{{steps.b.output.x}}", None),
    ],
)  # fmt: skip
def test_a_member_of_an_output_is_itself_where_nothing_else_is_said(text: str, found: object) -> None:
    output = '{"rows": [], "count": 0, "word": "hi", "deep": [{"x": {"y": null}}]}'
    one = Step("c", "worker", depends_on=("a", "b"), input=Raw(msgspec.json.encode([text])))
    check_plan([step("a"), step("b"), one])
    assert rendered(one, "", {"steps.a.output": output, "steps.b.output": "no JSON"}) == [found]


def test_a_step_without_an_input_is_given_the_message_and_what_it_depends_on() -> None:
    assert rendered(step("a"), "hello", {}) == "hello"
    assert rendered(step("b", "a"), "hello", {"steps.a.output": "42"}) == "hello\n\na:\n42"


def test_each_retry_waits_twice_as_long_up_to_a_minute() -> None:
    assert [retry_delay_ms(Rules(), retry) for retry in (1, 2, 3, 10)] == [2000, 4000, 8000, 60_000]


def test_rules_have_bounds() -> None:
    check_rules(Rules())
    with pytest.raises(PlanInvalid, match="max_parallel"):
        check_rules(Rules(max_parallel=0))
