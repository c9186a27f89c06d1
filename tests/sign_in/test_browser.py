"""Signing in with Chromium, at the pages of a real provider."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from threading import Thread

import pytest
from msgspec import Struct
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import BROWSER, Running, launched, open_menu, page, start
from tests.console.fitness import check
from tests.sign_in.provider import SECRET, client, free_address, provider_at

__all__ = ["page"]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no browser")]


class House(Struct):
    server: Running
    provider: str


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    address = free_address()
    server = start(
        tmp_path_factory.mktemp("sign-in") / "data", PARLEY_AUTH="required", PARLEY_OIDC_ISSUER=address,
        PARLEY_OIDC_CLIENT_ID="console", PARLEY_OIDC_CLIENT_SECRET=SECRET, PARLEY_OIDC_NAME="Example",
        PARLEY_ROLE_GROUPS='{"admin": ["platform"]}',
    )  # fmt: skip
    # The browser's loop runs in this thread.
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()
    thread = Thread(target=loop.run_forever)
    thread.start()
    entered = stack.enter_async_context(provider_at(address, client("console", server.url)))
    asyncio.run_coroutine_threadsafe(entered, loop).result(60)
    yield House(server, address)
    asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    server.stop()


def sign_in(house: House, page: Page, name: str, path: str = "/inbox") -> None:
    page.goto(f"{house.server.console}{path}")
    page.get_by_role("link", name="Sign in with Example").click()
    page.get_by_placeholder("Enter any login").fill(name)
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    expect(page).to_have_url(f"{house.server.console}{path}")


def test_a_user_signs_in_at_the_provider_comes_where_it_wanted_to_and_signs_out(house: House, page: Page) -> None:
    sign_in(house, page, "root", "/operations/sessions")
    expect(page.get_by_text("signed in at the identity provider, in platform, this browser")).to_be_visible()
    cookie = next(one for one in page.context.cookies() if one.get("name") == "parley_console")
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    page.get_by_role("link", name="Audit log").click()
    expect(page.get_by_role("cell", name="session.started")).to_be_visible()
    open_menu(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile(re.escape(house.provider)))
    page.get_by_role("button", name="Yes, sign me out").click()
    expect(page).to_have_url(re.compile("/console/login"))
    page.goto(f"{house.server.console}/inbox")
    expect(page).to_have_url(re.compile("/console/login"))


def test_a_revoked_session_leads_back_to_the_sign_in(house: House, page: Page) -> None:
    sign_in(house, page, "root", "/operations/sessions")
    page.get_by_role("button", name="Revoke session of user:root").first.click()
    expect(page).to_have_url(re.compile("/console/login"))
    expect(page.get_by_role("link", name="Sign in with Example")).to_be_visible()


def test_the_pages_can_be_used_by_everybody(house: House, browser: Browser) -> None:
    check(browser, "sign-in", lambda page: page.goto(f"{house.server.console}/login"))
    check(browser, "sign-in refused", lambda page: page.goto(f"{house.server.console}/login/callback?state=x"))
    check(browser, "sessions", lambda page: sign_in(house, page, "root", "/operations/sessions"))
