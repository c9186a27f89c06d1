"""A2A over gRPC: both services, with the official stubs."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc as old_grpc
from a2a.types import a2a_pb2 as new
from a2a.types import a2a_pb2_grpc as new_grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

from parley.app import open_exchange, open_faces
from parley.ids import new_id
from parley.settings import Settings
from parley.testing.conformance_agent import conformance
from parley.testing.servers import Server, serving
from tests.faces.conftest import AGENTS

Metadata = tuple[tuple[str, str], ...]


class Versioned:
    """A stub whose calls say that they are of A2A 1.0, as the official clients do."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Any:
        def call(request: Any, metadata: Metadata = ()) -> Any:
            version = () if "a2a-version" in dict(metadata) else (("a2a-version", "1.0"),)
            return getattr(self._stub, name)(request, metadata=(*version, *metadata))

        return call


class Stubs:
    def __init__(self, server: Server, address: str) -> None:
        self.server = server
        self.channel = grpc.aio.insecure_channel(address)
        self.bare: Any = new_grpc.A2AServiceStub(self.channel)
        self.new: Any = Versioned(self.bare)
        self.old: Any = old_grpc.A2AServiceStub(self.channel)


@pytest.fixture
async def stubs(tmp_path: Path) -> AsyncIterator[Stubs]:
    async with serving(tmp_path / "data", [*AGENTS, conformance()], grpc_port=0) as server:
        found = Stubs(server, await address_of(server))
        yield found
        await found.channel.close()


