"""Functions as agents: the values that they return and yield, and the output that they declare."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest
from a2a.types import AgentCard
from a2a.utils.signing import create_signature_verifier
from google.protobuf import json_format
from jwt import PyJWK
from msgspec import Struct
from pydantic import BaseModel, Field, computed_field

from parley import AgentError, Done, Failed, NeedInput, State, Status, Text, Turn, agent
from parley.client import Client
from parley.drivers.function import TYPED_OUTPUT
from parley.testing import run
from parley.testing.servers import Server, serving


@dataclass
class Point:
    x: int
    y: int = 0


class Line(Struct, rename="camel"):
    start_point: Point
    label: str = ""


class Report(BaseModel):
    title: str = Field(min_length=1, alias="heading")
    words: int = 0

    @computed_field
    def short(self) -> bool:
        return self.words < 100


POINT, LINE = Point(1, 2), Line(Point(3), "a")
REPORT = Report(heading="All is well", words=7)
VALUES: list[tuple[Any, dict[str, object]]] = [
    (POINT, {"x": 1, "y": 2}),
    (LINE, {"startPoint": {"x": 3, "y": 0}, "label": "a"}),
    (REPORT, {"heading": "All is well", "words": 7, "short": True}),
]


def outputs_of(card: dict[str, Any]) -> list[dict[str, Any]]:
    found = card["capabilities"]["extensions"]
    return [one["params"] for one in found if one["uri"] == TYPED_OUTPUT]


@pytest.mark.parametrize(("value", "data"), VALUES)
def test_an_instance_becomes_a_json_artifact(value: Any, data: dict[str, object]) -> None:
    kind = type(value)

    @agent("returns", output=kind)
    async def returns(turn: Turn):
        return value

    @agent("yields", output=kind)
    async def yields(turn: Turn):
        yield Status("Working")
        yield value

    @agent("blocks", output=kind)
    def blocks(turn: Turn):
        return value

    @agent("undeclared")
    async def undeclared(turn: Turn):
        yield value

    for one in (returns, yields, blocks, undeclared):
        answer = run(one, "go")
        assert (answer.state, answer.data, answer.text) == (State.COMPLETED, data, "")
        (artifact,) = answer.artifacts
        assert (artifact.name, artifact.parts[0].media_type) == (kind.__name__, "application/json")
        assert answer.data_as(kind) == value
    (extension,) = [one for one in yields.agent.extensions if one.uri == TYPED_OUTPUT]
    assert extension.params["artifact"] == kind.__name__
    jsonschema.Draft202012Validator(extension.params["schema"]).validate(data)  # type: ignore[arg-type]
    assert undeclared.agent.extensions == ()


def test_a_dict_is_checked_and_completed() -> None:
    @agent("points", output=Point)
    async def points(turn: Turn) -> dict[str, int]:
        return {"x": int(turn.text)}

    assert run(points, "5").data == {"x": 5, "y": 0}


@pytest.mark.parametrize(
    ("output", "value", "reason"),
    [
        (Point, Point("secret"), "not a valid Point: Expected `int`, got `str` - at `$.x`"),  # type: ignore[arg-type]
        (Point, {"y": 1}, "not a valid Point: Object missing required field `x`"),
        (Line, {"startPoint": {"x": "secret"}}, "not a valid Line: Expected `int`, got `str` - at `$.startPoint.x`"),
        (Report, {"heading": "", "words": "secret"}, "heading String should have at least 1 character; words Input"),
        (Point, REPORT, "ended without its output: return or yield a Point"),
        (Point, "some text", "ended without its output: return or yield a Point"),
        (Point, Done("bye"), "ended without its output: return or yield a Point"),
        (Point, None, "ended without its output: return or yield a Point"),
    ],
)
def test_a_value_that_does_not_fit_fails_with_the_reason_and_without_the_value(
    output: type, value: object, reason: str
) -> None:
    @agent("returns", output=output)
    async def returns(turn: Turn):
        return value

    @agent("yields", output=output)
    async def yields(turn: Turn):
        if value is not None:
            yield value

    for one in (returns, yields):
        answer = run(one, "go")
        assert (answer.state, answer.code) == (State.FAILED, "output_invalid")
        assert reason in answer.reason
        assert "secret" not in answer.reason


def test_a_turn_may_end_with_a_question_or_a_failure_instead() -> None:
    @agent("asks", output=Point)
    async def asks(turn: Turn) -> AsyncGenerator[object, None]:
        if not turn.answers:
            yield NeedInput("Where?", schema=Point)
            return
        yield turn.answer_as(Point)
        yield Done()

    @agent("fails", output=Point)
    async def fails(turn: Turn) -> object:
        return Failed("lost", "No map.")

    answer = run(asks, "go", answers=[{"x": 4}])
    assert (answer.state, answer.data, answer.questions) == (State.COMPLETED, {"x": 4, "y": 0}, ("Where?",))
    assert run(fails, "go").code == "lost"


def test_a_direct_reply_has_the_value_too() -> None:
    @agent("replies", output=Point, replies="message")
    async def replies(turn: Turn) -> Point:
        return POINT

    assert run(replies, "go").data == {"x": 1, "y": 2}


def test_values_of_every_kind_can_be_yielded_as_well_as_returned() -> None:
    @agent("all")
    async def everything(turn: Turn):
        yield "text"
        yield b"bytes"
        yield {"a": 1}

    answer = run(everything, "go")
    assert (answer.text, answer.data, len(answer.artifacts)) == ("text", {"a": 1}, 3)

    @agent("odd")
    async def odd(turn: Turn):
        yield {1, 2}

    assert "The agent gave set: return or yield text" in run(odd, "go").reason


def test_a_class_without_a_schema_is_refused_when_the_agent_is_made() -> None:
    class Plain:
        pass

    with pytest.raises(AgentError, match="Plain is not a data class, a msgspec Struct or a pydantic model"):
        agent("plain", output=Plain)(lambda turn: None)


def test_a_definition_keeps_the_output_of_its_function(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(
        "from dataclasses import dataclass\nfrom parley import agent\n\n@dataclass\nclass Sum:\n    total: int\n\n"
        "@agent('adder', output=Sum)\nasync def adder(turn):\n    return {'total': turn.text}\n"
    )
    (tmp_path / "sums.yaml").write_text("function: sums.py:adder\nextensions:\n  - uri: urn:example:other\n")
    answer = run(tmp_path / "sums.yaml", "not a number")
    assert (answer.code, "not a valid Sum" in answer.reason) == ("output_invalid", True)


@agent("reporter", output=Report)
async def reporter(turn: Turn):
    yield Text("Here it is.")
    yield REPORT


async def test_the_schema_is_on_the_signed_card_of_both_versions(tmp_path: Path) -> None:
    async with serving(tmp_path, [reporter], store="memory") as server, httpx2.AsyncClient() as http:
        address = f"{server.agent('reporter')}/.well-known/agent-card.json"
        new = (await http.get(address, headers={"A2A-Version": "1.0"})).json()
        old = (await http.get(address)).json()
        for card in (new, old):
            (output,) = outputs_of(card)
            assert output["artifact"] == "Report"
            assert output["schema"]["properties"]["heading"]["minLength"] == 1
            assert "short" in output["schema"]["required"]
        await check_signature(http, server, new)
        async with Client(server.agent("reporter")) as client:
            answer = await client.send("go")
    assert (answer.text, answer.data) == ("Here it is.", {"heading": "All is well", "words": 7, "short": True})
    assert answer.data_as(Report) == REPORT


async def check_signature(http: httpx2.AsyncClient, server: Server, card: dict[str, Any]) -> None:
    """Verify a card with the official SDK, which turns every number of the schema into a float."""
    keys = (await http.get(f"{server.url}/.well-known/jwks.json")).json()["keys"]
    verify = create_signature_verifier(
        lambda kid, _: next(PyJWK(one) for one in keys if one["kid"] == kid), algorithms=["ES256"]
    )
    verify(json_format.ParseDict(card, AgentCard()))
