"""Texts that made patterns try every way to divide them are read in one pass: these tests would not end otherwise."""

import msgspec
import pytest
from msgspec import Raw

from parley.documents.rules import title_of
from parley.errors import PlanInvalid
from parley.models.offline import _ITEM
from parley.orchestrations.rules.plan import Step, rendered
from parley.orchestrations.rules.prompts import plan_in

LONG = 200_000


def test_a_heading_may_hold_any_number_of_spaces_and_signs() -> None:
    assert title_of("# x" + " " * LONG + "y", "asked") == "x"
    assert title_of("# x" + "#" * LONG + "y", "asked").startswith("x##")
    assert title_of("# " + "# " * LONG + "\n", "asked").startswith("#")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# One\n# Two", "One"),
        ("  ## One ##  \n", "One"),
        ("text\n### C#\n", "C"),
        ("####### no", "asked"),
        ("#no", "asked"),
    ],
)
def test_the_first_heading_is_the_title(text: str, title: str) -> None:
    assert title_of(text, "asked") == title


def test_an_answer_without_an_object_is_no_plan() -> None:
    with pytest.raises(PlanInvalid):
        plan_in("{" * LONG)


def test_items_of_a_list_may_hold_any_number_of_spaces() -> None:
    assert _ITEM.findall("\n" * LONG + "- x" + " " * LONG + "y\n2) two") == ["x" + " " * LONG + "y", "two"]


@pytest.mark.parametrize("text", ["{{" * LONG, "{{" + " " * LONG, "{" * LONG, "{{ a " * LONG])
def test_a_step_may_hold_any_number_of_open_braces(text: str) -> None:
    assert rendered(Step("one", "agent", input=Raw(msgspec.json.encode(text))), "asked", {}) == text


def test_references_are_filled_in_wherever_they_stand() -> None:
    text = "{{ {{message}} {{\n message }} {{ {x} }}"
    assert rendered(Step("one", "agent", input=Raw(msgspec.json.encode(text))), "asked", {}) == "{{ asked asked "
