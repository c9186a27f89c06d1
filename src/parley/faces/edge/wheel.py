"""The `parley-edge` wheel, put together from the package that is installed beside the server.

The same package gives the same bytes in every process: files in order, one date for all, nothing compressed. An
editable installation gives the same wheel as a regular one.
"""

import base64
import csv
import hashlib
import importlib.metadata
import importlib.util
import io
import zipfile
from pathlib import Path

from msgspec import Struct

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
    """None when the package is not installed beside the server."""
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
        f"{about}/METADATA": metadata.encode(), f"{about}/WHEEL": _WHEEL, f"{about}/entry_points.txt": scripts.encode(),
    }  # fmt: skip
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
