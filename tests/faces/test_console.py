"""The console as a face: who it lets in, and what its cookies say."""

import re
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.app import open_exchange, open_faces
from parley.console import request, responses
from parley.console.request import MAX_COOKIE
from parley.documents.export.markdown import NOTE
from parley.runs.listing import newest
from parley.runs.store import Listing
from parley.settings import Settings
from parley.testing.servers import serving
from tests.faces.conftest import AGENTS
from tests.security.issuer import AUDIENCE, issuing


async def _csrf(http: httpx2.AsyncClient, path: str = "/console/login") -> str:
    found = re.search(r'name="csrf" content="([0-9a-f]+)"', (await http.get(path)).text)
    assert found is not None
    return found[1]


async def test_a_token_of_an_issuer_signs_in_until_it_expires(tmp_path: Path) -> None:
    async with issuing() as issuer:
        oidc = {"auth": "required", "oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "allow_hosts": ["127.0.0.1"]}
        async with serving(tmp_path, AGENTS, **oidc) as server, httpx2.AsyncClient(base_url=server.url) as http:

            async def login(token: str) -> httpx2.Response:
                return await http.post("/console/login", data={"credential": token, "csrf": await _csrf(http)})

            late = await login(issuer.token(exp=1))
            assert late.status_code == 401
            assert issuer.token(exp=1)[:20] not in late.text
            assert (await login("x" * 5000)).status_code == 401
            long = await login(issuer.token(groups=["x" * 3000]))
            assert (long.status_code, "credential_too_long" in long.text) == (400, True)
            assert (await login(issuer.token())).status_code == 303
            page = await http.get("/console/runs")
            assert page.status_code == 200
            assert "user:ann" in page.text


async def test_over_https_cookies_are_secure(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    async with (
        open_exchange(settings, AGENTS) as exchange,
        open_faces(exchange, settings, "https://parley.example") as app,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http,
    ):
        cookie = (await http.get("/console/inbox")).headers["set-cookie"]
        assert "; Secure" in cookie
        assert "; HttpOnly" in cookie
        assert "; SameSite=Strict" in cookie


@pytest.mark.parametrize(
    ("scheme", "said", "secure"),
    [("http", None, False), ("https", None, True), ("http", "https", True), ("http", "HTTPS, http", True),
     ("http", "http", False), ("http", "http, https", False)],
)  # fmt: skip
async def test_cookies_are_secure_where_a_browser_uses_tls(
    scheme: str, said: str | None, secure: bool, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path)
    async with (
        open_exchange(settings, AGENTS) as exchange,
        open_faces(exchange, settings, "http://127.0.0.1:8200") as app,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=f"{scheme}://127.0.0.1") as http,
    ):
        headers = {"X-Forwarded-Proto": said} if said else {}
        assert ("; Secure" in (await http.get("/console/inbox", headers=headers)).headers["set-cookie"]) is secure


async def test_a_cookie_header_over_the_limit_is_refused_and_keeps_the_session(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENTS, auth="required") as server, httpx2.AsyncClient(base_url=server.url) as http:
        for path in ("/console/login", "/console/inbox", "/console/nowhere"):
            refused = await http.get(path, headers={"Cookie": 'a="' + "\\" * MAX_COOKIE + '"'})
            assert (refused.status_code, "cookie_too_large" in refused.text) == (431, True)
            assert "set-cookie" not in refused.headers


async def test_cookies_are_read_without_the_parser_that_is_slow_on_some_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(text: str) -> str:
        raise AssertionError(text)

    monkeypatch.setattr("http.cookies._unquote", slow)
    long = 'other="' + "\\" * 4000 + '"'
    async with serving(tmp_path, AGENTS) as server, httpx2.AsyncClient(base_url=server.url) as http:
        dark = await http.get("/console/inbox", headers={"Cookie": f"{long}; parley_theme=dark ;parley_theme=light"})
        assert (dark.status_code, 'data-theme="dark"' in dark.text) == (200, True)


async def test_without_authentication_a_guest_sees_only_what_guests_asked(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENTS, auth="none") as server, httpx2.AsyncClient(base_url=server.url) as http:
        assert "guest:anonymous" in (await http.get("/console/inbox")).text
        assert (await http.get("/console/agents/new")).status_code == 403
        form = {"text": "hello", "csrf": await _csrf(http, "/console/agents/echo")}
        asked = await http.post("/console/agents/echo/try", data=form)
        assert (await http.get(asked.headers["location"])).status_code == 200


async def test_nothing_but_a_form_of_ours_is_taken(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENTS) as server, httpx2.AsyncClient(base_url=server.url) as http:
        csrf = await _csrf(http, "/console/agents/echo")
        address = "/console/agents/echo/try"
        assert (await http.post(address, json={"text": "hi", "csrf": csrf})).status_code == 400
        elsewhere = {"Sec-Fetch-Site": "cross-site"}
        form = {"text": "hi", "csrf": csrf}
        assert (await http.post(address, data=form, headers=elsewhere)).status_code == 403
        assert (await http.post(address, data={**form, "text": "  "})).status_code == 400
        assert (await http.post(address, data={**form, "text": "x" * 1_200_000})).status_code == 413
        assert (await http.request("DELETE", "/console/inbox")).status_code in (400, 405)
        assert (await http.get("/console/static/x/nothing.js")).status_code == 404
        assert (await http.get("/console/static/x/..%2f..%2fface.py")).status_code == 404


async def test_what_others_wrote_is_rendered_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[bool]] = {}
    rendered = request.render

    def watched(name: str, context: dict[str, Any]) -> str:
        threads.setdefault(name, set()).add(threading.current_thread() is threading.main_thread())
        return rendered(name, context)

    monkeypatch.setattr(request, "render", watched)
    async with serving(tmp_path, AGENTS) as server, httpx2.AsyncClient(base_url=server.url) as http:
        text = "**bold** [![l](" * 10
        form = {"agent": "echo", "text": text, "csrf": await _csrf(http, "/console/conversations")}
        begun = (await http.post("/console/conversations", data=form)).headers["location"]
        run = (await newest(server.exchange.store, Listing(limit=1))).runs[0]
        await http.get(begun)
        await http.get(f"/console/runs/{run.id}")
        assert "<strong>bold</strong>" in (await http.get(f"/console/runs/{run.id}/timeline")).text
        events = await http.get(f"/console/runs/{run.id}/events")
        assert "<strong>bold</strong>" in events.text
    assert {"conversation.html", "run.html", "_timeline.html", "_entry.html"} <= threads.keys()
    assert {name for name, where in threads.items() if True in where} <= {"_panel.html"}


async def test_markdown_over_the_time_of_a_page_is_shown_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "MAX_PAGE_CPU_S", 0)
    async with serving(tmp_path, AGENTS) as server, httpx2.AsyncClient(base_url=server.url) as http:
        form = {"text": "**bold** <i>", "csrf": await _csrf(http, "/console/agents/echo")}
        asked = await http.post("/console/agents/echo/try", data=form)
        page = (await http.get(asked.headers["location"])).text
    assert (NOTE in page, "**bold** &lt;i&gt;" in page, "<strong>bold" in page) == (True, True, False)
