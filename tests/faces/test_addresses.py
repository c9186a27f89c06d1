"""Addresses as a browser opens them, and as programs read them."""

import asyncio
import html
import re
import sys
from pathlib import Path

import httpx2
import pytest

from parley import Skill, Text, Turn, agent
from parley.testing.servers import Server, serving
from sdk.node import find

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
SAID = "it's <b>hot</b> — ¿sí?"


@agent("echo", skills=[Skill("echo", "Echo", "Says what you said.", ("demo",), (SAID,))])
async def echo(turn: Turn):
    yield Text(turn.text)


@agent("hidden", visibility="private")
async def hidden(turn: Turn):
    yield Text(turn.text)


def snippets(page: str) -> list[str]:
    return [html.unescape(one) for one in re.findall(r'<pre tabindex="0">(.*?)</pre>', page, re.DOTALL)]


async def output(*command: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_a_browser_gets_a_page_and_a_program_gets_json(tmp_path: Path) -> None:
    async with serving(tmp_path, [echo], store="memory") as server, httpx2.AsyncClient() as http:
        for path in ("/", "/agents/echo"):
            page = await http.get(server.url + path, headers=BROWSER)
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert "Accept" in page.headers["vary"]
            told = await http.get(server.url + path)
            assert told.headers["content-type"] == "application/json"
        assert told.json()["url"] == server.agent("echo")
        assert f'href="/agents/{"echo"}"' in (await http.get(server.url, headers=BROWSER)).text
        assert '/console/agents/echo">Open in console' in page.text


async def test_an_agent_that_the_visitor_may_not_see_is_not_shown(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, [echo, hidden], store="memory", auth="required", api_key="k" * 32) as server,
        httpx2.AsyncClient(headers=BROWSER) as http,
    ):
        assert "/agents/hidden" not in (await http.get(server.url)).text
        refused, unknown = [await http.get(f"{server.url}/agents/{slug}") for slug in ("hidden", "nobody")]
        assert refused.status_code == unknown.status_code == 404
        assert refused.text.replace("hidden", "nobody") == unknown.text


@pytest.mark.slow
async def test_every_snippet_does_what_it_says(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", [echo], store="memory") as server:
        curl, python, typescript = await shown(server)
        for command in (
            ("bash", "-c", curl.replace("curl ", "curl --silent ")),
            (sys.executable, "-c", python),
            (find().program, "--input-type=module", "--eval", typescript),
        ):
            assert SAID in await output(*command, cwd=tmp_path), command[0]


async def shown(server: Server) -> list[str]:
    async with httpx2.AsyncClient() as http:
        return snippets((await http.get(server.agent("echo"), headers=BROWSER)).text)
