"""Markdown that would take too long is shown as it was written."""

import pytest

from parley.documents.export import markdown
from parley.documents.export.html import rendered
from parley.documents.export.markdown import MAX_TEXT, NOTE, Budget, contained
from parley.documents.export.pdf import blocks_of

SLOW = "[![l](" * 20_000


def test_a_text_that_takes_too_long_is_shown_as_it_was_written() -> None:
    shown = rendered(SLOW + "<b>", budget=Budget(0.02))
    assert NOTE in shown
    assert SLOW in shown
    assert "&lt;b&gt;" in shown


def test_a_page_has_one_budget_for_all_its_texts() -> None:
    budget = Budget(0.02)
    rendered(SLOW, budget=budget)
    assert "<strong>" not in rendered("**after**", budget=budget)
    assert "<strong>" in rendered("**after**", budget=Budget(60))


@pytest.mark.parametrize("text", ["**a** " * MAX_TEXT, "**a**"], ids=["too long", "no time"])
def test_every_format_has_a_plain_form(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "MAX_CPU_S", 60 if len(text) > MAX_TEXT else 0)
    assert NOTE in rendered(text)
    note, whole = blocks_of(text)
    assert NOTE in str(note)
    assert isinstance(whole, dict)
    assert whole["t"] == "code"
    assert contained(text) == f"> {text}"


def test_a_usual_text_is_formatted_within_the_budget() -> None:
    assert rendered("**a**\n\n[b](http://c.example)").startswith("<p><strong>a</strong></p>")
