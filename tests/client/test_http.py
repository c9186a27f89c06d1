"""The typed answer of a server, and the errors of calls."""

import httpx2
import pytest

from parley.client.http import HttpAnswer, Unreachable, pause_s, reaching


def answer(content: bytes, status: int = 200) -> HttpAnswer:
    return HttpAnswer("http://there/", status, {}, content)


@pytest.mark.parametrize(
    ("content", "error", "code", "message"),
    [
        (b'{"error": {"code": "busy", "message": "Later."}}', {"code": "busy", "message": "Later."}, "busy", "Later."),
        (b'{"error": {"code": -32004}}', {"code": -32004}, "-32004", ""),
        (b'{"error": "Not you."}', {"message": "Not you."}, "", "Not you."),
        (b'{"error": 7}', None, "", ""),
        (b"{}", None, "", ""),
        (b"<html>", None, "", ""),
        (b'"\xff"', None, "", ""),
    ],
)
def test_errors_are_read_in_every_form(content: bytes, error: object, code: str, message: str) -> None:
    given = answer(content, 400)
    assert not given.ok
    assert (given.error, given.error_code, given.error_message) == (error, code, message)


def test_a_body_is_read_as_a_type_or_not_at_all() -> None:
    assert answer(b'{"a": 1}').body == {"a": 1}
    assert answer(b'{"a": 1}').read(dict[str, int]) == {"a": 1}
    assert answer(b'{"a": "b"}').read(dict[str, int]) is None
    for unreadable in (b"", b"<html>", b'"\xff"', b"[" * 100_000):
        assert answer(unreadable).body is None


def test_a_server_that_does_not_answer_is_named() -> None:
    with (
        pytest.raises(Unreachable, match=r"^The platform does not answer \(ConnectError\)\.$"),
        reaching("The platform"),
    ):
        raise httpx2.ConnectError("refused")


def test_pauses_double_up_to_five_seconds() -> None:
    assert [pause_s(tries) for tries in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
