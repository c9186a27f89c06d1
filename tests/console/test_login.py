"""Signing in, and what somebody may not see."""

import asyncio
import re
from collections.abc import Iterator

import pytest
from msgspec import Struct
from playwright.sync_api import Browser, Page, expect

from parley.app import open_records
from parley.runs.rules.access import ALL_SCOPES, USER_SCOPES
from parley.security.keys import ApiKeys
from parley.settings import Settings
from tests.console.conftest import Running, Visitor, open_menu, send, start
from tests.console.fitness import check


class House(Struct):
    server: Running
    keys: dict[str, str]
    run: str
    """One of Ann's."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    data = tmp_path_factory.mktemp("locked") / "data"
    server = start(data, PARLEY_AUTH="required")
    keys = _in_a_thread(_keys(Settings(data_dir=data)))
    yield House(server, keys, send(server, "writer", "Ann's own", keys["ann"]))
    server.stop()


async def _keys(settings: Settings) -> dict[str, str]:
    async with open_records(settings) as records:
        keys = ApiKeys(records)
        scopes = {"ann": USER_SCOPES, "bob": USER_SCOPES, "reader": ["read"], "root": ALL_SCOPES}
        return {name: (await keys.create(name, one))[1] for name, one in scopes.items()}


def _in_a_thread(work: object) -> dict[str, str]:
    """The browser's loop runs in this one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()  # type: ignore[arg-type]


def test_a_stranger_signs_in_and_comes_where_they_wanted_to(house: House, page: Page) -> None:
    page.goto(f"{house.server.console}/runs/{house.run}")
    expect(page).to_have_url(re.compile("/console/login"))
    expect(page.get_by_role("navigation", name="Sections")).to_have_count(0)
    page.get_by_label("API key or token").fill("parley_0123456789abcdef_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("API key or token").fill(house.keys["ann"])
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{house.server.console}/runs/{house.run}")
    cookie = next(one for one in page.context.cookies() if one.get("name") == "parley_console")
    assert cookie.get("httpOnly") is True
    assert cookie.get("sameSite") == "Strict"
    assert house.keys["ann"] not in str(cookie)
    open_menu(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{house.server.console}/login")
    page.goto(f"{house.server.console}/inbox")
    expect(page).to_have_url(re.compile("/console/login"))


def test_the_way_in_can_be_used_by_everybody(house: House, browser: Browser) -> None:
    check(browser, "login", lambda page: page.goto(f"{house.server.console}/login"))


def test_what_is_somebody_elses_does_not_exist(house: House) -> None:
    with Visitor(house.server, house.keys["bob"]) as bob:
        below = ("", "/raw", "/events", "/timeline", "/parts/2/0", "/text/response-1")
        assert [bob.get(f"/runs/{house.run}{path}").status_code for path in below] == [404] * len(below)
        for action in ("answer", "cancel", "fork"):
            assert bob.post(f"/runs/{house.run}/{action}", {"text": "mine"}).status_code == 404
        assert house.run not in bob.get("/runs").text
        assert house.run not in bob.get("/inbox").text
        assert house.run not in bob.get("/agents/writer").text
        assert bob.get("/agents/new").status_code == 403
        assert bob.post("/agents/new/pairing", {"name": "x"}).status_code == 403
    with Visitor(house.server, house.keys["root"]) as root:
        assert house.run in root.get("/runs").text
        refused = root.post("/agents/new/definition", {"definition": "slug: x\ndriver: command\ncommand: {run: [cat]}"})
        assert refused.status_code == 403
        near = f"slug: x\ndriver: remote\nremote: {{url: '{house.server.url}/agents/echo'}}"
        for form, given in (("definition", {"definition": near}), ("card", {"url": f"{house.server.url}/agents/echo"})):
            refused = root.post(f"/agents/new/{form}", given)
            assert refused.status_code == 400, form
            assert "is not a public address" in refused.text, form
    with Visitor(house.server, house.keys["reader"]) as reader:
        assert reader.post("/agents/echo/try", {"text": "hi"}).status_code == 403


def test_a_session_ends_when_its_key_is_revoked_and_cannot_be_forged(house: House) -> None:
    with Visitor(house.server, house.keys["bob"]) as bob, Visitor(house.server, house.keys["root"]) as root:
        token = bob.csrf
        assert root.post("/logout", {}).status_code == 303
        mixed = bob.http.post("/theme", data={"theme": "dark", "csrf": root.csrf})
        assert mixed.status_code == 403
        assert bob.http.post("/theme", data={"theme": "dark", "csrf": token}).status_code == 303
        cookie = bob.http.cookies["parley_console"]
        bob.http.cookies.clear()
        bob.http.cookies.set("parley_console", cookie[:-6] + "AAAAAA")
        assert bob.http.get("/inbox").headers["location"].startswith("/console/login")


@pytest.mark.parametrize("place", ["https://evil.example", "//evil.example", "/console//evil.example", "/consolex"])
def test_a_login_leads_only_into_the_console(place: str, house: House) -> None:
    with Visitor(house.server) as visitor:
        reply = visitor.post("/login", {"credential": house.keys["ann"], "next": place})
        assert reply.headers["location"] == "/console/inbox"
