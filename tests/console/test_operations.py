"""Looking after the server: figures, keys, dead letters, settings."""

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pytest
from msgspec import Struct
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from parley.push.hooks import Hooks
from parley.security.secrets import FILE as SECRETS
from parley.security.secrets import Secrets
from parley.stores.records import SqliteRecords
from parley.stores.sqlite import FILE as DATABASE
from tests.console.conftest import Running, send, start

SECRET = "a-secret-of-a-runtime"


class Guarded(Struct):
    running: Running
    admin: str
    """A key with every right."""


def test_the_overview_tells_who_used_it_and_how_fast_it_is(server: Running, page: Page) -> None:
    send(server, "echo", "count me")
    page.goto(f"{server.console}/operations")
    expect(page.locator(".plot")).to_have_count(3)
    expect(page.get_by_role("table", name="By agent").get_by_role("row", name="echo")).to_be_visible()
    expect(page.get_by_role("table", name="By principal").get_by_role("row", name="local")).to_be_visible()
    expect(page.locator("dd", has_text="kB").or_(page.locator("dd", has_text="MB")).first).to_be_visible()
    expect(page.get_by_text("serves this page")).to_be_visible()


def test_settings_say_where_they_come_from(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/operations/settings")
    expect(page.get_by_role("row", name=re.compile("^grpc_port"))).to_contain_text("environment")
    expect(page.get_by_role("row", name="data_dir")).to_contain_text("argument")
    expect(page.get_by_role("row", name=re.compile("^keep_days"))).to_contain_text("default")


class Receiver(BaseHTTPRequestHandler):
    """Refuses for good, until it is told to be kind."""

    kind = False
    told = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        type(self).told += self.kind
        self.send_response(200 if self.kind else 400)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    Receiver.kind, Receiver.told = False, 0
    http = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/hook"
    http.shutdown()
    thread.join()
    http.server_close()


def given_up(server: Running, run: str, hook: str) -> None:
    """As it stands after half a day of attempts."""

    async def expire_replicas() -> None:
        records = SqliteRecords(server.data / DATABASE)
        hooks = Hooks(records, Secrets(server.data / SECRETS))
        saved = None
        while saved is None:
            entry = await hooks.entry(run, hook)
            assert entry is not None
            kept = replace(entry.kept, attempts=12, ended="dead", reason="answered with 400")
            saved = await hooks.save(entry, kept, None)
        await records.close()

    with ThreadPoolExecutor() as threads:  # the browser has the loop of this one
        threads.submit(asyncio.run, expire_replicas()).result()


def test_a_dead_letter_is_delivered_after_all(server: Running, page: Page, receiver: str) -> None:
    run = send(server, "writer", "Tavira")
    hook = {"taskId": run, "id": "given-up", "url": receiver}
    made = httpx2.post(
        f"{server.url}/agents/writer/tasks/{run}/pushNotificationConfigs", json=hook, headers={"A2A-Version": "1.0"}
    )
    assert made.is_success, made.text
    answer = {"messageId": f"a-{run}", "taskId": run, "role": "ROLE_USER", "parts": [{"text": "Ann"}]}
    sent = httpx2.post(
        f"{server.url}/agents/writer/message:send", json={"message": answer}, headers={"A2A-Version": "1.0"}
    )
    assert sent.is_success, sent.text
    given_up(server, run, "given-up")
    page.goto(f"{server.console}/operations/dead")
    letter = page.locator(".letter", has_text=receiver)
    Receiver.kind = True
    letter.get_by_role("button", name="Retry delivery").click()
    expect(letter).to_have_count(0)
    deadline = time.monotonic() + 10
    while not Receiver.told and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    assert Receiver.told


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data = tmp_path_factory.mktemp("guarded") / "data"
    create = ["keys", "create", "boss", "--scope", "admin", "--scope", "read", "--scope", "send", "--json"]
    made = subprocess.run(
        [sys.executable, "-m", "parley", *create, "--data-dir", str(data)], capture_output=True, check=True
    )
    secrets = {"PARLEY_AUTH": "required", "PARLEY_RUNTIME_KEYS": json.dumps({"one": SECRET})}
    running = start(data, **secrets)
    yield Guarded(running, json.loads(made.stdout)["token"])
    running.stop()


def signed_in(server: Running, page: Page, key: str) -> None:
    page.goto(f"{server.console}/login")
    page.locator("[name=credential]").fill(key)
    page.locator("main form button").click()
    expect(page).to_have_url(f"{server.console}/inbox")


@pytest.mark.slow
def test_a_key_is_shown_once_works_and_is_revoked(guarded: Guarded, page: Page) -> None:
    signed_in(guarded.running, page, guarded.admin)
    page.goto(f"{guarded.running.console}/operations/keys")
    page.get_by_label("Name").fill("robot")
    page.get_by_role("button", name="Create key").click()
    token = page.locator(".new-key code").inner_text()
    asked = {"headers": {"X-API-Key": token}}
    assert httpx2.get(f"{guarded.running.url}/admin/whoami", **asked).json()["scopes"] == ["read", "send"]
    page.goto(f"{guarded.running.console}/operations/keys")
    assert token not in page.content()
    page.get_by_role("button", name="Revoke robot").click()
    expect(page.locator(".letter", has_text="robot")).to_have_count(0)
    assert httpx2.get(f"{guarded.running.url}/admin/whoami", **asked).status_code == 401


@pytest.mark.slow
def test_secrets_are_not_among_the_settings(guarded: Guarded, page: Page) -> None:
    signed_in(guarded.running, page, guarded.admin)
    page.goto(f"{guarded.running.console}/operations/settings")
    expect(page.get_by_role("row", name="runtime_keys")).to_contain_text("*****")
    assert SECRET not in page.content()


@pytest.mark.slow
def test_whoever_does_not_look_after_the_server_finds_no_way_there(guarded: Guarded, page: Page) -> None:
    own = {"X-API-Key": guarded.admin}
    made = httpx2.post(f"{guarded.running.url}/admin/keys", json={"name": "plain"}, headers=own).json()
    signed_in(guarded.running, page, made["token"])
    expect(page.get_by_role("link", name="Operations")).to_have_count(0)
    expect(page.get_by_role("link", name="Topology")).to_have_count(0)
    for path in ("/operations", "/operations/keys", "/operations/settings", "/operations/dead", "/topology"):
        reply = page.goto(f"{guarded.running.console}{path}")
        assert reply is not None
        assert reply.status == 403
