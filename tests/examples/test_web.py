"""The page of `examples/web`, built and used in a browser."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from examples.web.build import build

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
AGENT = Path(__file__).with_name("planner.py")
WAIT_MS = 20_000

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no browser; make browser installs one")]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[str]:
    with hosted(build()) as url:
        yield url


@contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """Serve the files of a page from a web server of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def parley(directory: Path, origin: str, port: int, agents: Path = AGENT) -> Iterator[str]:
    env = {
        **os.environ,
        "PARLEY_CORS_ORIGINS": f'["{origin}"]',
        "GATE": str(directory / "gate"),
        "PARLEY_GRPC_PORT": "-1",
    }
    command = [
        sys.executable,
        "-m",
        "parley",
        "serve",
        str(agents),
        "--port",
        str(port),
        "--data-dir",
        str(directory / "data"),
    ]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    while not (found := re.search(r"listens on (\S+)", said)):
        said = process.stderr.readline()
        assert said, "the server did not start"
    rest = threading.Thread(target=process.stderr.read)
    rest.start()
    try:
        yield found[1]
    finally:
        process.kill()
        process.wait()
        rest.join()
        process.stderr.close()


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        yield page
        browser.close()
        assert troubles == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_an_answer_is_followed_while_it_is_written_also_when_the_page_is_loaded_again_and_the_server_killed(
    tmp_path: Path, origin: str, page: Page
) -> None:
    port = free_port()
    expect.set_options(timeout=WAIT_MS)
    with parley(tmp_path, origin, port) as server:
        page.goto(f"{origin}/?server={server}")
        page.get_by_label("What to plan").fill("Two days in Lisbon")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#live")).to_have_text("First the trams, ")
        page.reload()
        expect(page.locator("#live")).to_have_text("First the trams, ")
    (tmp_path / "gate").touch()
    with parley(tmp_path, origin, port):
        expect(page.locator("#plan")).to_have_text("First the trams, then the light.")
        expect(page.locator("#version")).to_have_text("version 1")
        expect(page.locator("#messages li")).to_have_text(["Two days in Lisbon", re.compile("First the trams")])
        expect(page.locator("#live")).to_be_hidden()
        assert page.locator("#trouble").inner_text() == ""


def test_what_goes_wrong_is_shown(tmp_path: Path, origin: str, page: Page) -> None:
    with parley(tmp_path, origin, free_port()) as server:
        page.goto(f"{origin}/?server={server}&agent=nobody")
        expect(page.locator("#trouble")).to_contain_text("nobody")
