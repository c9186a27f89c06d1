"""An administrator sees everybody's runs; nobody else does."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.app import open_records
from parley.client import Client
from parley.runs.rules.access import ALL_SCOPES, USER_SCOPES
from parley.security.keys import ApiKeys
from parley.settings import Settings
from parley.testing.servers import serving
from tests.faces.conftest import AGENTS


@pytest.mark.slow
async def test_everybodys_runs_are_listed_for_an_administrator(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, AGENTS, auth="required") as server, open_records(Settings(data_dir=data)) as records:
        keys = ApiKeys(records)
        tokens = {name: (await keys.create(name, USER_SCOPES))[1] for name in ("ann", "bob")}
        root = (await keys.create("root", ALL_SCOPES))[1]
        for name in ("ann", "bob"):
            async with Client(server.agent("echo"), token=tokens[name]) as client:
                await client.send(f"hello of {name}")
            async with Client(server.agent("writer"), token=tokens[name]) as client:
                await client.send(f"go {name}")

        async with httpx2.AsyncClient(base_url=server.url) as http:

            async def listed(token: str = root, **query: Any) -> httpx2.Response:
                return await http.get("/admin/runs", params=query, headers={"X-API-Key": token})

            assert (await listed(tokens["ann"])).status_code == 403
            assert (await http.get("/admin/runs")).status_code == 401
            everything = (await listed()).json()
            assert everything["totalSize"] == 4
            assert {one["principal"] for one in everything["runs"]} == {"service:ann", "service:bob"}
            waiting = (await listed(state="input_required", principal="service:bob")).json()["runs"]
            assert [(one["agent"], one["said"]) for one in waiting] == [("writer", "Which name?")]
            seen: list[str] = []
            token = ""
            while True:
                page = (await listed(pageSize=3, pageToken=token)).json()
                seen += [one["id"] for one in page["runs"]]
                if not (token := page["nextPageToken"]):
                    break
            assert seen == [one["id"] for one in everything["runs"]]
            at = everything["runs"][0]["statusAt"]
            assert everything["runs"][0] in (await listed(since=at)).json()["runs"]
            one = waiting[0]["contextId"]
            assert [run["id"] for run in (await listed(contextId=one)).json()["runs"]] == [waiting[0]["id"]]
            for wrong in ({"state": "x"}, {"pageSize": 0}, {"since": "x"}, {"pageToken": "x"}, {"nothing": "x"}):
                assert (await listed(**wrong)).status_code == 400, wrong
