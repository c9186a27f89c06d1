"""Access to files below allowed roots only. The file opened is always the file checked, and no link is followed."""

import contextlib
import mimetypes
import os
import re
import secrets
import stat
from collections.abc import Generator, Sequence
from pathlib import Path, PurePath

import msgspec
from msgspec import Raw, Struct

from parley.errors import OutsideRoots
from parley.runs.rules.content import Part

INLINE_BYTES = 1_000_000
"""Maximum size of a file whose content is in the artifact itself."""
MAX_BYTES = 64 * 1024 * 1024
MAX_LISTED = 2_000
MAX_NAME = 255
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SUFFIXES = (
    ".c .cc .cfg .conf .cpp .cs .css .csv .env .go .h .hpp .html .ini .java .js .json .jsx .kt .log .lua .md .php .pl "
    ".py .rb .rs .rst .sh .sql .svg .swift .tex .toml .ts .tsx .txt .xml .yaml .yml"
)
_SOURCES = frozenset(_SUFFIXES.split())
_SOURCE_NAMES = frozenset(("Dockerfile", "LICENSE", "Makefile", "README"))

Marks = dict[str, tuple[int, int]]


class MadeFile(Struct, frozen=True):
    """A file that a task has created or changed. `content` is None if the file is too large to deliver."""

    name: str
    path: str
    """Path relative to its root; clients must not see where the root is."""
    media_type: str
    size: int
    content: bytes | None

    @property
    def part(self) -> Part:
        """The file as a part: text as text, anything else as bytes. Bytes over the limit are stored outside the log and
        fetched by URL."""
        if self.content is None:
            return Part(text=f"{self.path} has {self.size:,} bytes and is not included.", filename=self.name)
        text = _text(self.name, self.media_type, self.content)
        if text is not None:
            return Part(text=text, media_type=self.media_type, filename=self.name)
        return Part(raw=self.content, media_type=self.media_type, filename=self.name)

    @property
    def metadata(self) -> Raw:
        about: dict[str, object] = {"mimeType": self.media_type, "size": self.size, "path": self.path}
        if self.content is not None and self.size > INLINE_BYTES:
            # The file is fetched by URL, unchanged; only text has an encoding there.
            if _is_text(self.name, self.media_type) and _decoded(self.content) is not None:
                about["encoding"] = "utf-8"
        elif self.part.raw is not None:
            about["encoding"] = "base64"
        return Raw(msgspec.json.encode(about))


class Roots:
    """The folders that a task may use. Relative paths are searched in them, in order.

    `closed` is a folder that stays inaccessible even if a root contains it, except for roots inside it. So tasks whose
    folders lie side by side cannot reach each other through a root that contains all of them.
    """

    def __init__(self, roots: Sequence[Path], closed: Path | None = None) -> None:
        self._roots = tuple(root.resolve() for root in roots)
        self._closed = closed.resolve() if closed is not None else None

    @property
    def folders(self) -> tuple[Path, ...]:
        return self._roots

    def shown(self, path: str) -> str:
        """Return the path for clients: relative to its root. For a path outside all roots, only its name."""
        found = Path(path)
        root = next((one for one in self._roots if found.is_relative_to(one)), found.parent)
        return str(found.relative_to(root))

    def inside(self, path: str) -> Path:
        """Return the absolute path. Raises OutsideRoots if the path or the target of its links is not below a root."""
        found = [one for root in self._roots if (one := _below(root, path)) is not None]
        real = [one for one in found if self._is_inside(one.resolve())]
        if not real:
            raise OutsideRoots(f"{_short(path)} is outside the folders that this agent may use.")
        return next((one for one in real if one.exists()), real[0])

    def read(self, path: str) -> MadeFile:
        """Read a file. Raises OutsideRoots if the path is not a file below a root, or cannot be opened."""
        for root in self._roots:
            inner = _below(root, path)
            if inner is None or not self._is_inside(inner):
                continue
            with contextlib.suppress(FileNotFoundError):
                return _read(root, inner.relative_to(root))
        raise OutsideRoots(f"{_short(path)} is not a file in the folders that this agent may use.")

    def write(self, folder: Path, name: str, content: bytes) -> Path:
        """Write a file below a folder of a root, atomically. Missing folders are created."""
        path = self.inside(str(folder / name))
        root = next(one for one in self._roots if path.is_relative_to(one))
        relative = path.relative_to(root)
        with _folder(root, relative.parent, make=True) as inside:
            temporary = f".{secrets.token_hex(8)}.part"
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=inside)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, relative.name, src_dir_fd=inside, dst_dir_fd=inside)
        return path

    def _is_inside(self, path: Path) -> bool:
        return any(path.is_relative_to(root) and not self._is_closed(path, root) for root in self._roots)

    def _is_closed(self, path: Path, root: Path) -> bool:
        closed = self._closed
        return closed is not None and path.is_relative_to(closed) and not root.is_relative_to(closed)


