"""JSON Schemas as questions use them: the same result as the reference implementation, in bounded time."""

import dataclasses
import time
from typing import Any, Literal

import jsonschema
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import AgentError, Invalid
from parley.json_schema import MAX_STEPS, Mismatch, check_schema, check_value
from parley.typed import instance_of, is_described, json_of, schema_of


class Seat(msgspec.Struct):
    row: int
    letter: Literal["A", "B", "C"] = "A"


@dataclasses.dataclass
class Trip:
    to: str
    seats: list[Seat]
    price: float | None = None


class Passenger(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1, pattern="^[A-Z]")
    age: int = pydantic.Field(ge=0, lt=150)
    tags: set[str] = set()
    friend: "Passenger | None" = None


def fits(schema: Any, value: Any) -> bool:
    check_schema(schema)
    try:
        check_value(schema, value)
    except Mismatch:
        return False
    return True


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, 2.0, -1.5])
    | st.text("abAB", max_size=3)
)
values = st.recursive(
    scalars,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from("abc"), one, max_size=3),
    max_leaves=6,
)
types = st.sampled_from(["object", "array", "string", "boolean", "null", "number", "integer"])
numbers, counts = st.sampled_from([-1, 0, 1, 1.5]), st.integers(0, 3)
plain_keywords: dict[str, st.SearchStrategy[Any]] = {
    "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
    "enum": st.lists(values, min_size=1, max_size=3),
    "const": values,
    "pattern": st.sampled_from(["^a", "b$", "[AB]{2}"]),
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
    "uniqueItems": st.booleans(),
    "title": st.text(max_size=3),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), numbers),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), counts),
}


def nested(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(one, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from("abc"), one, max_size=3)
    more = {"items": one, "additionalProperties": one, "properties": named, "prefixItems": some, "allOf": some}
    return st.fixed_dictionaries({}, optional={**plain_keywords, **more, "anyOf": some, "oneOf": some})


schemas = st.recursive(st.booleans() | st.fixed_dictionaries({}, optional=plain_keywords), nested, max_leaves=6)


@given(schemas, values)
def test_a_check_agrees_with_the_reference_implementation(schema: Any, value: Any) -> None:
    assert fits(schema, value) == jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Seat, {"row": 3, "letter": "B"}),
        (Trip, {"to": "Oslo", "seats": [{"row": 1}, {"row": 2, "letter": "C"}], "price": None}),
        (Passenger, {"name": "Ann", "age": 7, "friend": {"name": "Bo", "age": 8}}),
    ],
)
def test_every_kind_of_class_has_a_schema_that_its_values_match(kind: type, value: dict[str, Any]) -> None:
    schema = schema_of(kind)
    assert is_described(kind)
    assert fits(schema, value)
    made = instance_of(kind, value)
    assert type(made) is kind
    assert fits(schema, msgspec.json.decode(json_of(made)))
    assert not fits(schema, {})
    with pytest.raises(AgentError, match=f"not a valid {kind.__name__}"):
        instance_of(kind, {})


def test_a_class_without_a_schema_is_refused_by_name() -> None:
    class Plain:
        pass

    assert not is_described(Plain)
    with pytest.raises(AgentError, match="Plain is not a data class"):
        schema_of(Plain)


@pytest.mark.parametrize(
    ("value", "at", "reason"),
    [
        ({"name": "Ann"}, "/age", "is required"),
        ({"name": "Ann", "age": "7"}, "/age", "must be an integer"),
        ({"name": "Ann", "age": 150}, "/age", "must be less than 150"),
        ({"name": "ann", "age": 7}, "/name", "must match the pattern ^[A-Z]"),
        ({"name": "Ann", "age": 7, "friend": {"name": "Bo"}}, "/friend/age", "is required"),
        ([], "", "must be a JSON object"),
    ],
)
def test_a_mismatch_names_the_place_and_the_reason(value: Any, at: str, reason: str) -> None:
    with pytest.raises(Mismatch) as refused:
        check_value(schema_of(Passenger), value)
    assert (refused.value.at, refused.value.reason) == (at, reason)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "other.json#/a"},
        {"$ref": "#/$defs/missing"},
        {"$dynamicRef": "#a"},
        {"not": {"type": "string"}},
        {"if": {}, "then": {}},
        {"patternProperties": {"^a": {}}},
        {"pattern": "(?=a)b"},
        {"pattern": "(a)\\1"},
        {"pattern": "a" * 300},
        {"pattern": "((a{1000}){1000}){1000}"},
        {"type": "integre"},
        {"type": []},
        {"enum": []},
        {"minLength": "3"},
        {"multipleOf": 0},
        {"properties": {"a": 7}},
        {"required": "a"},
        {"enum": ["x" * 40_000]},
        {"items": {"items": {"items": {"$ref": "http://127.0.0.1/"}}}},
        "string",
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: Any) -> None:
    with pytest.raises(Invalid):
        check_schema(schema)


def test_a_deep_schema_is_refused() -> None:
    schema: Any = {}
    for _ in range(50):
        schema = {"items": schema}
    with pytest.raises(Invalid, match="levels"):
        check_schema(schema)


DOUBLING = {
    "$ref": "#/$defs/d0",
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)} | {"d60": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (DOUBLING, "a"),
        ({"$ref": "#"}, "a"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "a"),
        ({"items": {"enum": list(range(1000))}}, [0] * 5000),
        ({"type": "string", "pattern": "^(a+)+$"}, "a" * 30_000 + "b"),
        ({"uniqueItems": True}, list(range(10_000))),
    ],
    ids=["doubling", "endless", "endless choice", "long list", "pattern", "unique"],
)
def test_no_check_takes_long(schema: Any, value: Any) -> None:
    check_schema(schema)
    begun = time.thread_time()
    fits(schema, value)
    assert time.thread_time() - begun < 0.5, f"{MAX_STEPS} steps take about 20 ms"
