"""The OpenAPI documents as pages: all that they say, for whom they are, without scripts."""

import re
from pathlib import Path

import httpx2
import pytest

from parley.testing.servers import serving

NAMES = ("actions", "runtime", "runtimes")


async def test_the_address_that_people_try_first_leads_to_the_pages(tmp_path: Path) -> None:
    async with serving(tmp_path, (), store="memory") as server, httpx2.AsyncClient(base_url=server.url) as http:
        page = await http.get("/docs", follow_redirects=True)
        assert (page.status_code, page.url.path) == (200, "/console/docs")
        for name in NAMES:
            assert f'href="/console/docs/{name}"' in page.text
        for path in ("/api/agent2agent/openapi.json", "/internal/v1/openapi.json", "/agent-runtimes/openapi.json"):
            assert f'href="{path}"' in page.text
        assert "unsafe" not in page.headers["content-security-policy"]
        assert (await http.get("/console/docs/nothing")).status_code == 404


async def test_a_page_shows_every_operation_and_type_and_each_link_leads_somewhere(tmp_path: Path) -> None:
    async with serving(tmp_path, (), store="memory") as server, httpx2.AsyncClient(base_url=server.url) as http:
        document = (await http.get("/api/agent2agent/openapi.json")).json()
        texts = {name: (await http.get(f"/console/docs/{name}")).text for name in NAMES}
    for text in texts.values():
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(ids) == len(set(ids))
        assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)
    for path in document["paths"]:
        assert f"<code>{path}</code>" in texts["actions"]
    for name, schema in document["components"]["schemas"].items():
        assert f'id="{name}"' in texts["actions"]
        assert all(f"<code>{member}</code>" in texts["actions"] for member in schema.get("properties", ()))
    assert "string (date-time)" in texts["actions"]


async def test_a_document_is_shown_to_those_who_may_fetch_it(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, (), store="memory", auth="required", api_key="k" * 40) as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        assert (await http.get("/docs", follow_redirects=True)).status_code == 200
        assert (await http.get("/console/docs/runtimes")).status_code == 200
        for name in ("actions", "runtime"):
            refused = await http.get(f"/console/docs/{name}")
            assert (refused.status_code, refused.headers["location"].partition("?")[0]) == (303, "/console/login")
            shown = await http.get(f"/console/docs/{name}", headers={"Authorization": f"Bearer {'k' * 40}"})
            assert shown.status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_the_pages_are_for_reading(tmp_path: Path, method: str) -> None:
    async with serving(tmp_path, (), store="memory") as server, httpx2.AsyncClient(base_url=server.url) as http:
        assert (await http.request(method, "/docs")).status_code in (404, 405)
