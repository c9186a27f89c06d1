"""Usage of all runs, as a page and as CSV."""

import csv
import io

from playwright.sync_api import Page, expect

from tests.console.conftest import Running, Visitor


def test_usage_is_shown_and_downloaded(server: Running, made: dict[str, str], page: Page) -> None:
    page.goto(f"{server.console}/usage")
    expect(page.locator(".usage-table", has_text="Model")).to_contain_text("offline")
    expect(page.locator(".usage-table", has_text="Agent")).to_contain_text("Accounts")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download CSV").click()
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text())))
    assert {row["agent"] for row in rows} == {"accounts"}
    assert all(int(row["input_tokens"]) > 0 for row in rows)
    page.locator("select[name=agent]").select_option("echo")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("heading", name="No usage recorded")).to_be_visible()
    with Visitor(server) as visitor:
        for wrong in ("since=x", "until=2026-02-30", "since=0000-00-00"):
            assert visitor.get(f"/usage?{wrong}").status_code == 400
        assert visitor.get("/usage?since=2026-01-02&until=2020-01-01").status_code == 200
