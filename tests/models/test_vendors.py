"""Every vendor's model over its real wire: what it is sent, what comes back, and what its faults become."""

import json
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from msgspec import Raw

from parley.errors import (
    ContentNotSupported,
    Invalid,
    ModelError,
    ModelInterrupted,
    ModelNotSetUp,
    ModelUnavailable,
)
from parley.extras import ExtraMissing
from parley.models import openai_compatible
from parley.models.endpoint import ModelAccess, open_model
from parley.models.llm import Delta, Finish, Llm, Sampling, Speech, TokenUsage
from parley.models.offline import OfflineModel
from parley.runs.rules.content import Part, text_part
from parley.telemetry.trace import Trace, entered
from tests.models.vendors import (
    CUT,
    HANG,
    KEY,
    WIRES,
    Anthropic,
    OpenAi,
    Reply,
    Vendor,
    Wire,
    answer,
    refusal,
    vendor,
)

HELLO = [Speech("user", (text_part("hello"),))]
NOTHING = Sampling()


@pytest.fixture(params=WIRES, ids=lambda wire: wire.__name__)
def wire(request: pytest.FixtureRequest) -> Wire:
    return request.param


@pytest.fixture
async def far(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Vendor]:
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEST_KEY", KEY)
    async with vendor() as made:
        yield made


def model(wire: Wire, far: Vendor, **access: float) -> Llm:
    return open_model(wire.name, ModelAccess(far.url, "TEST_KEY", **{"silence_s": 5.0, "retries": 0, **access}))  # type: ignore[arg-type]


async def ask(
    llm: Llm, messages: list[Speech] = HELLO, sampling: Sampling = NOTHING
) -> list[Delta | TokenUsage | Finish]:
    async with aclosing(llm.stream(messages, sampling)) as outputs:
        return [output async for output in outputs]


def text(outputs: list[Delta | TokenUsage | Finish]) -> str:
    return "".join(output.text for output in outputs if isinstance(output, Delta))


async def test_an_answer_comes_in_pieces_with_what_it_took_and_why_it_ended(wire: Wire, far: Vendor) -> None:
    far.replies = [answer(wire, "Hi ", "there")]
    outputs = await ask(model(wire, far))
    assert [output.text for output in outputs if isinstance(output, Delta)] == ["Hi ", "there"]
    counted = [output for output in outputs if isinstance(output, TokenUsage)][-1]
    assert (counted.input_tokens, counted.output_tokens) == (11, 7)
    assert counted.model in ("gpt-test-0613", "claude-test-1")
    assert outputs[-1] == Finish("stop")


async def test_what_is_asked_is_what_was_said(wire: Wire, far: Vendor) -> None:
    far.replies = [answer(wire, "ok")]
    talk = [*HELLO, Speech("agent", (text_part("hi"),)), Speech("user", (Part(data=Raw(b'{"n":1.0}')),))]
    await ask(model(wire, far), talk, Sampling("Be brief.", 0.5, 99))
    (asked,) = far.asked
    assert wire.said(asked) == [
        ("system", "Be brief."), ("user", "hello"), ("assistant", "hi"), ("user", '{"n":1.0}')
    ]  # fmt: skip
    assert (asked.path, asked.body["model"]) == (wire.path, wire.name.split(":")[1])
    assert (asked.body["max_tokens"], asked.body["stream"]) == (99, True)
    assert asked.body.get("temperature") == (0.5 if wire is OpenAi else None)
    assert KEY in (asked.headers.get("x-api-key", ""), asked.headers.get("authorization", "").removeprefix("Bearer "))


