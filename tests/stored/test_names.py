"""No name that is stored or on a wire is changed: see `tests/stored/names.py` for what to do about a difference."""

import copy

import pytest

from tests.stored.expected import missing
from tests.stored.names import current, kept, postgres_tables, taken_away


@pytest.mark.slow
async def test_every_name_that_is_stored_or_on_a_wire_is_as_it_was() -> None:
    before = {name: one for name, one in kept().items() if name != "postgres"}
    now = await current()
    assert taken_away(before, now) == []
    assert [*missing(now, before)] == [], "Something was added: python -m tests.stored.names takes it over."


async def test_the_tables_of_postgresql_are_as_they_were(database: str) -> None:
    assert await postgres_tables(database) == kept()["postgres"]


@pytest.mark.parametrize("place", ["events", "arrays", "words", "settings", "errors", "told", "commands", "sqlite"])
def test_another_name_is_a_loss(place: str) -> None:
    before, after = kept(), copy.deepcopy(kept())
    if place == "events":
        tagged = next(one for one in after["structs"]["event payload"]["one of"] if one["tag"] == "started")
        tagged["members"][0][0] = "era"
    elif place == "arrays":
        after["arrays"][0].reverse()
    elif place == "words":
        after["words"]["record of a hook"] = "hook"
    elif place == "settings":
        after["settings"]["server"].remove("data_dir")
    elif place == "sqlite":
        after["sqlite"]["runs"][0][0] = "id"
    else:
        after[place].pop()
    assert taken_away(before, after)
    assert taken_away(before, before) == []


def test_what_is_added_with_a_default_is_no_loss() -> None:
    before, after = kept(), copy.deepcopy(kept())
    after["structs"]["run"]["members"].append(["more", "str", False])
    after["errors"].append("new_code")
    assert taken_away(before, after) == []
    after["structs"]["run"]["members"][-1][2] = True
    assert taken_away(before, after)
