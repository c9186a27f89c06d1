"""`parley login` at a real provider: the device flow, over the wire and from a terminal."""

import asyncio
import base64
import json
import os
import re
import stat
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from parley.testing.servers import Server, serving
from tests.permissions.house import echo
from tests.sign_in.provider import ROLE_GROUPS, Provider, User, client, free_address, provider_at, terminal_client

pytestmark = pytest.mark.slow


class Ended(Struct):
    code: int | None
    out: str
    err: str


class Terminal(Struct):
    """A user's shell, with a configuration folder of its own."""

    server: Server
    provider: Provider
    home: Path

    @property
    def file(self) -> Path:
        return self.home / "parley" / "logins.json"

    @property
    def login(self) -> dict[str, Any]:
        return json.loads(self.file.read_text())[self.server.url]

    async def start(self, *command: str) -> asyncio.subprocess.Process:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "parley", *command, "--url", self.server.url, stdout=PIPE, stderr=PIPE,
            env={**env, "XDG_CONFIG_HOME": str(self.home), "COLUMNS": "400"},
        )  # fmt: skip

    async def run(self, *command: str) -> Ended:
        process = await self.start(*command)
        out, err = await process.communicate()
        return Ended(process.returncode, out.decode(), err.decode())

    async def sign_in(self, name: str) -> Ended:
        """Type `parley login`, and open in a browser the address that it prints."""
        process = await self.start("login")
        assert process.stderr is not None
        line = (await asyncio.wait_for(process.stderr.readline(), 30)).decode()
        found = re.search(r"open (\S+)", line)
        if found is not None:
            async with User(name) as user:
                await user.signs_in(found[1])
        out, err = await process.communicate()
        return Ended(process.returncode, out.decode(), line + err.decode())


@asynccontextmanager
async def open_terminal(folder: Path, **more: Any) -> AsyncIterator[Terminal]:
    address = free_address()
    settings = {
        "auth": "required", "oidc_issuer": address, "oidc_client_id": "console", "oidc_audience": "parley",
        "oidc_cli_client_id": "terminal", "role_groups": ROLE_GROUPS, "oidc_default_role": "none", **more,
    }  # fmt: skip
    async with serving(folder / "data", [echo], **settings) as server:
        clients = client("console", server.url, ""), terminal_client(), terminal_client("elsewhere")
        async with provider_at(address, *clients, userinfo=False) as provider:
            yield Terminal(server, provider, folder / "config")


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    async with open_terminal(tmp_path) as found:
        yield found


async def test_a_user_signs_in_works_and_signs_out(terminal: Terminal) -> None:
    before = await terminal.run("whoami")
    assert (before.code, "parley login" in before.err) == (1, True)
    done = await terminal.sign_in("olga")
    assert (done.code, done.out) == (
        0, f"signed in at {terminal.server.url} as user:olga (operator, in on-call, staff)\n"
    ), done.err  # fmt: skip
    assert stat.S_IMODE(terminal.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(terminal.file.parent.stat().st_mode) == 0o700
    who = await terminal.run("whoami")
    assert who.out == f"user:olga (operator, in on-call, staff) at {terminal.server.url}, by parley login\n"
    sent = await terminal.run("send", "echo", "finish")
    assert (sent.code, "completed: finished" in sent.err) == (0, True), sent.err
    assert json.loads((await terminal.run("usage", "--json")).out)["runs"] == 1
    refresh = terminal.login["refreshToken"]
    out = await terminal.run("logout")
    assert out.out == f"signed out of {terminal.server.url}\n"
    assert json.loads(terminal.file.read_text()) == {}
    async with User("olga") as user:
        form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": "terminal"}
        refused = await user.http.post(f"{terminal.provider.url}/token", data=form)
        assert refused.json()["error"] == "invalid_grant"
    assert (await terminal.run("send", "echo", "finish")).code == 1


async def test_a_token_is_for_one_server_and_refreshed_by_one_command_of_many(
    terminal: Terminal, tmp_path: Path
) -> None:
    assert (await terminal.sign_in("root")).code == 0
    first = terminal.login
    claims = json.loads(base64.urlsafe_b64decode(first["token"].split(".")[1] + "=="))
    assert (claims["aud"], claims["iss"]) == ("terminal", terminal.provider.url)
    async with serving(tmp_path / "other", [echo], auth="required") as other:
        assert (await terminal.run("send", f"{other.url}/agents/echo", "finish")).code == 1
    assert (await terminal.run("send", f"{terminal.server.url}/agents/echo", "finish")).code == 0
    changed = {terminal.server.url: {**first, "expiresAt": 1}}
    terminal.file.write_text(json.dumps(changed))
    found = await asyncio.gather(*(terminal.run("whoami", "--json") for _ in range(3)))
    assert [json.loads(one.out)["principal"] for one in found] == ["user:root"] * 3, [one.err for one in found]
    second = terminal.login
    assert second["token"] != first["token"]
    assert second["refreshToken"] != first["refreshToken"]
    assert stat.S_IMODE(terminal.file.stat().st_mode) == 0o600
    # A refresh token that was used before has the whole grant revoked: nobody knows who has stolen it from whom.
    terminal.file.write_text(json.dumps(changed))
    ended = await terminal.run("whoami")
    assert (ended.code, "login_ended" in ended.err) == (1, True)
    assert json.loads(terminal.file.read_text()) == {}


async def test_a_server_without_an_identity_provider_says_so(tmp_path: Path, terminal: Terminal) -> None:
    async with serving(tmp_path / "plain", [echo], auth="required") as plain:
        found = await Terminal(plain, terminal.provider, terminal.home).run("login")
        assert (found.code, "has no sign-in" in found.err) == (1, True)
    async with open_terminal(tmp_path / "more", oidc_cli_client_id="unknown") as unknown:
        refused = await unknown.run("login")
        assert (refused.code, "login_failed" in refused.err, "invalid_client" in refused.err) == (1, True, True)


async def test_a_token_for_another_audience_is_not_taken(tmp_path: Path) -> None:
    async with open_terminal(tmp_path, oidc_cli_client_id=None, oidc_client_id="terminal") as other:
        done = await other.sign_in("root")
        assert (done.code, "login_failed" in done.err) == (1, True), done.err
        assert not other.file.exists()
