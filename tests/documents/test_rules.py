"""Formats of documents: named by agents, or detected."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.documents.rules import FORMATS, content_of, detected, edited_format, merged_format, named_by_media_type

LONG = 200_000
SPACES = st.text(" \t\r\n", max_size=5)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
DOCUMENTS = st.lists(VALUES) | st.dictionaries(st.text(), VALUES)
WORDS = st.text(string.ascii_letters, min_size=1, max_size=8)
SENTENCES = st.lists(WORDS, min_size=1).map(lambda words: f"{' '.join(words)}, (really): {words[0]}'s 3 - 2 = 1!")
PROSE = st.lists(SENTENCES, min_size=1).map("\n\n".join)


@given(DOCUMENTS, SPACES, SPACES)
def test_an_object_or_array_as_a_whole_is_json(value: object, before: str, after: str) -> None:
    for indent in (None, 2):
        assert detected(f"{before}{json.dumps(value, indent=indent)}{after}") == "json"


@given(st.integers() | st.booleans() | st.none() | st.text(string.ascii_letters))
def test_a_number_or_a_word_alone_is_no_json(value: object) -> None:
    assert detected(json.dumps(value)) == "text"


@given(
    SPACES, st.sampled_from(["", "\ufeff", "<!-- one -->\n<!-- two -->", "<?xml version='1.0'?>\n"]),
    st.sampled_from(["<!doctype html>", "<!DOCTYPE HTML PUBLIC '-//W3C//DTD'>", "<html>", "<HTML lang=en>"]),
    PROSE,
)  # fmt: skip
def test_what_begins_like_a_page_is_html(space: str, before: str, start: str, rest: str) -> None:
    assert detected(f"{space}{before}{start}\n{rest}") == "html"


@given(PROSE)
def test_prose_without_marks_is_text(prose: str) -> None:
    assert detected(prose) == "text"


MARKED = [
    "# Heading", "Heading\n===", "- item", "* item", "12. item", "> quoted", "```\ncode\n```", "~~~", "a **strong** b",
    "an *important* word", "an _important_ word", "`code`", "[a](https://b)", "![a](b)", "| a | b |\n|---|---|", "---",
    "~~struck~~",
]  # fmt: skip


@given(PROSE, st.sampled_from(MARKED), PROSE)
def test_one_mark_makes_markdown_of_prose(before: str, mark: str, after: str) -> None:
    assert detected(f"{before}\n\n{mark}\n\n{after}") == "markdown"


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "2 * 3 * 4 = 24", "snake_case_name and __init", "#hashtag", "a-b", "-5 degrees", "1.5 litres", "a > b",
        "[1] a footnote", "f(x)[0](", "{not json}", "[1, 2", "<div>no page</div>", "<htmlx>", "It costs 5* and 6*.",
        "the ` sign", "a | b",
    ],
)  # fmt: skip
def test_signs_that_are_no_marks_leave_it_text(text: str) -> None:
    assert detected(text) == "text"


@given(st.text())
def test_every_text_has_one_of_four_formats_and_its_spaces_do_not_matter(text: str) -> None:
    assert detected(text) in ("json", "html", "markdown", "text")
    assert detected(f"\n{text.strip()}\n") == detected(text)


@pytest.mark.parametrize(
    "piece",
    ["[", "{", "]", "](", "*", "_", "`", "~", "|", "#", "-", " ", "\n", "<!--", "<!-- -->", "<?xml", "* ", "_a", "*a",
     "`a\n", "\n|a", "1", "1.", '{"a":', "[1,", "9" * 5000 + ",", "\n ", "\n#", "\n   -", "```", "```\n", "``` \n"],
)  # fmt: skip
def test_no_text_takes_longer_than_its_length(piece: str) -> None:
    """These tests would not end if a rule tried every way to divide a text."""
    many = LONG // len(piece)
    for text in (piece * many, f"```{piece * many}", f"[{piece * many}]", f"{{{piece * many}}}", f"x{piece * many}x"):
        assert detected(text) in ("json", "html", "markdown", "text")
        assert content_of(text, "plan").format in FORMATS["plan"]


@pytest.mark.parametrize(
    ("answer", "expected", "content"),
    [
        ('```json\n{"a": 1}\n```', "", ('{"a": 1}', "json")),
        ('```json\n{"a": 1', "", ('{"a": 1', "json")),
        ('```\n{"a": 1}\n```', "", ('{"a": 1}', "json")),
        ("```txt\n# no heading\n```", "", ("# no heading", "text")),
        ("```sql\nselect 1\n```", "", ("select 1", "text")),
        ("```html\n<p>x</p>\n```", "json", ("<p>x</p>", "html")),
        ("```python\nx = 1\n```", "", ("x = 1", "text")),
        ("# One\n\n```python\nx = 1\n```", "", ("# One\n\n```python\nx = 1\n```", "markdown")),
        ("```a\nx\n```\nand\n```b\ny\n```", "", ("```a\nx\n```\nand\n```b\ny\n```", "markdown")),
        ("Words.", "", ("Words.", "text")),
        ("Words.", "yaml", ("Words.", "yaml")),
        ("# Words", "text", ("# Words", "text")),
    ],
)
def test_an_answer_loses_its_fence_and_gets_a_format(answer: str, expected: str, content: tuple[str, str]) -> None:
    made = content_of(answer, "plan", expected)
    assert (made.text, made.format) == content


def test_a_media_type_names_a_format_that_the_kind_has() -> None:
    plan = FORMATS["plan"]
    assert named_by_media_type("text/HTML; charset=utf-8", plan) == "html"
    assert [named_by_media_type(one, plan) for one in (None, "text/plain", "text/css", "image/png")] == [""] * 4


def test_an_edit_keeps_the_format_unless_plain_text_gets_marks() -> None:
    assert [edited_format(one, "# Heading") for one in ("text", "markdown", "json", "html")] == [
        "markdown", "markdown", "json", "html",
    ]  # fmt: skip
    assert edited_format("text", "Words.") == "text"


def test_merged_versions_are_json_if_one_is_and_else_what_they_cannot_show() -> None:
    assert merged_format(["markdown", "json"]) == "json"
    assert merged_format(["python", "python"]) == "python"
    assert [merged_format(one) for one in (["markdown"] * 2, ["html"] * 2, ["python", "css"])] == [""] * 3
