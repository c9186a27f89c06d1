"""Python files, imported so that they can be imported again."""

import importlib
import importlib.util
import itertools
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TypeVar

from msgspec import Struct

from parley.errors import Invalid

T = TypeVar("T")

_numbers = itertools.count(1)


class _Loaded(Struct, frozen=True):
    source: bytes
    module: ModuleType


class _Loader(SourceFileLoader):
    """Without compiled files: two edits within a second would look the same to them."""

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)


class Imports:
    """The Python files of one reading. Those that are as they were in the reading before are not run again."""

    def __init__(self, before: "Imports | None" = None, note: Callable[[Path], None] = lambda path: None) -> None:
        self._before = dict(before.loaded) if before else {}
        self._note = note
        self.loaded: dict[Path, _Loaded] = {}
        importlib.invalidate_caches()

    def file(self, path: Path) -> ModuleType:
        if not path.is_file():
            self._note(path)
            raise Invalid(f"the file {path} does not exist")
        return self._load(path, path.stem)

    def named(self, name: str) -> ModuleType:
        """A module by its dotted name. One that is not a Python file is imported once and for all."""
        spec = _find(name)
        if spec.origin is None or not spec.has_location or not spec.origin.endswith(".py"):
            return _running(Path(name), lambda: importlib.import_module(name))
        return self._load(Path(spec.origin), name, spec.submodule_search_locations)

    def forget(self, keep: "Imports | None" = None) -> None:
        """Let go of the modules that the other does not share."""
        kept = {id(one.module) for one in keep.loaded.values()} if keep else set[int]()
        for one in self.loaded.values():
            if id(one.module) not in kept:
                _drop(one.module.__name__)

    def keep_unread(self, before: "Imports") -> None:
        """Keep the modules of files that were not loaded this time: agents of a faulty definition still use them."""
        for path, loaded in before.loaded.items():
            self.loaded.setdefault(path, loaded)

    def _load(self, path: Path, name: str, packages: list[str] | None = None) -> ModuleType:
        self._note(path)
        key = path.resolve()
        if key not in self.loaded:
            source = _running(path, path.read_bytes)
            before = self._before.get(key)
            if before is not None and before.source == source:
                self.loaded[key] = before
            else:
                self.loaded[key] = _Loaded(source, _fresh(path, name, packages))
        return self.loaded[key].module


def _find(name: str) -> ModuleSpec:
    if "" not in sys.path:
        sys.path.insert(0, "")
    spec = _running(Path(name), lambda: importlib.util.find_spec(name))
    if spec is None:
        raise Invalid(f"there is no module {name}")
    return spec


def _fresh(path: Path, name: str, packages: list[str] | None) -> ModuleType:
    """A new module; its name differs only at the end, so that relative imports find their package."""
    unique = f"{name}__{next(_numbers)}"
    loader = _Loader(unique, str(path))
    spec = importlib.util.spec_from_file_location(unique, path, loader=loader, submodule_search_locations=packages)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    try:
        _running(path, lambda: loader.exec_module(module))
    except Invalid:
        _drop(unique)
        raise
    return module


def _running(path: Path, work: Callable[[], T]) -> T:
    """Somebody's own code may raise anything while it is imported, or try to leave."""
    try:
        return work()
    except SyntaxError as error:
        raise Invalid(f"{error.filename or path}:{error.lineno or 1}: {error.msg}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - all of it is the author's to mend
        line = _line_in(path, error)
        where = f"{path}:{line}" if line else str(path)
        raise Invalid(f"{where}: {type(error).__name__}: {error}") from None


def _line_in(path: Path, error: BaseException) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)


def _drop(name: str) -> None:
    for one in [known for known in sys.modules if known == name or known.startswith(name + ".")]:
        del sys.modules[one]
