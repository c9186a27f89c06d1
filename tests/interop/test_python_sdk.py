"""a2a-sdk 1.3.0 with its default settings, over all three of its bindings."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest
from a2a.client import (
    A2ACardResolver,
    A2AClientError,
    AuthInterceptor,
    Client,
    ClientCallContext,
    ClientConfig,
    CredentialService,
    create_client,
)
from a2a.types import (
    AgentCard,
    AgentInterface,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt.api_jwk import PyJWK

from parley.errors import StoreUnavailable
from parley.faces.a2a.streams import Showing
from parley.ids import new_id
from parley.testing.servers import Server, serving

from .agents import AGENTS, MEMBERS

# The SDK's own protobuf classes and the caller of its private asyncio functions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
UNKNOWN = "01900000-0000-7000-8000-000000000000"


def ask(text: str, task: str = "", **more: Any) -> SendMessageRequest:
    parts = [Part(text=text, **more)]
    return SendMessageRequest(message=Message(message_id=new_id(), role=Role.ROLE_USER, parts=parts, task_id=task))


async def everything(steps: Any) -> list[Any]:
    return [step async for step in steps]


@pytest.fixture(params=BINDINGS)
def binding(request: pytest.FixtureRequest) -> str:
    return request.param


Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def connect(server: Server, binding: str) -> AsyncIterator[Connect]:
    """Clients for agents by their slug, or for a card; closed at the end."""
    clients: list[Client] = []

    async def connected(agent: str | AgentCard, **config: Any) -> Client:
        where = agent if isinstance(agent, AgentCard) else server.agent(agent)
        settings = ClientConfig(
            supported_protocol_bindings=[binding], grpc_channel_factory=grpc.aio.insecure_channel, **config
        )
        clients.append(await create_client(where, settings))
        return clients[-1]

    yield connected
    for client in clients:
        await client.close()


async def card_of(server: Server, agent: str) -> AgentCard:
    async with httpx.AsyncClient() as http:
        return await A2ACardResolver(http, server.agent(agent)).get_agent_card()


def grpc_of(card: AgentCard) -> str:
    return next(one.url for one in card.supported_interfaces if one.protocol_binding == "GRPC")


def as_of_0_3(card: AgentCard) -> AgentCard:
    old = [one for one in card.supported_interfaces if one.protocol_version == "0.3"]
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(old)
    return card


async def with_key(server: Server) -> ClientCallContext:
    """A call with a key of its own, on a server that needs none for anything else."""
    async with httpx.AsyncClient() as http:
        made = await http.post(f"{server.url}/admin/keys", json={"name": new_id()})
    return ClientCallContext(service_parameters={"x-api-key": made.json()["token"]})


async def begun(client: Client, text: str = "go") -> str:
    """A task that works or waits; whoever began it no longer listens."""
    async with aclosing(client.send_message(ask(text))) as steps:
        return (await anext(steps)).task.id


async def check_round_trip(client: Client, *, streaming: bool) -> None:
    steps = await everything(client.send_message(ask("begin")))
    task, context = steps[0].task.id, steps[0].task.context_id
    last = steps[-1].status_update.status if streaming else steps[-1].task.status
    assert last.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert last.message.parts[0].text == "Which name?"
    await everything(client.send_message(ask("Ada", task)))
    found = await client.get_task(GetTaskRequest(id=task))
    assert found.status.state == TaskState.TASK_STATE_COMPLETED
    assert found.context_id == context
    assert {said.context_id for said in found.history} == {context}
    assert found.artifacts[0].parts[0].text == "one two three"
    assert dict(found.artifacts[1].parts[0].data.struct_value) == {"name": "Ada", "count": 42}


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_answer_needs_the_task_and_no_context(connect: Connect, streaming: bool) -> None:
    await check_round_trip(await connect("writer", streaming=streaming), streaming=streaming)


async def test_the_clients_own_layer_for_0_3_understands_us_too(server: Server, connect: Connect, binding: str) -> None:
    card = as_of_0_3(await card_of(server, "writer"))
    if binding == "GRPC":
        # The client's layer has no way to name the tenant that the card asks for.
        assert [one.tenant for one in card.supported_interfaces if one.protocol_binding == "GRPC"] == ["writer"]
        return
    client = await connect(card)
    await check_round_trip(client, streaming=True)
    with pytest.raises(TaskNotFoundError):
        await client.get_task(GetTaskRequest(id=UNKNOWN))


async def test_a_stream_is_the_task_and_then_its_updates(connect: Connect) -> None:
    client = await connect("writer")
    steps = await everything(client.send_message(ask("begin")))
    kinds = [step.WhichOneof("payload") for step in steps]
    assert kinds[0] == "task"
    assert set(kinds[1:]) == {"status_update", "artifact_update"}
    chunks = [step.artifact_update for step in steps if step.HasField("artifact_update")]
    assert "".join(chunk.artifact.parts[0].text for chunk in chunks) == "one two three"
    assert [chunk.append for chunk in chunks] == [False, True, True]


async def test_a_direct_answer_is_a_message(connect: Connect) -> None:
    for streaming in (True, False):
        client = await connect("greeter", streaming=streaming)
        (only,) = await everything(client.send_message(ask("Ada")))
        assert only.message.parts[0].text == "Hello, Ada."
        assert only.message.context_id
        assert not only.message.task_id


async def test_polling_answers_at_once(connect: Connect) -> None:
    client = await connect("sleeper", streaming=False, polling=True)
    (only,) = await everything(client.send_message(ask("zzz")))
    assert only.task.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_bytes_travel_both_ways(server: Server, connect: Connect, binding: str, version: str) -> None:
    card = await card_of(server, "file")
    if (binding, version) == ("GRPC", "0.3"):
        # The default agent, and the only one that 0.3 can reach there.
        server.exchange.replace([one for one in AGENTS if one.agent.slug == "file"])
    client = await connect(as_of_0_3(card) if version == "0.3" else card, streaming=False)
    part = Part(raw=bytes(range(256)), filename="all.bin", media_type="application/octet-stream")
    message = Message(message_id=new_id(), role=Role.ROLE_USER, parts=[part])
    (only,) = await everything(client.send_message(SendMessageRequest(message=message)))
    same, large = only.task.artifacts
    assert same.parts[0] == part
    assert large.parts[0].raw == b"\x00" * 100_000


async def test_who_subscribes_sees_the_cancellation(connect: Connect) -> None:
    client = await connect("sleeper")
    task = await begun(client)
    subscription = client.subscribe(SubscribeToTaskRequest(id=task))
    assert (await anext(subscription)).task.id == task
    canceled = await client.cancel_task(CancelTaskRequest(id=task))
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED
    rest = await everything(subscription)
    assert rest[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED


async def test_tasks_are_listed_by_page_context_and_state(connect: Connect) -> None:
    client = await connect("writer", streaming=False)
    tasks = [(await everything(client.send_message(ask("begin"))))[0].task for _ in range(3)]
    newest_first = [task.id for task in reversed(tasks)]
    page = await client.list_tasks(ListTasksRequest(page_size=2))
    assert [task.id for task in page.tasks] == newest_first[:2]
    assert (page.page_size, page.total_size) == (2, 3)
    rest = await client.list_tasks(ListTasksRequest(page_size=2, page_token=page.next_page_token))
    assert [task.id for task in rest.tasks] == newest_first[2:]
    assert not rest.next_page_token
    of_one = await client.list_tasks(ListTasksRequest(context_id=tasks[1].context_id))
    assert [task.id for task in of_one.tasks] == [tasks[1].id]
    waiting = await client.list_tasks(ListTasksRequest(status=TaskState.TASK_STATE_INPUT_REQUIRED))
    assert waiting.total_size == 3
    assert (await client.list_tasks(ListTasksRequest(status=TaskState.TASK_STATE_FAILED))).total_size == 0


async def test_push_configurations_are_made_read_listed_and_deleted(connect: Connect) -> None:
    client = await connect("sleeper")
    task = await begun(client)
    authentication = AuthenticationInfo(scheme="Bearer", credentials="secret")
    wanted = TaskPushNotificationConfig(
        task_id=task, id="mine", url="http://127.0.0.1:9/hook", token="t", authentication=authentication
    )
    made = await client.create_task_push_notification_config(wanted)
    assert (made.task_id, made.id, made.url, made.token) == (task, "mine", "http://127.0.0.1:9/hook", "t")
    which = GetTaskPushNotificationConfigRequest(task_id=task, id="mine")
    assert await client.get_task_push_notification_config(which) == made
    listed = await client.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=task))
    assert list(listed.configs) == [made]
    gone = DeleteTaskPushNotificationConfigRequest(task_id=task, id="mine")
    await client.delete_task_push_notification_config(gone)
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(which)


async def test_the_extended_card_has_more_skills_and_needs_a_key(server: Server, connect: Connect) -> None:
    client = await connect("member")
    card = await client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=await with_key(server))
    assert [skill.id for skill in card.skills] == ["member", MEMBERS.skills[0].id]
    with pytest.raises((A2AError, httpx.HTTPStatusError, A2AClientError)):
        await (await connect("member")).get_extended_agent_card(GetExtendedAgentCardRequest())


async def test_the_signature_of_a_card_is_verified_with_our_published_keys(server: Server, binding: str) -> None:
    jku = f"{server.url}/.well-known/jwks.json"
    async with httpx.AsyncClient() as http:
        keys = {key["kid"]: PyJWK(key) for key in (await http.get(jku)).json()["keys"]}

    def key_of(kid: str | None, where: str | None) -> PyJWK:
        assert where == jku
        return keys[kid or ""]

    verify = create_signature_verifier(key_of, ["ES256"])
    settings = ClientConfig(
        supported_protocol_bindings=[binding], grpc_channel_factory=grpc.aio.insecure_channel
    )  # fmt: skip
    client = await create_client(server.agent("member"), settings, signature_verifier=verify)
    key = await with_key(server)
    await client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=key, signature_verifier=verify)
    await client.close()
    forged = await card_of(server, "member")
    forged.description = "Another one."
    with pytest.raises(InvalidSignaturesError):
        verify(forged)


async def test_a_tenant_names_the_agent_at_the_root(server: Server, binding: str, connect: Connect) -> None:
    card = await card_of(server, "echo")
    url = grpc_of(card) if binding == "GRPC" else server.url
    del card.supported_interfaces[:]
    card.supported_interfaces.append(
        AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0", tenant="writer")
    )
    client = await connect(card)
    await check_round_trip(client, streaming=True)
    assert (await client.list_tasks(ListTasksRequest())).total_size == 1
    task = await begun(client)
    config = TaskPushNotificationConfig(task_id=task, id="mine", url="http://127.0.0.1:9/hook")
    assert (await client.create_task_push_notification_config(config)).id == "mine"
    assert (await client.cancel_task(CancelTaskRequest(id=task))).status.state == TaskState.TASK_STATE_CANCELED


@pytest.mark.slow
async def test_a_silent_stream_outlives_the_clients_patience(connect: Connect) -> None:
    client = await connect("quiet")
    steps = await everything(client.send_message(ask("hush")))
    assert steps[-1].status_update.status.message.parts[0].text == "Still here."


async def test_a_client_with_a_key_finds_out_how_to_present_it(tmp_path: Path, binding: str) -> None:
    async with serving(tmp_path / "data", AGENTS) as open_server, httpx.AsyncClient() as http:
        made = await http.post(f"{open_server.url}/admin/keys", json={"name": "ci"})

    class Keyring(CredentialService):
        async def get_credentials(self, security_scheme_name: str, context: Any) -> str | None:
            return made.json()["token"] if security_scheme_name == "bearer" else None

    async with serving(tmp_path / "data", AGENTS, auth="required", grpc_port=0) as server:
        settings = ClientConfig(
            supported_protocol_bindings=[binding], grpc_channel_factory=grpc.aio.insecure_channel
        )  # fmt: skip
        async with await create_client(server.agent("echo"), settings, [AuthInterceptor(Keyring())]) as client:
            steps = await everything(client.send_message(ask("hello")))
            assert steps[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_errors_are_the_clients_own_exceptions(connect: Connect) -> None:
    sleeper, writer, echo = await connect("sleeper"), await connect("writer"), await connect("echo")
    ended = (await everything(echo.send_message(ask("hello"))))[0].task.id
    for unknown in (UNKNOWN, "no id of ours"):
        with pytest.raises(TaskNotFoundError):
            await echo.get_task(GetTaskRequest(id=unknown))
        with pytest.raises(TaskNotFoundError):
            await everything(echo.subscribe(SubscribeToTaskRequest(id=unknown)))
    with pytest.raises(TaskNotFoundError):
        await everything(echo.send_message(ask("hello", UNKNOWN)))
    with pytest.raises(TaskNotFoundError):
        await sleeper.get_task(GetTaskRequest(id=ended))
    with pytest.raises(TaskNotCancelableError):
        await echo.cancel_task(CancelTaskRequest(id=ended))
    with pytest.raises(UnsupportedOperationError):
        await everything(echo.send_message(ask("once more", ended)))
    with pytest.raises(UnsupportedOperationError):
        await everything(echo.subscribe(SubscribeToTaskRequest(id=ended)))
    with pytest.raises(ContentTypeNotSupportedError):
        await everything(writer.send_message(ask("a,b", media_type="text/csv")))


async def test_a_stream_that_breaks_is_an_exception(
    server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Any, run: Any, event: Any) -> Any:
        raise StoreUnavailable("The disk is gone.")

    client = await connect("sleeper")
    task = await begun(client)
    subscription = client.subscribe(SubscribeToTaskRequest(id=task))
    await anext(subscription)
    monkeypatch.setattr(Showing, "event", broken)
    await client.cancel_task(CancelTaskRequest(id=task))
    with pytest.raises(A2AError, match="The disk is gone"):
        await everything(subscription)


async def test_what_an_agent_cannot_do_is_an_exception_of_its_own(connect: Connect) -> None:
    austere = await connect("austere")
    (only,) = await everything(austere.send_message(ask("hello")))
    assert only.task.artifacts[0].parts[0].text == "hello"
    config = TaskPushNotificationConfig(task_id=only.task.id, url="http://127.0.0.1:9/hook")
    with pytest.raises(PushNotificationNotSupportedError):
        await austere.create_task_push_notification_config(config)
    with pytest.raises((UnsupportedOperationError, NotImplementedError)):
        await everything(austere.subscribe(SubscribeToTaskRequest(id=only.task.id)))
    with pytest.raises((UnsupportedOperationError, ExtendedAgentCardNotConfiguredError)):
        await _extended_all_the_same(austere)


async def _extended_all_the_same(client: Client) -> None:
    """The client does not ask when the card promises none."""
    client._card.capabilities.extended_agent_card = True  # pyright: ignore
    await client.get_extended_agent_card(GetExtendedAgentCardRequest())