async def test_images_and_files_are_shown_as_the_vendor_knows_them(wire: Wire, far: Vendor) -> None:
    far.replies = [answer(wire, "ok")]
    parts = (
        text_part("look"),
        Part(raw=b"png", media_type="image/png"),
        Part(url="https://example.com/a.jpg", media_type="image/jpeg"),
        Part(raw=b"pdf", media_type="application/pdf", filename="a.pdf"),
        Part(raw=b"x = 1", media_type="text/x-python", filename="a.py"),
    )
    await ask(model(wire, far), [Speech("user", parts)])
    content = far.asked[0].body["messages"][0]["content"]
    sent = json.dumps(content)
    for expected in (b64encode(b"png").decode(), "https://example.com/a.jpg", b64encode(b"pdf").decode(), "a.py:"):
        assert expected in sent
    kinds = [block["type"] for block in content]
    assert kinds in (["text", "image_url", "image_url", "file", "text"], ["text", "image", "image", "document", "text"])


@pytest.mark.parametrize(
    "part",
    [Part(raw=b"x", media_type="audio/wav"), Part(raw=b"x"), Part(raw=b"\xff", media_type="text/plain")],
)
async def test_what_it_cannot_read_is_refused_before_anybody_is_asked(wire: Wire, far: Vendor, part: Part) -> None:
    far.replies = [answer(wire, "ok")]
    with pytest.raises(ContentNotSupported):
        await ask(model(wire, far), [Speech("user", (part,))])
    assert far.asked == []


FAULTS = [
    (400, ModelError), (401, ModelNotSetUp), (403, ModelNotSetUp), (404, ModelNotSetUp), (413, ModelError),
    (429, ModelUnavailable), (500, ModelUnavailable), (503, ModelUnavailable), (529, ModelUnavailable),
    (302, ModelError),
]  # fmt: skip


@pytest.mark.parametrize(("status", "kind"), FAULTS)
async def test_a_refusal_says_what_the_caller_may_know(
    wire: Wire, far: Vendor, status: int, kind: type[ModelError]
) -> None:
    far.replies = [refusal(status, ("location", "http://127.0.0.1:1/"))]
    with pytest.raises(kind) as caught:
        await ask(model(wire, far))
    assert type(caught.value) is kind
    assert "Incorrect" not in caught.value.message
    assert "Incorrect" in str(caught.value.details["said"])
    assert KEY not in caught.value.message + str(caught.value.details)


@pytest.mark.parametrize("status", [429, 500, 529])
async def test_what_passes_is_asked_again(wire: Wire, far: Vendor, status: int) -> None:
    far.replies = [
        refusal(status, ("retry-after-ms", "10")),
        refusal(status, ("retry-after", "0.05")),
        answer(wire, "x"),
    ]
    assert text(await ask(model(wire, far, retries=2))) == "x"
    assert len(far.asked) == 3


async def test_it_is_asked_again_only_so_often(wire: Wire, far: Vendor) -> None:
    far.replies = [refusal(429, ("retry-after-ms", "10"))]
    with pytest.raises(ModelUnavailable):
        await ask(model(wire, far, retries=1))
    assert len(far.asked) == 2


BROKEN = [(CUT,), (), ("trouble",)]


@pytest.mark.parametrize("steps", BROKEN)
async def test_an_answer_that_breaks_off_is_told_from_one_that_ends(
    wire: Wire, far: Vendor, steps: tuple[str, ...]
) -> None:
    ends = tuple(wire.trouble() if step == "trouble" else step for step in steps)
    far.replies = [Reply((*wire.start(), wire.word("half"), *ends))]
    heard: list[str] = []

    async def listen() -> None:
        async with aclosing(model(wire, far).stream(HELLO, NOTHING)) as outputs:
            async for output in outputs:
                heard.extend([output.text] if isinstance(output, Delta) else [])

    with pytest.raises(ModelInterrupted):
        await listen()
    assert heard == ["half"]


@pytest.mark.parametrize(
    "chunk",
    [b"data: {not json\n\n", b'event: message_start\ndata: {"type": "message_start"}\n\n', b"data: 7\n\n",
     b'event: content_block_delta\ndata: {"type": "content_block_delta"}\n\n', b'data: {"choices": 7}\n\n',
     b'event: message_delta\ndata: [1]\n\n'],
)  # fmt: skip
async def test_nonsense_is_no_answer(wire: Wire, far: Vendor, chunk: bytes) -> None:
    far.replies = [Reply((*wire.start(), chunk))]
    with pytest.raises(ModelError):
        await ask(model(wire, far))


