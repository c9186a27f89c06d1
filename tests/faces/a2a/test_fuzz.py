"""Whatever comes in: no crash, no trace, no hang. First the codecs with values, then the server with bytes."""

import asyncio
import json
import random
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.structs import replace

from parley import telemetry
from parley.errors import ParleyError
from parley.faces.a2a.dialect import Dialect, Operation, encode, read
from parley.faces.a2a.jsonrpc import METHODS
from parley.faces.a2a.messages import TaskShown
from parley.faces.a2a.v03 import V03
from parley.faces.a2a.v03rest import V03Rest
from parley.faces.a2a.v1 import V1
from parley.ids import ConversationId, RunId
from parley.runs.rules.content import Part, check_parts
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import RunStatus, StatusMessage
from parley.testing.servers import Server
from tests.faces.wires import TASK_OPERATIONS, WIRES

DIALECTS: list[Dialect] = [V1(), V03(), V03Rest()]
OPERATIONS: list[Operation] = [
    "send", "stream", "get", "list", "cancel", "subscribe", "set_hook", "get_hook", "list_hooks", "delete_hook", "card",
]  # fmt: skip
NAMES = st.sampled_from(
    [
        "message", "messageId", "message_id", "role", "parts", "content", "kind", "type", "text", "raw", "url", "data",
        "file", "bytes", "uri", "fileWithBytes", "metadata", "contextId", "taskId", "task_id", "id", "configuration",
        "historyLength", "blocking", "returnImmediately", "pushNotificationConfig", "taskPushNotificationConfig",
        "token", "authentication", "schemes", "scheme", "credentials", "tenant", "pageSize", "pageToken", "status",
        "statusTimestampAfter", "includeArtifacts", "extensions", "referenceTaskIds", "blob", "config", "",
    ]
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["ROLE_USER", "user", "text", "file", "TASK_STATE_WORKING", "dGNr", "https://a/b", "m-1"])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6), max_leaves=25
)


def understood(dialect: Dialect, operation: Operation, content: bytes) -> None:
    """Everything that a dialect does with what came in, before anybody is asked."""
    params = read(dialect.params[operation], content)
    match operation:
        case "send" | "stream":
            check_parts(dialect.ask(params).message.parts)
        case "list":
            dialect.query(params)
        case "set_hook":
            dialect.hook(params)
        case "get_hook" | "list_hooks" | "delete_hook":
            dialect.hook_ref(params)
        case _:
            pass


def tried(dialect: Dialect, operation: Operation, content: bytes) -> str | None:
    """Why it was refused, if it was; any other exception than our own goes through."""
    try:
        if operation in dialect.params:
            understood(dialect, operation, content)
    except ParleyError as refused:
        return refused.message
    return None


@pytest.mark.slow
@settings(max_examples=400)
@given(st.sampled_from(DIALECTS), st.sampled_from(OPERATIONS), st.dictionaries(NAMES, JSON, max_size=6))
def test_any_json_is_understood_or_refused(dialect: Dialect, operation: Operation, value: Any) -> None:
    assert tried(dialect, operation, json.dumps(value).encode()) != ""


@settings(max_examples=400)
@given(st.sampled_from(DIALECTS), st.sampled_from(OPERATIONS), st.binary(max_size=60))
def test_any_bytes_are_understood_or_refused(dialect: Dialect, operation: Operation, content: bytes) -> None:
    assert tried(dialect, operation, content) != ""


