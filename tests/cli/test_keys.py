"""Keys from a terminal: on the database itself, whoever else uses it."""

import json
from pathlib import Path

import httpx2
import pytest

from parley.app.application import check_binding
from parley.errors import ConfigurationError
from parley.settings import Settings
from parley.testing.processes import ServerProcess
from tests.cli.test_cli import AGENTS, parley

pytestmark = pytest.mark.slow


async def test_a_key_made_before_the_first_start_opens_the_server(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    data = ("--data-dir", str(tmp_path / "data"))
    made = await parley("keys", "create", "ops", "--scope", "admin", "--scope", "read", *data)
    assert made.code == 0, made.err
    token = made.out.strip()
    assert token.startswith("parley_")
    assert "shown only once" in made.err

    server = await ServerProcess.start([tmp_path / "agents.py"], tmp_path / "data", env={"PARLEY_AUTH": "required"})
    try:
        async with httpx2.AsyncClient(base_url=server.url) as http:
            assert (await http.get("/admin/whoami")).status_code == 401
            who = await http.get("/admin/whoami", headers={"X-API-Key": token})
            assert who.json()["scopes"] == ["admin", "read"]

            second = await parley("keys", "create", "ci", "--agent", "echo", "--expires-days", "7", *data, "--json")
            view = json.loads(second.out)
            assert (view["scopes"], view["agents"]) == (["read", "send"], ["echo"])
            who = await http.get("/admin/whoami", headers={"Authorization": f"Bearer {view['token']}"})
            assert who.json()["principal"] == "service:ci"

            listed = await parley("keys", "list", *data, "--json")
            assert [key["name"] for key in json.loads(listed.out)["keys"]] == ["ci", "ops"]
            table = await parley("keys", "list", *data)
            assert view["id"] in table.out
            assert token not in listed.out + table.out

            assert "revoked ci" in (await parley("keys", "revoke", view["id"], *data)).out
            assert json.loads((await parley("keys", "revoke", "ops", *data, "--json")).out)["name"] == "ops"
            assert (await parley("keys", "list", *data)).out == "No API keys.\n"

            published = (await http.get("/.well-known/jwks.json")).json()["keys"]
            rotated = json.loads((await parley("signing", "rotate", *data, "--json")).out)
            after = (await http.get("/.well-known/jwks.json")).json()["keys"]
            assert [key["kid"] for key in after if key["alg"] == "ES256"] == [rotated["kid"], published[0]["kid"]]
            signing = json.loads((await parley("signing", "list", *data, "--json")).out)["keys"]
            assert [key["retiredAt"] is None for key in signing] == [True, False]
            assert rotated["kid"] in (await parley("signing", "list", *data)).out
    finally:
        await server.stop()


async def test_what_cannot_be_done_with_keys_is_said(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    assert (await parley("keys", "create", "ci", *data)).code == 0
    again = await parley("keys", "create", "ci", *data)
    assert (again.code, "[name_taken]" in again.err) == (1, True)
    assert (await parley("keys", "create", "No", *data)).code == 1
    assert (await parley("keys", "create", "x", "--scope", "all", *data)).code == 1
    assert (await parley("keys", "create", "x", "--expires-days", "0", *data)).code == 1
    assert (await parley("keys", "revoke", "nobody", *data)).code == 1
    (tmp_path / "parley.toml").write_text('store = "memory"\n')
    forgetful = await parley("keys", "list", cwd=tmp_path)
    assert (forgetful.code, "memory" in forgetful.err) == (2, True)


async def test_keys_on_postgres(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_STORE", "postgres")
    monkeypatch.setenv("PARLEY_POSTGRES_URL", database)
    made = await parley("keys", "create", "ci", "--json", cwd=tmp_path)
    assert made.code == 0, made.err
    listed = json.loads((await parley("keys", "list", "--json", cwd=tmp_path)).out)["keys"]
    assert [key["id"] for key in listed] == [json.loads(made.out)["id"]]


async def test_a_token_is_for_its_own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    token = (await parley("keys", "create", "ci", "--data-dir", str(tmp_path / "data"))).out.strip()
    server = await ServerProcess.start([tmp_path / "agents.py"], tmp_path / "data", env={"PARLEY_AUTH": "required"})
    try:
        refused = await parley("send", "echo", "hello", "--url", server.url)
        assert (refused.code, "Credentials are required" in refused.err) == (1, True)
        monkeypatch.setenv("PARLEY_TOKEN", token)
        assert (await parley("send", "echo", "hello", "--url", server.url)).out == "hello\n"
        assert (await parley("send", "echo", "hello", "--no-stream", "--url", server.url)).out == "hello\n"
        elsewhere = await parley("send", f"{server.url}/agents/echo", "hello", "--url", "http://127.0.0.1:9")
        assert elsewhere.code == 1
        assert token not in elsewhere.err + refused.err
    finally:
        await server.stop()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_a_server_that_others_can_reach_asks_for_credentials(host: str) -> None:
    with pytest.raises(ConfigurationError, match="auth"):
        check_binding(Settings(host=host))
    check_binding(Settings(host=host, auth="required"))
    check_binding(Settings(host=host, auth="none"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_on_this_machine_no_credentials_are_needed(host: str) -> None:
    check_binding(Settings(host=host))


async def test_a_server_without_authentication_does_not_start_for_others(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    refused = await parley("serve", "agents.py", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)
    assert refused.code == 2
    assert "Set auth to required" in refused.err


async def test_a_server_for_everybody_has_to_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    env = {"PARLEY_AUTH": "none", "PARLEY_HOST": "0.0.0.0"}
    server = await ServerProcess.start([tmp_path / "agents.py"], tmp_path / "data", env=env)
    async with httpx2.AsyncClient() as http:
        reply = await http.get(f"{server.url.replace('0.0.0.0', '127.0.0.1')}/admin/whoami")
    assert reply.json()["principal"] == "guest:anonymous"
    assert await server.stop() == 0
