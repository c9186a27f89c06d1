"""Questions with choices and schemas: buttons, and forms with a field for each value."""

import time
from collections.abc import Iterator

import pytest
from msgspec import UNSET, Raw
from msgspec.json import encode
from playwright.sync_api import Browser, Locator, Page, expect

from parley.errors import Invalid
from parley.json_values import Fields
from parley.runs.rules.answers import Expected, answer_form, answer_parts, expected
from tests.console.conftest import Running, Visitor, send
from tests.console.fitness import check

PROPERTIES: Fields = {
    "name": {"type": "string", "minLength": 2, "title": "Full name", "description": "As in the passport."},
    "seat_row": {"type": "integer", "minimum": 1, "maximum": 30},
    "price": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
    "class": {"$ref": "#/$defs/Class"},
    "day": {"type": "string", "format": "date"},
    "meal": {"type": "boolean", "default": True},
}
FLAT: Fields = {
    "type": "object",
    "properties": PROPERTIES,
    "required": ["name", "seat_row", "class"],
    "$defs": {"Class": {"enum": ["economy", 1]}},
}


def wants(schema: Fields) -> Expected:
    return Expected(schema=Raw(encode(schema)))


def entered(form: dict[str, str], schema: Fields = FLAT) -> object:
    (part,) = answer_parts({"fields": "1", **{f"field.{name}": value for name, value in form.items()}}, wants(schema))
    assert part.data is not UNSET
    return bytes(part.data).decode()


def test_a_flat_object_gets_a_field_for_each_member() -> None:
    fields = answer_form(wants(FLAT)).fields
    assert [(one.label, one.input, one.required) for one in fields] == [
        ("Full name", "text", True),
        ("Seat row", "number", True),
        ("Price", "number", False),
        ("Class", "select", True),
        ("Day", "date", False),
        ("Meal", "checkbox", False),
    ]
    assert fields[0].limits == (("minlength", "2"),)
    assert fields[1].limits == (("min", "1"), ("max", "30"))
    assert fields[2].limits == (("step", "any"),)
    assert fields[3].options == (('"economy"', "economy"), ("1", "1"))
    assert fields[5].value == "true"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "object", "properties": {"cities": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "number"}]}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
        {"type": "object", "properties": {f"f{number}": {"type": "string"} for number in range(51)}},
        {"$ref": "#"},
    ],
)
def test_any_other_value_is_written_as_json(schema: Fields) -> None:
    form = answer_form(wants(schema))
    assert form.fields == ()
    assert form.schema


def test_what_is_entered_becomes_json_of_the_right_types() -> None:
    assert entered({"name": "Ann", "seat_row": "7", "price": "1.5", "class": "1", "meal": "1"}) == (
        '{"name":"Ann","seat_row":7,"price":1.5,"class":1,"meal":true}'
    )
    assert entered({"name": "", "seat_row": "", "class": '"economy"'}) == '{"name":"","class":"economy","meal":false}'
    assert entered({"name": "7", "seat_row": "seven"}) == '{"name":"7","seat_row":"seven","meal":false}'


def test_a_form_of_an_earlier_question_is_refused() -> None:
    for now in (None, expected(["a", "b"])):
        with pytest.raises(Invalid, match="Reload the page"):
            answer_parts({"fields": "1"}, now)


# In the browser.


@pytest.fixture
def scriptless(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(10_000)
    yield page
    context.close()


def reload_until(page: Page, shown: Locator) -> Locator:
    """Reload a page, which cannot update itself, until it shows something."""
    deadline = time.monotonic() + 15
    while not shown.is_visible():
        assert time.monotonic() < deadline, page.content()
        page.reload()
    return shown


def test_a_choice_is_a_button_and_an_object_is_a_form(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/runs/{send(server, 'booking', 'go')}")
    group = page.get_by_role("group", name="Your answer")
    expect(group.get_by_role("button")).to_have_text(["AF 12 at 08:30", "BA 7 at 11:15", "Neither"])
    group.get_by_role("button", name="BA 7 at 11:15").click()
    expect(page.get_by_text("You chose BA 7 at 11:15.")).to_be_visible()
    expect(page.locator(".entry[data-kind=you] .words").last).to_have_text("BA 7 at 11:15")

    page.get_by_label("Name", exact=True).fill("Ann")
    page.get_by_label("Age", exact=True).fill("7")
    page.get_by_label("Seat (optional)").select_option("window")
    page.get_by_label("Luggage").check()
    page.get_by_role("button", name="Send answer").click()
    said = "Passenger(name='Ann', age=7, seat='window', luggage=True, weight=None)"
    expect(page.get_by_text(said)).to_be_visible()

    page.get_by_label("Your answer, as JSON").fill('{"cities": "Faro"}')
    page.get_by_role("button", name="Send answer").click()
    expect(page.locator(".panel .notice")).to_contain_text("cities must be a list")
    expect(page.get_by_label("Your answer, as JSON")).to_have_value('{"cities": "Faro"}')
    page.get_by_label("Your answer, as JSON").fill('{"cities": ["Faro", "Beja"]}')
    page.get_by_role("button", name="Send answer").click()
    expect(page.get_by_text("By way of Faro and Beja.")).to_be_visible()
    expect(page.get_by_role("button", name="Send answer")).to_have_count(0)


def test_a_refused_form_keeps_what_was_entered(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/runs/{send(server, 'booking', 'details')}")
    page.get_by_label("Age", exact=True).fill("7")
    page.get_by_role("button", name="Send answer").click()
    expect(page.locator(".panel .notice")).to_contain_text("name must have 1 characters or more")
    expect(page.get_by_label("Age", exact=True)).to_have_value("7")
    expect(page.locator(".panel")).to_contain_text("needs input")


def test_questions_are_answered_without_scripts_in_the_inbox(server: Running, scriptless: Page) -> None:
    send(server, "booking", "without scripts")
    scriptless.goto(f"{server.console}/inbox")
    card = scriptless.locator("article", has_text="without scripts")
    card.get_by_role("button", name="Neither").click()
    assert scriptless.url == f"{server.console}/inbox"
    reload_until(scriptless, card.get_by_label("Name", exact=True)).fill("Ben")
    card.get_by_label("Age", exact=True).fill("33")
    card.get_by_role("button", name="Send answer").click()
    assert scriptless.url == f"{server.console}/inbox"
    reload_until(scriptless, card.get_by_label("Answer to Booking, as JSON"))


def test_a_wrong_answer_without_scripts_is_explained(server: Running) -> None:
    run = send(server, "booking", "go")
    with Visitor(server) as visitor:
        visitor.get("/inbox")
        refused = visitor.post(f"/runs/{run}/answer", {"choice": "LH 3"})
        assert refused.status_code == 400
        assert "must be one of: 1. AF 12 at 08:30" in refused.text
        assert visitor.post(f"/runs/{run}/answer", {"choice": "Neither"}).status_code == 303


def test_hostile_choices_are_shown_as_text(server: Running, page: Page, browser: Browser) -> None:
    run = send(server, "booking", "hostile")
    page.goto(f"{server.console}/runs/{run}")
    buttons = page.locator(".choices button")
    expect(buttons.first).to_contain_text("<script>window.pwned = 1")
    assert page.locator("main script, main iframe, main style, main [onerror]").count() == 0
    check(browser, "hostile choices", lambda page: page.goto(f"{server.console}/runs/{run}"))
    buttons.last.click()
    expect(page.get_by_text("You chose <script>alert(8)</script>.")).to_be_visible()
    assert page.evaluate("window.pwned") is None