def marks(folder: Path) -> Marks:
    """Return the marks of a folder's files, which show files that were created or changed later. Links are not
    followed."""
    found: Marks = {}
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            mark = mark_of(Path(where, name))
            if mark is not None and not name.startswith("."):
                found[str(Path(where, name))] = mark
            if len(found) >= MAX_LISTED:
                return found
    return found


def mark_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def without_folder(text: str, folder: Path) -> str:
    """Make paths below a folder relative to it in a text."""
    pattern = rf"(?<![\w./-]){re.escape(str(folder))}(?:(/)|(?![\w.-]))"
    return re.sub(pattern, lambda found: "" if found[1] else ".", text)


def media_type_of(name: str) -> str:
    guessed = mimetypes.guess_type(name)[0]
    if guessed is not None:
        return guessed
    return "text/plain" if _is_source(name) else "application/octet-stream"


def _below(root: Path, path: str) -> Path | None:
    """Return the path if it is below the root, judged by its text alone. `..` is always refused, even if it would stay
    below the root, because links change its meaning."""
    steps = path.split("/")
    if ".." in steps:
        why = "'..' may lead outside the folders that this agent may use; write the path without it"
        raise OutsideRoots(f"{why}: {_short(path)}")
    if not path or "\0" in path or any(len(os.fsencode(step)) > MAX_NAME for step in steps):
        return None
    found = Path(os.path.normpath(root / path))
    return found if found != root.parent and found.is_relative_to(root) else None


def _read(root: Path, relative: PurePath) -> MadeFile:
    with _folder(root, relative.parent) as inside, os.fdopen(_opened(relative, inside), "rb") as file:
        about = os.fstat(file.fileno())
        content = file.read(MAX_BYTES + 1) if about.st_size <= MAX_BYTES else None
    if content is not None and len(content) > MAX_BYTES:
        content = None
    size = about.st_size if content is None else len(content)
    return MadeFile(relative.name, str(relative), media_type_of(relative.name), size, content)


def _opened(relative: PurePath, inside: int) -> int:
    try:
        handle = os.open(relative.name, _FILE, dir_fd=inside)
    except FileNotFoundError:
        raise
    except OSError:
        raise OutsideRoots(f"{_short(str(relative))} is not a file that may be read.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OutsideRoots(f"{_short(str(relative))} is not a file.")
    return handle


@contextlib.contextmanager
def _folder(root: Path, relative: PurePath, *, make: bool = False) -> Generator[int, None, None]:
    """Open a folder below a root step by step, so that no step can be replaced by a link in the meantime."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in relative.parts:
            handle = _step(handle, step, make=make)
        yield handle
    finally:
        os.close(handle)


def _step(handle: int, name: str, *, make: bool) -> int:
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=handle)
        inner = os.open(name, _FOLDER, dir_fd=handle)
    except FileNotFoundError:
        raise
    except OSError:
        raise OutsideRoots(f"{_short(name)} is not a folder that may be used.") from None
    os.close(handle)
    return inner


def _is_text(name: str, media_type: str) -> bool:
    return media_type.startswith("text/") or media_type == "application/json" or _is_source(name)


def _decoded(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _text(name: str, media_type: str, content: bytes) -> str | None:
    text = _decoded(content) if _is_text(name, media_type) else None
    if text is None:
        return None
    # Events have a size limit too, and JSON needs several bytes for some characters.
    fits = len(content) <= INLINE_BYTES and len(msgspec.json.encode(text)) <= INLINE_BYTES
    return text if fits and "\0" not in text else None


def _is_source(name: str) -> bool:
    return PurePath(name).suffix.lower() in _SOURCES or name in _SOURCE_NAMES


def _short(path: str) -> str:
    shown = "".join(char if char.isprintable() else "�" for char in path[:200])
    return f"{shown}…" if len(path) > 200 else shown
