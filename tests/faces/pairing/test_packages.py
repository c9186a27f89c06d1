"""The runtime's package, as the platform hands it out: to everyone, the same every time, and as pip reads it."""

import base64
import csv
import hashlib
import importlib.metadata
import io
import zipfile
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import httpx2
import pytest

import parley_edge
from parley.faces.pairing import packages
from parley.faces.pairing.packages import AT, INDEX
from parley.testing.servers import Server, serving
from tests.faces.pairing.conftest import edge
from tests.faces.pairing.runtime import error_of

FILE = f"parley_edge-{parley_edge.__version__}-py3-none-any.whl"
JSON = "application/vnd.pypi.simple.v1+json"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", [edge()]) as opened:
        yield opened


async def pairing(http: httpx2.AsyncClient, server: Server) -> dict[str, str]:
    return (await http.post(f"{server.url}/admin/agents/far/pairing", json={})).json()


async def test_the_pairing_names_the_wheel_with_its_hash(server: Server, http: httpx2.AsyncClient) -> None:
    told = await pairing(http, server)
    url, fragment = urldefrag(told["package_url"])
    assert url == f"{server.url}{AT}/{FILE}"
    assert f'    pip install "{told["package_url"]}"\n' in told["instruction"]
    reply = await http.get(url)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/octet-stream")
    assert fragment == f"sha256={hashlib.sha256(reply.content).hexdigest()}"


async def test_the_wheel_holds_the_package_and_says_so(server: Server, http: httpx2.AsyncClient) -> None:
    content = (await http.get(f"{server.url}{AT}/{FILE}")).content
    about = f"parley_edge-{parley_edge.__version__}.dist-info"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    folder = Path(parley_edge.__file__).parent
    paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    ours = {f"parley_edge/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths}
    assert files == {**ours, **{name: one for name, one in files.items() if name.startswith(about)}}
    recorded = {
        name: (digest, size) for name, digest, size in csv.reader(io.StringIO(files[f"{about}/RECORD"].decode()))
    }
    assert set(recorded) == set(files)
    for name, (digest, size) in recorded.items():
        if name != f"{about}/RECORD":
            found = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(files[name]))
    assert b"a2a-runtime = parley_edge.cli:main" in files[f"{about}/entry_points.txt"]
    assert b"Requires-Dist: h11" in files[f"{about}/METADATA"]


def test_every_process_makes_the_same_wheel() -> None:
    assert packages.built() == packages.built() != None  # noqa: E711


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name == "href" and value]


async def test_pip_finds_it_in_the_index(server: Server, http: httpx2.AsyncClient) -> None:
    links: list[str] = []
    at = server.url + INDEX
    for expected in (f"{at}parley-edge/", (await pairing(http, server))["package_url"]):
        page = await http.get(at)
        assert page.headers["content-type"].startswith("text/html")
        parser = Links()
        parser.feed(page.text)
        links = [urljoin(at, link) for link in parser.found]
        assert links == [expected]
        at = links[0]


async def test_the_index_is_json_for_those_who_ask_for_it(server: Server, http: httpx2.AsyncClient) -> None:
    headers = {"Accept": f"{JSON}, text/html;q=0.1"}
    listed = await http.get(server.url + INDEX, headers=headers)
    assert (listed.headers["content-type"], listed.json()["projects"]) == (JSON, [{"name": "parley-edge"}])
    at = f"{server.url}{INDEX}parley-edge/"
    (file,) = (await http.get(at, headers=headers)).json()["files"]
    url, fragment = urldefrag((await pairing(http, server))["package_url"])
    assert (urljoin(at, file["url"]), f"sha256={file['hashes']['sha256']}") == (url, fragment)
    assert (file["filename"], file["requires-python"]) == (FILE, ">=3.11")


async def test_another_file_is_not_there(server: Server, http: httpx2.AsyncClient) -> None:
    reply = await http.get(f"{server.url}{AT}/parley_edge-0.0.0-py3-none-any.whl")
    assert error_of(reply) == (404, "not_found")
    assert FILE in reply.json()["error"]["message"]


async def test_where_the_package_is_not_installed_the_index_of_pip_is_named(
    tmp_path: Path, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    async with serving(tmp_path / "data", [edge()]) as server:
        told = await pairing(http, server)
        assert told["package_url"] is None
        assert "    pip install parley-edge\n" in told["instruction"]
        for path in (f"{AT}/{FILE}", f"{INDEX}parley-edge/"):
            assert error_of(await http.get(server.url + path)) == (404, "runtime_package_missing")
        assert "href" not in (await http.get(server.url + INDEX)).text
