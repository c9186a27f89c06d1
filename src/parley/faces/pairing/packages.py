"""Download of `parley-edge` for computers of paired runtimes: the wheel, and a pip index (PEP 503, PEP 691)."""

import base64
import csv
import hashlib
import importlib.metadata
import importlib.util
import io
import zipfile
from html import escape
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from parley.errors import NotFound, ParleyError, RuntimePackageMissing
from parley.faces.pairing.face import PairedFace
from parley.http.face import NO_STORE, Request, Response, operation
from parley.http.requests import Headers

# The `parley-edge` wheel is built from the package that is installed in the server's environment.
#
# The same package gives the same bytes in every process: sorted files, one date for all, no compression. An editable
# installation gives the same wheel as a regular one.

NAME, PACKAGE = "parley-edge", "parley_edge"
_OLDEST = (1980, 1, 1, 0, 0, 0)
_WHEEL = b"Wheel-Version: 1.0\nGenerator: parley\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Wheel(Struct, frozen=True):
    version: str
    requires_python: str
    content: bytes

    @property
    def filename(self) -> str:
        return f"{PACKAGE}-{self.version}-py3-none-any.whl"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def built() -> Wheel | None:
    """Build the wheel; return None when the package is not installed in the server's environment."""
    spec = importlib.util.find_spec(PACKAGE)
    try:
        known = importlib.metadata.distribution(NAME)
    except importlib.metadata.PackageNotFoundError:
        return None
    metadata, scripts = known.read_text("METADATA"), known.read_text("entry_points.txt")
    if spec is None or spec.origin is None or metadata is None or scripts is None:
        return None
    about = f"{PACKAGE}-{known.version}.dist-info"
    files = _package(Path(spec.origin).parent) | {
        f"{about}/METADATA": metadata.encode(),
        f"{about}/WHEEL": _WHEEL,
        f"{about}/entry_points.txt": scripts.encode(),
    }
    files[f"{about}/RECORD"] = _record(files, f"{about}/RECORD")
    return Wheel(known.version, known.metadata["Requires-Python"], _archive(files))


def _package(folder: Path) -> dict[str, bytes]:
    paths = sorted([*folder.rglob("*.py"), *folder.rglob("py.typed")])
    return {f"{PACKAGE}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths}


def _record(files: dict[str, bytes], itself: str) -> bytes:
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.writerow((name, f"sha256={digest}", len(content)))
    lines.writerow((itself, "", ""))
    return out.getvalue().encode()


def _archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _OLDEST)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, content)
    return out.getvalue()


AT = "/agent-runtimes/packages"
INDEX = f"{AT}/simple/"
_JSON = "application/vnd.pypi.simple.v1+json"
_FRESH: Headers = [(b"cache-control", b"public, max-age=300"), (b"vary", b"accept")]


class Packages(PairedFace[None]):
    """Serves the package without credentials, because pip has none: the package is public and contains nothing about
    this server."""

    headers: ClassVar[Headers] = []

    def __init__(self, wheel: Wheel | None, base_url: str) -> None:
        self._wheel = wheel
        self._base_url = base_url

    @property
    def address(self) -> str | None:
        """URL of the wheel, with its hash; None without a wheel."""
        wheel = self._wheel
        return None if wheel is None else f"{self._base_url}{AT}/{wheel.filename}#sha256={wheel.sha256}"

    @property
    def install(self) -> str:
        """Command that installs the runtime."""
        return f"pip install {NAME}" if self.address is None else f'pip install "{self.address}"'

    @operation("GET", INDEX, open=True)
    async def projects(self, request: Request[None]) -> Response:
        named = [NAME] if self._wheel else []
        links = "".join(f'<a href="{name}/">{name}</a>\n' for name in named)
        return _index(request, {"projects": [{"name": name} for name in named]}, links)

    @operation("GET", f"{INDEX}{NAME}/", open=True)
    async def files(self, request: Request[None]) -> Response:
        wheel = self._built()
        url = f"../../{wheel.filename}"
        file = {
            "filename": wheel.filename,
            "url": url,
            "hashes": {"sha256": wheel.sha256},
            "requires-python": wheel.requires_python,
            "size": len(wheel.content),
        }
        link = (
            f'<a href="{url}#sha256={wheel.sha256}" data-requires-python="{escape(wheel.requires_python)}">'
            f"{wheel.filename}</a>\n"
        )
        return _index(request, {"name": NAME, "versions": [wheel.version], "files": [file]}, link)

    @operation("GET", f"{AT}/{{filename}}", open=True)
    async def download(self, request: Request[None]) -> Response:
        wheel, asked = self._built(), request.path["filename"]
        if asked != wheel.filename:
            raise NotFound(f"There is no file {asked!r}; the available file is {wheel.filename}.")
        return Response(200, wheel.content, _FRESH, b"application/octet-stream")

    def refuse(self, request: Request[None], error: ParleyError) -> Response:
        refused = super().refuse(request, error)
        return replace(refused, headers=[*NO_STORE, *refused.headers])

    def _built(self) -> Wheel:
        if self._wheel is None:
            raise RuntimePackageMissing(
                f"{NAME} is not installed in this server's environment, so it cannot be downloaded here. "
                f"Install it from the package index, or ask the operator to install it on the server."
            )
        return self._wheel


def _index(request: Request[None], shown: dict[str, object], links: str) -> Response:
    """Return the index as JSON if the client accepts it, else as HTML."""
    if _JSON in (request.header(b"accept") or ""):
        return Response(200, {"meta": {"api-version": "1.1"}, **shown}, _FRESH, _JSON.encode())
    page = f"<!DOCTYPE html>\n<html><head><title>{NAME}</title></head><body>\n{links}</body></html>\n"
    return Response(200, page.encode(), _FRESH, b"text/html; charset=utf-8")
