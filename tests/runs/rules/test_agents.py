"""Media types that an agent accepts."""

import pytest
from msgspec import Raw

from parley.errors import ContentNotSupported
from parley.runs.rules.agents import Agent, check_content
from parley.runs.rules.content import Part, text_part

DEFAULT = ("text/plain", "application/json")
DATA = Part(data=Raw(b"{}"))


def reading(*modes: str) -> Agent:
    return Agent("a", "A", "An agent.", input_modes=modes)


def typed(media: str) -> Part:
    return Part(raw=b"x", media_type=media)


READ = [
    (DEFAULT, text_part("hello")),
    (DEFAULT, DATA),
    (DEFAULT, typed("text/plain; charset=utf-8")),
    (DEFAULT, typed(" Text/PLAIN ")),
    (("IMAGE/PNG",), typed("image/png")),
    (("image/*",), typed("image/png")),
    (("text",), typed("text/csv")),
    (("text",), typed("text")),
    (("*",), typed("image/png")),
    (("*/*",), typed("image/png")),
    ((), Part(raw=b"x")),
    ((), Part(url="https://example.com/a")),
    ((), typed("")),
]
REFUSED = [
    (("image/*",), text_part("hello"), "text/plain"),
    (("text/plain",), DATA, "application/json"),
    (DEFAULT, Part(text="a,b", media_type="Text/CSV; header=present"), "text/csv"),
    (DEFAULT, typed("text/plainer"), "text/plainer"),
    (("image/*",), typed("imagery/png"), "imagery/png"),
    (("text",), typed("application/text"), "application/text"),
    (DEFAULT, Part(url="https://example.com/a.png", media_type="image/png"), "image/png"),
    ((), text_part("hello"), "text/plain"),
]


@pytest.mark.parametrize(("modes", "part"), READ)
def test_what_an_agent_declares_it_reads(modes: tuple[str, ...], part: Part) -> None:
    check_content(reading(*modes), (part,))


@pytest.mark.parametrize(("modes", "part", "kind"), REFUSED)
def test_what_it_does_not_declare_is_refused_by_its_name(modes: tuple[str, ...], part: Part, kind: str) -> None:
    with pytest.raises(ContentNotSupported) as refused:
        check_content(reading(*modes), (part,))
    assert refused.value.message == f"This agent does not read {kind}; it reads {', '.join(modes)}."


def test_one_part_that_is_not_read_refuses_them_all() -> None:
    with pytest.raises(ContentNotSupported, match="does not read image/png"):
        check_content(reading(*DEFAULT), (text_part("look"), typed("image/png")))
