"""Answers to questions with choices or a schema."""

import json
from contextlib import suppress
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from parley.errors import AnswerInvalid, Invalid
from parley.runs.rules.answers import (
    MAX_ANSWER,
    MAX_CHOICE,
    MAX_CHOICES,
    MEDIA_TYPE,
    Expected,
    answer_form,
    answer_in,
    answer_parts,
    expected,
    expected_part,
)
from parley.runs.rules.content import BlobRef, Part, text_part

FLIGHTS = ["AF 12", "BA 7"]
TRIP: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "seats": {"type": "integer", "minimum": 1}},
    "required": ["to"],
}
choices = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20).filter(
        lambda text: text.strip()
    ),
    min_size=1,
    max_size=10,
    unique_by=lambda text: " ".join(text.split()).casefold(),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["to", "seats"]), inner, max_size=2),
    max_leaves=5,
)


def of(options: list[str]) -> Expected:
    made = expected(options)
    assert made is not None
    return made


def like(schema: dict[str, Any]) -> Expected:
    made = expected(schema=schema)
    assert made is not None
    return made


def data(value: object) -> Part:
    return Part(data=Raw(msgspec.json.encode(value)))


def test_a_question_without_expectations_takes_any_answer() -> None:
    assert expected() is None
    assert answer_parts({"text": " yes "}, None) == (text_part("yes"),)
    assert answer_parts({"text": " "}, None) == ()


@pytest.mark.parametrize(
    ("options", "schema", "reason"),
    [
        (FLIGHTS, TRIP, "either choices or a schema"),
        ("AF 12", None, "a list of texts"),
        (["a", ""], None, "not empty"),
        (["a", 1], None, "a list of texts"),
        (["Yes", " yes"], None, "are equal"),
        (["a\nb", "c"], None, "control characters"),
        ([str(number) for number in range(MAX_CHOICES + 1)], None, f"{MAX_CHOICES} choices"),
        (["x" * (MAX_CHOICE + 1)], None, f"{MAX_CHOICE} characters"),
    ],
)
def test_expectations_that_cannot_be_checked_are_refused(options: Any, schema: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        expected(options, schema)


@pytest.mark.parametrize(
    "part",
    [text_part("BA 7"), text_part(" ba  7 "), text_part("2"), text_part("2."), data("BA 7"), data(2),
     data({"choice": "BA 7"}), data({"choice": 2})],
)  # fmt: skip
def test_a_choice_is_given_by_its_words_or_its_number(part: Part) -> None:
    assert answer_in(of(FLIGHTS), (part,)) == "BA 7"


@pytest.mark.parametrize(
    "part",
    [text_part(""), text_part("LH 3"), text_part("0"), text_part("3"), text_part("-1"), text_part("²"),
     text_part("1.0"), data(None), data(True), data([]), data({}), data({"flight": "BA 7"}), Part(raw=b"BA 7")],
)  # fmt: skip
def test_any_other_answer_is_refused_with_the_choices(part: Part) -> None:
    with pytest.raises(AnswerInvalid, match=r"it must be one of: 1\. AF 12; 2\. BA 7\."):
        answer_in(of(FLIGHTS), (part,))


@given(choices, st.data())
def test_every_choice_can_be_chosen_by_its_own_words(options: list[str], drawn: st.DataObject) -> None:
    wanted = of(options)
    one = drawn.draw(st.sampled_from(options))
    assert answer_in(wanted, (text_part(one),)) == one
    assert answer_in(wanted, (data({"choice": one}),)) == one


@given(choices, st.text(max_size=10))
def test_an_answer_is_one_of_the_choices_or_refused(options: list[str], text: str) -> None:
    with suppress(AnswerInvalid):
        assert answer_in(of(options), (text_part(text),)) in options


@given(values)
def test_a_value_is_accepted_if_the_schema_allows_it(value: Any) -> None:
    fits = jsonschema.Draft202012Validator(TRIP).is_valid(value)
    for part in (data(value), text_part(json.dumps(value))):
        try:
            assert answer_in(like(TRIP), (part,)) == value
            assert fits
        except AnswerInvalid:
            assert not fits


def test_a_refused_value_is_told_with_its_place() -> None:
    with pytest.raises(AnswerInvalid, match="seats") as refused:
        answer_in(like(TRIP), (data({"to": "Oslo", "seats": 0}),))
    assert refused.value.details["at"] == "/seats"
    with pytest.raises(AnswerInvalid, match="must be a data part, or text that is JSON"):
        answer_in(like(TRIP), (text_part("to Oslo, please"),))


def test_a_text_needs_no_quotes() -> None:
    assert answer_in(like({"type": "string"}), (text_part("Oslo"),)) == "Oslo"
    assert answer_in(like({"type": "string"}), (text_part('"Oslo"'),)) == "Oslo"
    assert answer_in(like({"type": ["string", "integer"]}), (text_part("7"),)) == 7


def test_large_and_deep_answers_are_refused() -> None:
    for part in (text_part("x" * (MAX_ANSWER + 1)), Part(blob=BlobRef("0" * 64, 1 << 20, text=True))):
        with pytest.raises(AnswerInvalid, match="at most 32 KiB"):
            answer_in(like({"type": "string"}), (part,))
    with pytest.raises(AnswerInvalid, match="levels deep"):
        answer_in(like({"type": "array"}), (text_part("[" * 2000 + "]" * 2000),))


def test_clients_get_the_expectation_as_a_data_part() -> None:
    for wanted, body in ((of(FLIGHTS), {"choices": FLIGHTS}), (like(TRIP), {"schema": TRIP})):
        part = expected_part(wanted)
        assert part.media_type == MEDIA_TYPE
        assert isinstance(part.data, Raw)
        assert msgspec.json.decode(part.data) == body
        assert msgspec.json.decode(part.data, type=Expected) == wanted


@given(choices)
def test_a_form_offers_the_choices_and_its_answer_is_accepted(options: list[str]) -> None:
    wanted = of(options)
    assert answer_form(wanted).choices == tuple(options)
    assert answer_in(wanted, answer_parts({"choice": options[-1]}, wanted)) == options[-1]


def test_a_form_with_fields_gives_a_value_that_is_accepted() -> None:
    wanted = like(TRIP)
    form = {"fields": "1", "field.to": "Oslo", "field.seats": "2"}
    assert [one.name for one in answer_form(wanted).fields] == ["to", "seats"]
    assert answer_in(wanted, answer_parts(form, wanted)) == {"to": "Oslo", "seats": 2}
    assert answer_in(wanted, answer_parts({"fields": "1", "field.to": "Oslo"}, wanted)) == {"to": "Oslo"}
