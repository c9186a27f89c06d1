"""The nodes: their tree, their colours, who may call whom, and what they hand to each other."""

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Running
from tests.console.fleet import Family


@pytest.fixture(scope="module")
def family(server: Running) -> Family:
    return Family(server)


def test_a_node_that_comes_takes_on_its_colour_at_once(server: Running, family: Family, page: Page) -> None:
    page.goto(f"{server.console}/topology")
    node = page.locator(f"[data-node='{family.right}']")
    expect(node).to_have_attribute("data-status", "provisioning")
    family.online(family.right)
    expect(node).to_have_attribute("data-status", "online")
    expect(page.locator(".happened")).to_contain_text("online")


def test_two_clicks_tell_who_may_call_whom_and_why(server: Running, family: Family, page: Page) -> None:
    page.goto(f"{server.console}/topology")
    slot = page.locator(".access-slot")
    for caller, target, words, rule in (
        (family.left, family.right, "may call", "siblings may call each other"),
        (family.top, family.left, "may call", "a node may call its children"),
        (family.left, family.top, "may call", "a node may call its parent"),
        (family.low, family.right, "may not call", "neither parent and child nor siblings"),
    ):
        page.locator(f"[data-node='{caller}']").click()
        page.locator(f"[data-node='{target}']").focus()
        page.keyboard.press("Enter")
        expect(slot).to_contain_text(words)
        expect(slot).to_contain_text(rule)


def test_what_one_hands_to_another_is_seen_as_it_happens(server: Running, family: Family, page: Page) -> None:
    own = family.online(family.left)
    page.goto(f"{server.console}/topology")
    expect(page.locator(f"[data-node='{family.left}']")).to_have_attribute("data-status", "online")
    activity = {"activity_type": "delegation", "source_id": family.left, "target_id": family.low, "summary": "Hold <b>"}
    family.ask("POST", f"/workspaces/{family.left}/activity", activity, own)
    line = page.locator(".happened-row", has_text="delegation").first
    expect(line).to_contain_text("Crane")
    expect(line).to_contain_text("Hook")
    expect(line).to_contain_text("Hold <b>")
    expect(page.locator(".calls .call")).to_have_count(1)


def test_the_tree_is_drawn_anew_when_it_becomes_another(server: Running, family: Family, page: Page) -> None:
    page.goto(f"{server.console}/topology")
    new = family.create("Buoy", "Floats", family.right)
    expect(page.locator(f"[data-node='{new}']")).to_be_visible()


def test_the_rule_is_told_without_scripts_too(server: Running, family: Family) -> None:
    asked = {"caller": family.low, "target": family.left}
    assert "may call" in httpx2.get(f"{server.console}/topology/access", params=asked).text
    gone = httpx2.get(f"{server.console}/topology/access", params={"caller": "nobody", "target": family.left})
    assert gone.status_code in (400, 404)
