"""The two kits, how each is run, and how what they print is read."""

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from msgspec import Struct

from dev.conformance.report import Row

BUILD = Path(__file__).parents[2] / "build"
MAX_S = 900
START_S = 60.0

_LISTENS = re.compile(r"listens on (\S+)")


class Configuration(Struct, frozen=True):
    name: str
    arguments: tuple[str, ...] = ()
    """For `parley conformance`."""
    category: str = ""
    """For the kit of 0.3, which is run by parts."""
    only: str = ""
    """Run only the tests of this name."""


class Kit(Struct, frozen=True):
    name: str
    configurations: tuple[Configuration, ...]
    run: Callable[[Configuration], list[Row]]


def found_at(directory: Path) -> Kit:
    if (directory / "scenarios").is_dir():
        configurations = (
            Configuration("everything on"),
            Configuration("cards of 1.0 alone", ("--cards", "1.0")),
            Configuration("without push", ("--no-push",)),
            Configuration("without streaming", ("--no-streaming",)),
            Configuration("without extended card", ("--no-extended-card",)),
            Configuration("required extension", ("--required-extension",), only="required_extension"),
        )
        return Kit("1.0-dev", configurations, lambda one: _run_1_0(directory, one))
    if (directory / "run_tck.py").is_file():
        categories = ("mandatory", "capabilities", "quality", "features")
        configurations = tuple(Configuration(f"everything on, {one}", (), one) for one in categories)
        return Kit("0.3.x", configurations, lambda one: _run_0_3(directory, one))
    sys.exit(f"There is no conformance kit in {directory}: it has neither scenarios nor run_tck.py.")


@contextmanager
def serving(arguments: tuple[str, ...]) -> Iterator[str]:
    """A server of our own on a free port, for one configuration."""
    with tempfile.TemporaryDirectory() as place, open(Path(place) / "log", "w+") as log:
        command = [sys.executable, "-m", "parley", "conformance", "--port", "0", "--data-dir", f"{place}/data"]
        server = subprocess.Popen([*command, *arguments], stderr=log, cwd=place)
        try:
            yield _announced(server, Path(place) / "log")
        finally:
            server.terminate()
            server.wait(START_S)


def _announced(server: "subprocess.Popen[bytes]", log: Path) -> str:
    begun = time.monotonic()
    while time.monotonic() - begun < START_S and server.poll() is None:
        if match := _LISTENS.search(log.read_text()):
            return match[1]
        time.sleep(0.05)
    sys.exit(f"The server did not start:\n{log.read_text()}")


def _run_1_0(directory: Path, configuration: Configuration) -> list[Row]:
    with serving(configuration.arguments) as url:
        _kit(
            directory, "--sut-host", url, "--", "--webhook-host", "127.0.0.1",
            *(("-k", configuration.only) if configuration.only else ()),
        )  # fmt: skip
    cases = ElementTree.parse(directory / "reports" / "junitreport.xml").iter("testcase")
    results: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}"
        results[_binding(case.get("classname", ""), case.get("name", ""))][_result(case)].append(name)
    return [_row("1.0-dev", configuration, binding, found) for binding, found in results.items()]


_MARKS = {
    "JSON-RPC": ("jsonrpc", "JsonRpc"),
    "HTTP+JSON": ("http_json", "_rest", "TestRest"),
    "gRPC": ("grpc", "Grpc"),
}


def _binding(classname: str, name: str) -> str:
    last = classname.rpartition(".")[2]
    for binding, marks in _MARKS.items():
        if any(mark in name or mark in last or f".{mark}." in classname for mark in marks):
            return binding
    return "card" if "agent_card" in classname else "other"


def _result(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"


def _run_0_3(directory: Path, configuration: Configuration) -> list[Row]:
    with serving(configuration.arguments) as url:
        printed = _kit(
            directory, "--sut-url", f"{url}/agents/conformance", "--category", configuration.category,
            "--transports", "jsonrpc",
        )  # fmt: skip
    counts = {result: int(number) for number, result in _SUMMARY.findall(printed.splitlines()[-1])} or {
        result: int(number) for number, result in _SUMMARY.findall(printed)
    }
    found: dict[str, list[str]] = {"failed": _FAILED.findall(printed)}
    return [
        Row(
            "0.3.x", configuration.name, "JSON-RPC", counts.get("passed", 0) + counts.get("xpassed", 0),
            counts.get("failed", 0) + counts.get("error", 0), counts.get("skipped", 0), counts.get("xfailed", 0),
            found["failed"],
        )
    ]  # fmt: skip


_SUMMARY = re.compile(r"(\d+) (passed|failed|skipped|xfailed|xpassed|error)")
_FAILED = re.compile(r"^FAILED \S+?([\w]+\.py::\S+)", re.MULTILINE)


def _row(kit: str, configuration: Configuration, binding: str, found: dict[str, list[str]]) -> Row:
    counted = [len(found[result]) for result in ("passed", "failed", "skipped", "xfailed")]
    return Row(kit, configuration.name, binding, *counted, found["failed"] + found["xfailed"])


def _kit(directory: Path, *arguments: str) -> str:
    """Run the kit in its own venv; return its output. It exits with an error if a test failed."""
    environment = {**os.environ, "TCK_STREAMING_TIMEOUT": "5.0"}
    command = [str(_python(directory)), "run_tck.py", *arguments]
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=MAX_S, check=False
    )
    if " passed" not in done.stdout:
        sys.exit(f"The kit did not run:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def _python(directory: Path) -> Path:
    place = directory / ".venv"
    if not place.is_dir():
        place = BUILD / f"kit-{directory.name}"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-e", str(directory), "pytest-html"], check=True)
    return python
