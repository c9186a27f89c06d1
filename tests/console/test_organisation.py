"""An organisation in the console: roles, the node that is lit, PACE and SALUTE."""

import re

import httpx2
from playwright.sync_api import Page, expect

from tests.console.conftest import Running, send


def test_the_node_that_it_has_come_to_is_lit_and_moves_on_with_the_work(server: Running, page: Page) -> None:
    ended(server, *waiting(server))
    run = send(server, "house", "Fix the bug in app.py")
    page.goto(f"{server.console}/organisation")
    expect(page.get_by_role("heading", name="Commanding Officer")).to_be_visible()
    lit = page.locator(".workflow [aria-current=step]")
    expect(lit).to_contain_text("Ask for guidance")
    expect(page.locator(".pace [aria-current]")).to_contain_text("contingent")
    expect(page.locator("section", has_text="SALUTE")).to_contain_text("Bug Fix Specialist")
    # The page follows the run: whatever moves it is seen without loading the page again.
    page.evaluate("window.same = true")
    ended(server, run)
    expect(page.locator("section", has_text="Task").first).to_contain_text(re.compile("cancel"))
    expect(lit).to_have_count(0)
    assert page.evaluate("window.same")


def test_what_is_no_organisation_is_not_found(server: Running) -> None:
    assert httpx2.get(f"{server.console}/organisation/echo").status_code == 404
    assert httpx2.get(f"{server.console}/organisation/house").status_code == 200


def waiting(server: Running) -> list[str]:
    """Tasks that other tests have left: the page shows the newest task that has not ended."""
    query = {"status": "TASK_STATE_INPUT_REQUIRED"}
    listed = httpx2.get(f"{server.url}/agents/house/tasks", params=query, headers={"A2A-Version": "1.0"})
    return [task["id"] for task in listed.json()["tasks"]]


def ended(server: Running, *runs: str) -> None:
    for run in runs:
        cancel = httpx2.post(f"{server.url}/agents/house/tasks/{run}:cancel", headers={"A2A-Version": "1.0"}, json={})
        assert cancel.status_code == 200
