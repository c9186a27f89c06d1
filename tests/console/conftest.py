"""One server with demo data and one browser for all of it. Tests here are synchronous: the browser has its own loop."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from msgspec import Struct
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.console.fitness import serious

HERE = Path(__file__).parent
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
AGENTS = [str(HERE / "agents.py"), str(HERE / "accounts.yaml")]
BIN = Path(sys.executable).parent
_LISTENS = re.compile(r"listens on (\S+)")
_skipped: list[str] = []
VIEW = os.environ.get("CONSOLE_VIEW", "")
"""A width and a colour scheme, such as `390-dark`: every test drives the console so, and axe looks at where it ends."""
expect.set_options(timeout=15_000)
"""A machine that is busy with other things is slow, not wrong."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever is looked at in a browser is slow: it starts one, and a server beside it."""
    for item in items:
        if HERE not in item.path.parents or "browser" not in getattr(item, "fixturenames", ()):
            continue
        item.add_marker(pytest.mark.slow)
        if BROWSER is None:
            _skipped.append(item.nodeid)
            item.add_marker(pytest.mark.skip(reason="no browser"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped:
        terminalreporter.write_line(
            f"{len(_skipped)} tests of the console skipped: no Chromium; make browser installs it"
        )


class Running(Struct):
    """`parley serve` in a process of its own."""

    process: "subprocess.Popen[str]"
    url: str
    data: Path

    @property
    def console(self) -> str:
        return f"{self.url}/console"

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(20)
        if self.process.stderr is not None:
            self.process.stderr.close()


def start(data: Path, port: int = 0, **env: str) -> Running:
    shutil.copytree(HERE / "defined", data.parent / "defined", dirs_exist_ok=True)
    more = [str(path) for path in sorted((data.parent / "defined").iterdir())]
    log = data.parent / f"{data.name}.log"
    with log.open("a") as out:
        before = log.stat().st_size
        process = subprocess.Popen(
            [sys.executable, "-m", "parley", "serve", *AGENTS, *more, "--data-dir", str(data), "--port", str(port)],
            stderr=out, cwd=data.parent, text=True,
            env={**os.environ, "PARLEY_GRPC_PORT": "-1", "PATH": f"{BIN}:{os.environ['PATH']}", **env},
        )  # fmt: skip
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if found := _LISTENS.search(log.read_text()[before:]):
            return Running(process, found[1], data)
        time.sleep(0.05)
    raise RuntimeError(f"The server did not start:\n{log.read_text()}")


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = start(tmp_path_factory.mktemp("console") / "data")
    yield running
    running.stop()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@contextmanager
def launched() -> Iterator[Browser]:
    """Launch Chromium. While it is open, no asynchronous test can run in this process."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


def visitor_context(browser: Browser) -> BrowserContext:
    width, _, scheme = (VIEW or "1280-light").partition("-")
    return browser.new_context(
        viewport={"width": int(width), "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )


def open_menu(page: Page) -> None:
    """Show the sections, which a narrow window hides behind a button."""
    if (menu := page.get_by_role("button", name="Menu")).is_visible():
        menu.click()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh browser profile; the test fails when a script does, or when the policy refuses something."""
    context = visitor_context(browser)
    page = context.new_page()
    page.set_default_timeout(10_000)
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if "Content Security Policy" in said.text else None)
    yield page
    findings = serious(page) if VIEW and page.url.startswith("http") else []
    context.close()
    assert troubles == []
    assert findings == []


def send(server: Running, agent: str, text: str, key: str | None = None) -> str:
    """Ask an agent over A2A, and wait until it has answered or asks; the id of the run."""
    asked = {"message": {"messageId": f"m{time.monotonic_ns()}", "role": "ROLE_USER", "parts": [{"text": text}]}}
    headers = {"A2A-Version": "1.0", **({"X-API-Key": key} if key else {})}
    reply = httpx2.post(f"{server.url}/agents/{agent}/message:send", json=asked, headers=headers, timeout=30)
    reply.raise_for_status()
    return str(reply.json()["task"]["id"])


class Visitor:
    """A browser without a window: keeps its cookie, and sends forms with their token."""

    def __init__(self, server: Running, key: str | None = None) -> None:
        self.http = httpx2.Client(base_url=server.console, timeout=30)
        self.csrf = ""
        self.get("/login")
        if key:
            assert self.post("/login", {"credential": key}).status_code == 303
            self.get("/inbox")

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()

    def get(self, path: str) -> httpx2.Response:
        reply = self.http.get(path, follow_redirects=True)
        if found := re.search(r'name="csrf" content="([0-9a-f]+)"', reply.text):
            self.csrf = found[1]
        return reply

    def post(self, path: str, form: dict[str, str]) -> httpx2.Response:
        return self.http.post(path, data={**form, "csrf": self.csrf})


@pytest.fixture(scope="package")
def made(server: Running) -> dict[str, str]:
    """The demo data."""
    from tests.console.places import demo

    return demo(server)