OBJECTS = st.dictionaries(
    st.text(max_size=5), st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
PARTS = st.one_of(
    TEXTS.map(lambda text: Part(text=text)),
    OBJECTS.map(lambda value: Part(data=Raw(json.dumps(value).encode()))),
    st.tuples(st.binary(max_size=40), TEXTS, TEXTS).map(lambda x: Part(raw=x[0], media_type=x[1], filename=x[2])),
    TEXTS.map(lambda text: Part(url=f"https://example.com/{text}")),
)


def semantic(part: Part) -> Any:
    data = None if part.data is UNSET else json.loads(bytes(part.data))
    return part.text, part.raw, part.url, data, part.media_type or None, part.filename or None


@settings(max_examples=300)
@given(st.sampled_from(DIALECTS), st.lists(PARTS, min_size=1, max_size=4).map(tuple))
def test_what_is_written_can_be_read_again(dialect: Dialect, parts: tuple[Part, ...]) -> None:
    run = Run(RunId("r"), "agent", ConversationId("c"), "local", state=State.COMPLETED)
    shown = TaskShown(run, RunStatus(State.COMPLETED, 0), [StatusMessage("user", "m", parts)], [])
    written = json.loads(encode(dialect.task(shown)))
    asked = dialect.ask(read(dialect.params["send"], json.dumps({"message": written["history"][0]}).encode()))
    kept = parts if isinstance(dialect, V1) else tuple(_lossy(part) for part in parts)
    assert [semantic(part) for part in asked.message.parts] == [semantic(part) for part in kept]
    assert (asked.task, asked.context) == ("r", "c")


def _lossy(part: Part) -> Part:
    """0.3 knows a media type and a name only for files."""
    return part if part.raw is not None else replace(part, media_type=None, filename=None)


@settings(max_examples=200)
@given(st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_keeps_its_spelling(number: float) -> None:
    spelled = json.dumps(number)
    message = f'{{"messageId":"m","role":"ROLE_USER","parts":[{{"data":{{"n":{spelled}}}}}]}}'
    part = V1().ask(read(V1.params["send"], f'{{"message":{message}}}'.encode())).message.parts[0]
    assert encode(part) == f'{{"data":{{"n":{spelled}}}}}'.encode()


class Bytes:
    """Ways to spoil a good request; the same ones in every run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self, host: str) -> bytes:
        wire = self._random.choice(WIRES)
        operation = self._random.choice([*TASK_OPERATIONS, *(["list"] if wire.name.endswith("1.0") else [])])
        method, path, body = wire.request(operation, self._random.choice(["x", "", "0" * 40, "%00", "a b", "é"]))
        content = self._spoiled(json.dumps(body or {}).encode())
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(content)}\r\n"
        head += f"A2A-Version: {self._random.choice(['1.0', '0.3', '', 'x'])}\r\nContent-Type: application/json\r\n"
        head += self._random.choice(["", "Last-Event-ID: 9\r\n", "Idempotency-Key: \x01\r\n", "X: y\r\n" * 50])
        whole = head.encode("utf-8", "surrogatepass") + b"Connection: close\r\n\r\n" + content
        return self._spoiled(whole) if self._random.random() < 0.5 else whole

    def _spoiled(self, content: bytes) -> bytes:
        one = self._random.randrange
        match one(7):
            case 0:
                return content[: one(len(content) + 1)]
            case 1:
                at = one(len(content) + 1)
                return content[:at] + self._random.randbytes(one(1, 9)) + content[at:]
            case 2:
                return content.replace(b'"', b"", 1 + one(3))
            case 3:
                return content.replace(b"{", b"[" * one(2, 3000), 1)
            case 4:
                return self._random.randbytes(one(200))
            case 5:
                return content * one(1, 4)
            case _:
                return content


async def answered(host: str, port: int, request: bytes) -> bytes:
    """Send, say that nothing follows, and read until the server closes."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_spoiled_bytes_on_the_socket_do_no_harm(server: Server, seed: int) -> None:
    place = urlsplit(server.url)
    assert place.hostname is not None
    assert place.port is not None
    crashes: list[object] = []
    detach = telemetry.attach(lambda name, fields: crashes.append(fields) if name == "http.crashed" else None)
    source = Bytes(seed)
    statuses: Counter[bytes] = Counter()
    try:
        for _ in range(500):
            request = source.request(place.netloc)
            reply = await answered(place.hostname, place.port, request)
            statuses[reply[9:12]] += 1
            assert not reply.startswith(b"HTTP/1.1 5"), request
            assert b"Traceback" not in reply
            assert b'"internal"' not in reply, request
    finally:
        detach()
    assert crashes == []
    assert {b"200", b"400", b"404"} <= statuses.keys(), statuses
    async with httpx2.AsyncClient() as http:
        assert (await http.get(server.url + "/healthz")).status_code == 200


@pytest.mark.parametrize("method", METHODS)
async def test_nothing_is_too_odd_for_a_method(server: Server, method: str) -> None:
    odd: list[Any] = [None, [], {}, 0, "x", {"id": None}, {"id": {}}, {"message": []}, {"taskId": "\x00", "id": "\x00"}]
    async with httpx2.AsyncClient() as http:
        for params in odd:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            version = {"A2A-Version": "1.0"} if "/" not in method else {}
            reply = await http.post(server.agent("echo"), json=body, headers=version)
            assert reply.status_code == 200
            assert b"-32603" not in reply.content, (params, reply.text)