async def address_of(server: Server) -> str:
    async with httpx2.AsyncClient() as http:
        card = (await http.get(server.agent("echo") + "/.well-known/agent-card.json")).json()
    one = next(one for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC")
    assert (one["tenant"], one["protocolVersion"]) == ("echo", "1.0")
    return one["url"]


def ask(text: str, tenant: str = "echo", task: str = "") -> new.SendMessageRequest:
    message = new.Message(message_id="m", role=new.ROLE_USER, parts=[new.Part(text=text)], task_id=task)
    return new.SendMessageRequest(tenant=tenant, message=message)


def old_ask(text: str, task: str = "") -> old.SendMessageRequest:
    message = old.Message(message_id="m", role=old.ROLE_USER, content=[old.Part(text=text)], task_id=task)
    return old.SendMessageRequest(request=message)


def reason(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    trailing = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return error.code().name, info.reason


async def test_a_send_a_stream_and_a_read_show_the_same_task(stubs: Stubs) -> None:
    sent = (await stubs.new.SendMessage(ask("hello"))).task
    assert sent.status.state == new.TASK_STATE_COMPLETED
    assert sent.artifacts[0].parts[0].text == "hello"
    assert await stubs.new.GetTask(new.GetTaskRequest(tenant="echo", id=sent.id)) == sent
    frames = [frame.WhichOneof("payload") async for frame in stubs.new.SendStreamingMessage(ask("hello"))]
    assert frames == ["task", "status_update", "artifact_update", "status_update"]
    listed = await stubs.new.ListTasks(new.ListTasksRequest(tenant="echo", page_size=1))
    assert (listed.total_size, len(listed.tasks), bool(listed.next_page_token)) == (2, 1, True)


async def test_the_first_task_of_a_stream_is_cut_to_the_history_that_was_asked_for(stubs: Stubs) -> None:
    """The older service cannot tell no history from none asked for: its field has no presence."""
    waiting = (await stubs.new.SendMessage(ask("begin", "writer"))).task
    answer = ask("Ada", "writer", waiting.id)
    answer.configuration.history_length = 0
    frames = [frame async for frame in stubs.new.SendStreamingMessage(answer)]
    assert (frames[0].task.status.state, len(frames[0].task.history)) == (new.TASK_STATE_WORKING, 0)
    older = old_ask("begin")
    older.configuration.history_length = 1
    where = (("tenant", "writer"),)
    first = await stubs.old.SendStreamingMessage(older, metadata=where).read()
    again = old_ask("Ada", first.task.id)
    again.configuration.history_length = 1
    told = [frame async for frame in stubs.old.SendStreamingMessage(again, metadata=where)]
    assert len(told[0].task.history) == 1


async def test_a_question_a_cancel_and_a_subscription(stubs: Stubs) -> None:
    waiting = (await stubs.new.SendMessage(ask("begin", "writer"))).task
    assert waiting.status.state == new.TASK_STATE_INPUT_REQUIRED
    following = stubs.new.SubscribeToTask(new.SubscribeToTaskRequest(tenant="writer", id=waiting.id))
    first = await following.read()
    assert first.task == waiting
    done = (await stubs.new.SendMessage(ask("Ada", "writer", waiting.id))).task
    assert done.context_id == waiting.context_id
    frames: list[Any] = []
    while (frame := await following.read()) is not grpc.aio.EOF:
        frames.append(frame)
    last = frames[-1]
    assert last.status_update.status.state == new.TASK_STATE_COMPLETED
    sleeping = stubs.new.SendStreamingMessage(ask("zzz", "sleeper"))
    task = (await sleeping.read()).task.id
    canceled = await stubs.new.CancelTask(new.CancelTaskRequest(tenant="sleeper", id=task))
    assert canceled.status.state == new.TASK_STATE_CANCELED
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stubs.new.CancelTask(new.CancelTaskRequest(tenant="sleeper", id=task))
    assert reason(refused.value) == ("FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")


async def test_the_older_service_speaks_its_own_names(stubs: Stubs) -> None:
    where = (("tenant", "writer"),)
    sent = (await stubs.old.SendMessage(old_ask("begin"), metadata=where)).task
    assert sent.status.state == old.TASK_STATE_INPUT_REQUIRED
    name = f"tasks/{sent.id}"
    assert await stubs.old.GetTask(old.GetTaskRequest(name=name)) == sent
    config = old.PushNotificationConfig(id="cfg", url="http://127.0.0.1:9/hook")
    made = await stubs.old.CreateTaskPushNotificationConfig(
        old.CreateTaskPushNotificationConfigRequest(
            parent=name, config_id="cfg", config=old.TaskPushNotificationConfig(push_notification_config=config)
        )
    )
    assert made.name == f"{name}/pushNotificationConfigs/cfg"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stubs.new.CreateTaskPushNotificationConfig(
            new.TaskPushNotificationConfig(tenant="writer", task_id=sent.id, url="http://0xa9fea9fe/latest")
        )
    assert reason(refused.value) == ("INVALID_ARGUMENT", "OUTBOUND_REFUSED")
    assert (
        await stubs.old.GetTaskPushNotificationConfig(old.GetTaskPushNotificationConfigRequest(name=made.name)) == made
    )
    listed = await stubs.old.ListTaskPushNotificationConfig(old.ListTaskPushNotificationConfigRequest(parent=name))
    assert list(listed.configs) == [made]
    await stubs.old.DeleteTaskPushNotificationConfig(old.DeleteTaskPushNotificationConfigRequest(name=made.name))
    frames = [frame async for frame in stubs.old.SendStreamingMessage(old_ask("Ada", sent.id), metadata=where)]
    assert frames[-1].status_update.final
    other = (await stubs.old.SendMessage(old_ask("begin"), metadata=where)).task
    canceled = await stubs.old.CancelTask(old.CancelTaskRequest(name=f"tasks/{other.id}"))
    assert canceled.status.state == old.TASK_STATE_CANCELLED
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stubs.old.GetTask(old.GetTaskRequest(name="nonsense"))
    assert reason(refused.value) == ("NOT_FOUND", "TASK_NOT_FOUND")


async def test_cards_are_given_in_both_services(stubs: Stubs) -> None:
    async with httpx2.AsyncClient(base_url=stubs.server.url) as http:
        made = await http.post("/admin/keys", json={"name": "ann"})
    key = ("x-api-key", made.json()["token"])
    request = new.GetExtendedAgentCardRequest(tenant="conformance")
    card = await stubs.new.GetExtendedAgentCard(request, metadata=(key,))
    assert [skill.id for skill in card.skills] == ["tck", "more"]
    older = await stubs.old.GetAgentCard(old.GetAgentCardRequest(), metadata=(("tenant", "conformance"), key))
    assert older.protocol_version == "0.3.0"
    assert {one.transport for one in older.additional_interfaces} == {"JSONRPC", "HTTP+JSON"}


async def test_the_default_agents_card_of_0_3_lists_grpc(stubs: Stubs) -> None:
    """Only the default agent's: a request of 0.3 has no field that names another one."""
    async with httpx2.AsyncClient() as http:
        cards = [
            (await http.get(f"{stubs.server.agent(slug)}/.well-known/agent-card.json")) for slug in ("echo", "file")
        ]
    place = await address_of(stubs.server)
    listed = [{one["transport"]: one["url"] for one in card.json()["additionalInterfaces"]} for card in cards]
    assert [one.get("GRPC") for one in listed] == [place, None]
    assert all({"JSONRPC", "HTTP+JSON"} <= set(one) for one in listed)


@pytest.mark.parametrize(
    ("settings", "listed"),
    [
        ({}, False),
        ({"card_grpc": True}, True),
        ({"grpc_port": 0}, True),
        ({"public_grpc": "grpc.example.org:443"}, True),
        ({"grpc_port": 0, "card_grpc": False}, False),
    ],
)
async def test_cards_list_grpc_only_where_it_was_asked_for(
    tmp_path: Path, settings: dict[str, Any], listed: bool
) -> None:
    """It is served in each of these; google-adk refuses a card with an address that has no scheme."""
    values = Settings.model_validate({"data_dir": tmp_path / "data", **settings})
    async with (
        open_exchange(values, AGENTS) as exchange,
        open_faces(exchange, values, "http://127.0.0.1:1", 0) as app,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:1") as http,
    ):
        card = (await http.get("/agents/echo/.well-known/agent-card.json")).json()
    assert ("GRPC" in {one["protocolBinding"] for one in card["supportedInterfaces"]}) is listed
    assert ("GRPC" in {one["transport"] for one in card["additionalInterfaces"]}) is listed


REFUSED = {
    "an unknown task": ("GetTask", new.GetTaskRequest(id="nope"), (), ("NOT_FOUND", "TASK_NOT_FOUND")),
    "an unknown agent": ("SendMessage", ask("x", "nobody"), (), ("NOT_FOUND", "AGENT_NOT_FOUND")),
    "another version": (
        "SendMessage", ask("x"), (("a2a-version", "0.9"),), ("FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")),
    "no parts": (
        "SendMessage", new.SendMessageRequest(message=new.Message(message_id="m", role=new.ROLE_USER)), (),
        ("INVALID_ARGUMENT", "INVALID_INPUT")),
    "a wrong credential": (
        "SendMessage", ask("x"), (("authorization", "Bearer parley_no"),), ("UNAUTHENTICATED", "UNAUTHENTICATED")),
    "no extended card": (
        "GetExtendedAgentCard", new.GetExtendedAgentCardRequest(tenant="echo"), (),
        ("FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused_says_why(stubs: Stubs, case: str) -> None:
    method, request, metadata, expected = REFUSED[case]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await getattr(stubs.new, method)(request, metadata=metadata)
    assert reason(refused.value) == expected


@pytest.mark.parametrize("version", [(), (("a2a-version", ""),)], ids=["none", "empty"])
async def test_a_call_without_a_version_is_of_0_3_and_the_service_of_1_0_refuses_it(
    stubs: Stubs, version: Metadata
) -> None:
    """A2A 3.6.2; the service of 0.3 takes the same call."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stubs.bare.SendMessage(ask("hello"), metadata=version)
    assert reason(refused.value) == ("FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")
    assert "a2a-version: 1.0" in (refused.value.details() or "")
    assert (await stubs.old.SendMessage(old_ask("hello"), metadata=version)).task.id


async def test_a_refused_stream_says_why(stubs: Stubs) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stubs.new.SubscribeToTask(new.SubscribeToTaskRequest(id="nope")).read()
    assert reason(refused.value) == ("NOT_FOUND", "TASK_NOT_FOUND")


async def test_a_send_is_repeatable_by_its_key(stubs: Stubs) -> None:
    key = (("idempotency-key", "k"),)
    first, second = [await stubs.new.SendMessage(ask("hello"), metadata=key) for _ in range(2)]
    assert first == second
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stubs.new.SendMessage(ask("other"), metadata=key)
    assert reason(refused.value)[0] == "ABORTED"


async def test_a_stream_begins_after_the_event_that_the_metadata_names(stubs: Stubs) -> None:
    task = (await stubs.new.SendMessage(ask("hello"))).task.id

    async def after(cursor: str) -> list[str]:
        request = new.SubscribeToTaskRequest(tenant="echo", id=task)
        frames = stubs.new.SubscribeToTask(request, metadata=(("last-event-id", cursor),))
        return [frame.WhichOneof("payload") async for frame in frames]

    whole = await after("0")
    assert whole[-2:] == ["artifact_update", "status_update"]
    assert await after("4") == ["status_update"]


@pytest.fixture
async def strangers(tmp_path: Path) -> AsyncIterator[tuple[Stubs, Metadata, Metadata]]:
    """Two callers of a server that asks who they are."""
    async with serving(tmp_path / "data", AGENTS) as server, httpx2.AsyncClient(base_url=server.url) as http:
        made = [await http.post("/admin/keys", json={"name": name}) for name in ("ann", "bob")]
    ann, bob = ((("authorization", f"Bearer {one.json()['token']}"),) for one in made)
    async with serving(tmp_path / "data", AGENTS, auth="required", grpc_port=0) as server:
        found = Stubs(server, await address_of(server))
        yield found, ann, bob
        await found.channel.close()


ABOUT_A_TASK = {
    "GetTask": lambda task: new.GetTaskRequest(tenant="writer", id=task),
    "CancelTask": lambda task: new.CancelTaskRequest(tenant="writer", id=task),
    "SubscribeToTask": lambda task: new.SubscribeToTaskRequest(tenant="writer", id=task),
    "ListTaskPushNotificationConfigs": lambda task: new.ListTaskPushNotificationConfigsRequest(
        tenant="writer", task_id=task
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", ABOUT_A_TASK)
async def test_another_callers_task_answers_as_an_unknown_one(
    strangers: tuple[Stubs, Metadata, Metadata], method: str
) -> None:
    stubs, ann, bob = strangers
    task = (await stubs.new.SendMessage(ask("begin", "writer"), metadata=ann)).task

    async def refused(id_: str) -> tuple[Any, ...]:
        call = getattr(stubs.new, method)(ABOUT_A_TASK[method](id_), metadata=bob)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await (call.read() if method == "SubscribeToTask" else call)
        return error.value.code(), error.value.details(), error.value.trailing_metadata(), reason(error.value)

    theirs = await refused(task.id)
    assert theirs == await refused(new_id())
    assert theirs[-1] == ("NOT_FOUND", "TASK_NOT_FOUND")
    assert await stubs.new.GetTask(new.GetTaskRequest(tenant="writer", id=task.id), metadata=ann) == task


async def test_data_and_bytes_pass_through(stubs: Stubs) -> None:
    part = new.Part(raw=b"\x00\xff", media_type="x/y", filename="a")
    data = json_format.ParseDict({"data": {"n": 42}}, new.Part())
    message = new.Message(message_id="m", role=new.ROLE_USER, parts=[part, data])
    task = (await stubs.new.SendMessage(new.SendMessageRequest(tenant="file", message=message))).task
    assert list(task.history[0].parts) == [part, data]
    assert task.artifacts[0].parts[0] == part
