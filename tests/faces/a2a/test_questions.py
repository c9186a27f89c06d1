"""Questions with choices and schemas over every binding of A2A."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2 as new
from google.protobuf import json_format

from parley.client import Client, RemoteError
from parley.testing.processes import until
from parley.testing.receivers import receiving
from parley.testing.servers import Server, serving
from tests.faces.a2a.test_grpc import Stubs
from tests.faces.questions import FLIGHTS, QUESTIONERS
from tests.faces.wires import WIRES, Wire

Json = dict[str, Any]
KIND = "application/vnd.parley.expected-answer+json"
ANN = {"name": "Ann", "age": 7}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", QUESTIONERS, grpc_port=0) as running:
        yield running


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        yield client


@pytest.fixture
async def flights(server: Server) -> AsyncIterator[Client]:
    async with Client(server.agent("flights")) as client:
        yield client


def said(task: Json) -> list[Json]:
    message = task["status"]["message"]
    return message.get("parts") or message["content"]


def described(part: Json) -> Json:
    """The description of the expected answer in a part, in any binding."""
    data = part["data"]
    kind = part.get("mediaType") or part.get("metadata", {}).get("mimeType")
    assert kind == KIND, part
    return data.get("data", data)


@pytest.mark.parametrize("wire", [Wire(one.name, "/agents/flights") for one in WIRES], ids=lambda wire: wire.name)
async def test_the_question_describes_its_answer_and_refuses_another(http: httpx2.AsyncClient, wire: Wire) -> None:
    sent = wire.result(await wire.ask(http, "send"))
    task = sent.get("task", sent)
    text, expected = said(task)
    assert text["text"] == "Which flight?"
    assert described(expected) == {"choices": FLIGHTS}

    refused = await wire.ask(http, "send", task["id"], text="LH 3", id_="m-2")
    error = refused.json()["error"]
    assert error["code"] == (-32602 if wire.name.startswith("JSON-RPC") else 400)
    assert "must be one of: 1. AF 12; 2. BA 7" in error["message"]
    assert "ANSWER_INVALID" in refused.text
    assert refused.status_code == (200 if wire.name.startswith("JSON-RPC") else 400)
    waits = wire.result(await wire.ask(http, "get", task["id"]))
    assert said(waits) == said(task), "The run keeps waiting."

    sent = wire.result(await wire.ask(http, "send", task["id"], text="2", id_="m-3"))
    again = sent.get("task", sent)
    assert "'BA 7'" in json.dumps(again["artifacts"])
    assert described(said(again)[1])["schema"]["$defs"]["Passenger"]["required"] == ["name", "age"]
    sent = wire.result(await wire.ask(http, "send", task["id"], text=json.dumps(ANN), id_="m-4"))
    assert "Ann is 7, aisle." in json.dumps(sent)


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(RemoteError, match=words) as error:
        yield
    assert (error.value.rpc, error.value.reason) == (-32602, "ANSWER_INVALID")


@pytest.mark.parametrize(
    "answer",
    ["BA 7", " ba  7", "2", "2.", [{"data": {"choice": "Ba 7"}}], [{"data": {"choice": 2}}], [{"data": "BA 7"}]],
)
async def test_a_choice_is_given_by_text_by_number_or_as_data(flights: Client, answer: Any) -> None:
    task = (await flights.send("go"))["task"]["id"]
    asked = (await flights.send(answer, task=task))["task"]
    assert asked["artifacts"][0]["parts"] == [{"text": "'BA 7'. "}]


@pytest.mark.parametrize("answer", ["", "0", "3", "BA", "AF 12 BA 7", [{"data": {"choice": True}}], [{"data": {}}]])
async def test_anything_else_is_no_choice(flights: Client, answer: Any) -> None:
    task = (await flights.send("go"))["task"]["id"]
    before = await flights.get(task)
    with refused("must be one of"):
        await flights.send(answer, task=task)
    assert await flights.get(task) == before, "Nothing was written."


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("Ann", "text that is JSON"),
        ([{"data": {"name": "Ann"}}], "age is required"),
        ('{"name": "Ann", "age": "7"}', "age must be an integer"),
        ([{"data": {**ANN, "seat": "roof"}}], 'seat must be one of "aisle", "window"'),
        ([{"data": {**ANN, "weight": "x" * 40_000}}], "at most 32 KiB"),
        ("[" * 200 + "]" * 200, "nested"),
    ],
)
async def test_an_answer_that_does_not_match_the_schema_is_refused(flights: Client, answer: Any, words: str) -> None:
    task = (await flights.send("go"))["task"]["id"]
    await flights.send("1", task=task)
    before = await flights.get(task)
    with refused(words):
        await flights.send(answer, task=task)
    assert await flights.get(task) == before
    done = (await flights.send([{"data": {**ANN, "seat": "window"}}], task=task))["task"]
    assert done["status"]["message"]["parts"] == [{"text": "Ann is 7, window."}]


async def test_a_stream_shows_the_expected_answer_and_refuses_another(flights: Client) -> None:
    shown = [update async for update in flights.stream("go")]
    asked = shown[-1]["statusUpdate"]["status"]
    assert described(asked["message"]["parts"][1]) == {"choices": FLIGHTS}
    with refused("must be one of"):
        async for _ in flights.stream("no", task=shown[0]["task"]["id"]):
            pass


async def test_a_repeated_answer_is_the_same_answer_after_the_next_question(http: httpx2.AsyncClient) -> None:
    wire, once = Wire("JSON-RPC 1.0", "/agents/flights"), {"Idempotency-Key": "once"}
    task = wire.result(await wire.ask(http, "send"))["task"]["id"]
    first = await wire.ask(http, "send", task, once, text="1", id_="m-2")
    again = await wire.ask(http, "send", task, once, text="1", id_="m-2")
    assert said(wire.result(first)["task"]) == said(wire.result(again)["task"])


async def test_of_two_answers_at_once_the_second_is_checked_against_the_next_question(server: Server) -> None:
    async with Client(server.agent("flights")) as flights:
        task = (await flights.send("go"))["task"]["id"]
        both = await asyncio.gather(*(flights.send("1", task=task) for _ in range(2)), return_exceptions=True)
        events = await server.exchange.store.read(task, 0, 100)
        inputs = [event for event in events if event.type == "input"]
        # Either it came while the first was worked on and belongs to no question, or it was refused.
        assert len(inputs) == 1 + sum(not isinstance(one, BaseException) for one in both)


async def test_questions_without_choices_are_stored_and_shown_as_ever(server: Server) -> None:
    async with Client(server.agent("plain")) as plain:
        task = (await plain.send("go"))["task"]
        assert task["status"]["message"]["parts"] == [{"text": "What?"}]
        asked = (await server.exchange.store.read_last(task["id"], ("input_required",), 1))[0]
        assert asked.body == b'{"type":"input_required","parts":[{"text":"What?"}]}'
        done = (await plain.send("this", task=task["id"]))["task"]
        assert done["status"]["message"]["parts"] == [{"text": "Heard 'this'"}]
        done = (await plain.send("nothing"))["task"]
        assert done["status"]["message"]["parts"] == [{"text": "Asked nothing: None"}]


async def test_grpc_shows_the_expected_answer_and_refuses_another(server: Server) -> None:
    async with httpx2.AsyncClient() as http:
        card = (await http.get(server.agent("flights") + "/.well-known/agent-card.json")).json()
    address = next(one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
    stubs = Stubs(server, address)

    def ask(text: str, task: str = "") -> Any:
        message = new.Message(message_id=text, role=new.ROLE_USER, parts=[new.Part(text=text)], task_id=task)
        return stubs.new.SendMessage(new.SendMessageRequest(message=message, tenant="flights"))

    asked = json_format.MessageToDict((await ask("go")).task)
    assert described(said(asked)[1]) == {"choices": FLIGHTS}
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await ask("LH 3", asked["id"])
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "must be one of" in str(error.value.details())
    again = json_format.MessageToDict((await ask("af 12", asked["id"])).task)
    assert "schema" in described(said(again)[1])
    await stubs.channel.close()


async def test_a_push_notification_has_the_expected_answer(flights: Client) -> None:
    async with receiving() as receiver:
        hook = {"taskPushNotificationConfig": {"url": receiver.url("/hook")}}
        await flights.send("go", configuration={"returnImmediately": True, **hook})
        await until(lambda: any("Which flight?" in json.dumps(post.json) for post in receiver.posts))
        update = next(post.json for post in receiver.posts if "Which flight?" in json.dumps(post.json))
    assert described(update["statusUpdate"]["status"]["message"]["parts"][1]) == {"choices": FLIGHTS}


async def test_the_same_holds_on_postgresql(tmp_path: Path, database: str) -> None:
    async with (
        serving(tmp_path / "data", QUESTIONERS, store="postgres", postgres_url=database) as server,
        Client(server.agent("flights")) as flights,
    ):
        task = (await flights.send("go"))["task"]["id"]
        with refused("must be one of"):
            await flights.send("3", task=task)
        await flights.send("1", task=task)
        done = (await flights.send([{"data": ANN}], task=task))["task"]
        assert done["status"]["message"]["parts"] == [{"text": "Ann is 7, aisle."}]
