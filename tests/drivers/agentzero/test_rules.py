"""The pure rules: what a chat's log shows, which files may be fetched, whose a report is."""

import time

import pytest

from parley.drivers.agentzero.chat import ChatItem, Course, fetched, kind_of, message_id, newest, owner, plain, spoken
from parley.drivers.agentzero.turns import chat_id
from parley.drivers.agentzero.watch import belongs, moment
from parley.runs.rules.content import Message, Part

from .reports import report


def item(no: int, type_: str, heading: str = "", content: str = "", **more: object) -> ChatItem:
    return ChatItem(no, type_, heading=heading, content=content, **more)  # pyright: ignore[reportArgumentType]


def test_what_was_shown_is_not_shown_again() -> None:
    course = Course(mine=0, items={})
    said = [one.content for one in course.heard([item(1, "agent", "A0: Thinking... |"), item(2, "util", "Memory")])]
    said += [one.content for one in course.heard([item(1, "agent", "A0: Thinking... |||")])]
    said += [one.content for one in course.heard([item(1, "agent", "A0: Acting"), item(3, "tool", "A0: Acting")])]
    assert said == ["A0: Thinking...", "A0: Acting"]


def test_a_course_that_is_taken_up_again_shows_what_came_later() -> None:
    course = Course(mine=0, shown=1, items={})
    assert [one.mark for one in course.heard([item(1, "agent", "one"), item(2, "agent", "two")])] == ["2"]


@pytest.mark.parametrize(
    ("items", "response"),
    [
        ([item(1, "response", content="old"), item(2, "user")], None),
        ([item(2, "user"), item(3, "response", content="sub", agentno=1)], None),
        ([item(2, "user"), item(3, "response", content="yes"), item(4, "util")], "yes"),
        ([item(2, "user"), item(3, "response", content="yes"), item(4, "error", content="no")], None),
        ([item(2, "user"), item(3, "error", content="no"), item(4, "response", content="yes")], "yes"),
        ([item(2, "user"), item(3, "response", content="")], None),
    ],
)
def test_the_response_is_the_first_agents_last_one_to_our_message(items: list[ChatItem], response: str | None) -> None:
    course = Course(mine=2, items={})
    course.heard(items)
    assert course.response == response


def test_messages_say_which_inputs_of_which_run_they_hold() -> None:
    log = [
        item(0, "user", id=message_id("run", 0, 0)), item(3, "user", id=message_id("run", 1, 4)),
        item(5, "user", id="other.9-9"), item(6, "user", id="7c7a"), item(7, "user", id="run.x"),
    ]  # fmt: skip
    assert newest(log, "run") == (5, 3)
    assert newest(log, "ru") == (0, -1)
    assert owner(log[:2]) == "run"
    assert owner(log[:4]) == ""


def test_of_an_error_only_its_kind_is_told() -> None:
    assert kind_of("litellm.exceptions.AuthenticationError: key sk-1 is wrong\n\nTraceback") == "AuthenticationError"
    assert kind_of("something else") == "error"
    assert plain("icon://chat A0: Responding ||") == "A0: Responding"


@pytest.mark.parametrize(
    ("answer", "paths"),
    [
        ("Saved to /a0/usr/workdir/a.txt.", ["/a0/usr/workdir/a.txt"]),
        ("`/a0/usr/workdir/b/c.py`, (/a0/usr/workdir/d)", ["/a0/usr/workdir/b/c.py", "/a0/usr/workdir/d"]),
        ("/a0/usr/workdir/../.env /a0/usr/workdirs/x /etc/passwd ../x /a0/usr/workdir", []),
        ("https://example.com/a0/usr/workdir/x and file:///a0/usr/workdir/y", []),
    ],
)
def test_only_files_below_the_roots_are_fetched(answer: str, paths: list[str]) -> None:
    assert fetched((), "", answer, ["/a0/usr/workdir"]) == paths


def test_listed_files_are_relative_to_where_the_role_works() -> None:
    listed = ("a.py", "/a0/usr/workdir/b.py", "../../etc/passwd", "a.py")
    assert fetched(listed, "/a0/usr/workdir", "", ["/a0/usr/workdir"]) == [
        "/a0/usr/workdir/a.py", "/a0/usr/workdir/b.py",
    ]  # fmt: skip


def test_files_have_names_of_their_own() -> None:
    message = Message(
        "m", (Part(raw=b"1", filename="../a.txt"), Part(raw=b"2", filename="../a.txt"), Part(url="http://x"))
    )
    text, files = spoken([message], "run")
    assert text == "http://x"
    assert len({one.name for one in files}) == 2
    assert all("/" not in one.name and one.name.endswith("a.txt") for one in files)
    assert spoken([message], "other")[1][0].name != files[0].name


def test_chats_are_told_apart_by_who_speaks() -> None:
    assert chat_id("zero", "user:1", "talk") != chat_id("zero", "user:2", "talk")
    assert chat_id("a", "bc") != chat_id("ab", "c")


def test_a_report_is_ours_by_time_and_by_what_it_says() -> None:
    now = int(time.time() * 1000)
    assert belongs(report(), now, now)
    assert not belongs(report(ago_s=10), now, now)
    assert not belongs(report(state="idle"), now, now)
    assert moment("2026-01-01T00:00:00") == moment("2026-01-01T00:00:00+00:00") == moment("2026-01-01T01:00:00+01:00")
    assert moment("soon") is None


MEGABYTE = 1_000_000


@pytest.mark.parametrize("piece", ["a.", ".E", "_", "Error.", "Exception1"])
def test_the_kind_of_an_error_is_found_in_a_megabyte_without_searching_any_of_it_twice(piece: str) -> None:
    assert kind_of(piece * (MEGABYTE // len(piece)) + " ValueError: no") in ("ValueError", "Error", "error")


@pytest.mark.parametrize("piece", ["|", " ", "| ", "\n", " icon://"])
def test_a_heading_of_a_megabyte_is_cleaned_without_searching_any_of_it_twice(piece: str) -> None:
    assert plain(piece * (MEGABYTE // len(piece)) + " x").endswith("x")


@pytest.mark.parametrize("piece", ["/.@", "/.+", ".+/", "+/", "/a", "/."])
def test_an_answer_of_a_megabyte_is_searched_for_files_once(piece: str) -> None:
    assert fetched((), "", piece * (MEGABYTE // len(piece)), ["/elsewhere"]) == []