async def test_slow_words_are_waited_for_and_silence_is_not(wire: Wire, far: Vendor) -> None:
    slow = [step for word in ["a", "b", "c"] for step in (0.15, wire.word(word))]
    far.replies = [Reply((*wire.start(), *slow, *wire.end())), Reply((*wire.start(), wire.word("a"), HANG))]
    assert text(await ask(model(wire, far, silence_s=0.3))) == "abc"
    with pytest.raises(ModelInterrupted):
        await ask(model(wire, far, silence_s=0.3))


async def test_nobody_there(wire: Wire, far: Vendor) -> None:
    far.replies = [Reply((HANG,))]
    llm = open_model(wire.name, ModelAccess("http://127.0.0.1:9", "TEST_KEY", retries=0))
    with pytest.raises(ModelUnavailable, match="reached"):
        await ask(llm)


async def test_to_close_the_stream_is_to_hang_up(wire: Wire, far: Vendor) -> None:
    far.replies = [Reply((*wire.start(), wire.word("a"), HANG))]
    async with aclosing(model(wire, far).stream(HELLO, NOTHING)) as outputs:
        async for output in outputs:
            if isinstance(output, Delta):
                break
    await far.hung_up.wait()


async def test_without_its_key_nobody_is_asked(wire: Wire, far: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    far.replies = [answer(wire, "x")]
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(ModelNotSetUp) as caught:
        await ask(model(wire, far))
    assert caught.value.details["variable"] == "TEST_KEY"
    assert "TEST_KEY" not in caught.value.message
    assert far.asked == []


async def test_another_server_gets_no_key_that_was_not_named_for_it(
    wire: Wire, far: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, KEY)
    far.replies = [answer(wire, "x")]
    assert text(await ask(open_model(wire.name, ModelAccess(far.url)))) == "x"
    assert KEY not in str(far.asked[0].headers)


@pytest.mark.parametrize("name", ["gpt-4", "openai:", "mistral:large", ":", ""])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="openai:NAME"):
        open_model(name, ModelAccess())


def test_a_missing_package_is_told(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = wire.name.split(":")[0]
    monkeypatch.setattr("parley.extras.find_spec", lambda module: None if module == vendor else object())
    with pytest.raises(ExtraMissing, match=r"pip install 'parley-a2a\[llm\]'"):
        open_model(wire.name, ModelAccess())


async def test_the_offline_model_says_so_and_answers_the_same_to_the_same() -> None:
    llm = OfflineModel(pause_s=0)
    outputs = await ask(llm)
    assert text(outputs) == "This is the offline model, which only repeats. You said: hello"
    assert outputs == await ask(llm)
    assert outputs[-1] == Finish("stop")
    assert text(await ask(llm, sampling=Sampling(max_tokens=2))) == "This is"
    with pytest.raises(ContentNotSupported):
        await ask(llm, [Speech("user", (Part(raw=b"png", media_type="image/png"),))])


def test_models_are_equal_when_they_are_reached_the_same_way() -> None:
    assert open_model(OpenAi.name, ModelAccess()) == open_model(OpenAi.name, ModelAccess())
    assert open_model(OpenAi.name, ModelAccess()) != open_model(OpenAi.name, ModelAccess(key_from="OTHER"))
    assert open_model(OpenAi.name, ModelAccess()) != open_model(Anthropic.name, ModelAccess())


TRACE = Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "congo=1", "req-42")


async def test_a_server_of_ones_own_is_part_of_the_trace_and_a_public_vendor_is_not(
    wire: Wire, far: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.replies = [answer(wire, "Hi")]
    with entered(TRACE):
        await ask(model(wire, far))
        monkeypatch.setattr(openai_compatible, "BASE_URL", far.url)
        await ask(model(wire, far))
    own, public = [asked.headers for asked in far.asked]
    told = (own.get("traceparent"), own.get("tracestate"))
    assert told == ((TRACE.traceparent, "congo=1") if wire is OpenAi else (None, None))
    assert "x-request-id" not in own
    assert "traceparent" not in public
