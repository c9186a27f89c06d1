"""Kinds of drivers: build a driver from a definition, and import the definition's Python files."""

import difflib
import importlib
import importlib.util
import itertools
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Generic, TypeVar

from msgspec import Struct

from parley.drivers.remote import OutboundConnections
from parley.errors import Invalid
from parley.execution.driver import Driver
from parley.runs.rules.agents import Agent, plain_name

# Imports of Python files that can be reloaded.

T = TypeVar("T")

_numbers = itertools.count(1)


class _Loaded(Struct, frozen=True):
    source: bytes
    module: ModuleType


class _Loader(SourceFileLoader):
    """Ignores compiled files (.pyc): they cannot tell apart two edits within the same second."""

    def get_code(self, fullname: str) -> CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)


# Why: docs/decisions/definitions.md#load-a-changed-python-file-as-a-new-module
class Imports:
    """Python files that one load of the definitions imports. Files that did not change since the load before are not
    executed again."""

    def __init__(self, before: "Imports | None" = None, note: Callable[[Path], None] = lambda path: None) -> None:
        self._before = dict(before.loaded) if before else {}
        self._note = note
        self.loaded: dict[Path, _Loaded] = {}
        importlib.invalidate_caches()

    def file(self, path: Path) -> ModuleType:
        if not path.is_file():
            self._note(path)
            raise Invalid(f"the file {path} does not exist; check the path")
        return self._load(path, path.stem)

    def named(self, name: str) -> ModuleType:
        """Import a module by its dotted name. A module that is not a Python file is imported only once and is never
        reloaded."""
        spec = _find(name)
        if spec.origin is None or not spec.has_location or not spec.origin.endswith(".py"):
            return _running(Path(name), lambda: importlib.import_module(name))
        return self._load(Path(spec.origin), name, spec.submodule_search_locations)

    def forget(self, keep: "Imports | None" = None) -> None:
        """Remove the modules from `sys.modules`, except those that `keep` also uses."""
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
        raise Invalid(f"the module {name} cannot be found; check its name")
    return spec


def _fresh(path: Path, name: str, packages: list[str] | None) -> ModuleType:
    """Import a file as a new module. Its unique name differs only at the end, so that relative imports still find their
    package."""
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
    """Run `work` and raise Invalid for any error: user code may raise anything during import, or exit."""
    try:
        return work()
    except SyntaxError as error:
        raise Invalid(f"{error.filename or path}:{error.lineno or 1}: {error.msg}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - every error is for the author to fix
        line = _line_in(path, error)
        where = f"{path}:{line}" if line else str(path)
        raise Invalid(f"{where}: {type(error).__name__}: {error}{_beside(path, error)}") from None


def _beside(path: Path, error: BaseException) -> str:
    """Say how a file can import the module that lies beside it; empty if there is none."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not name or not any((path.parent / one).exists() for one in (f"{name}.py", name)):
        return ""
    return (
        f"; it lies beside this file, but its folder is not searched for modules: start with PYTHONPATH={path.parent}, "
        "or name the code as package.module:name"
    )


def _line_in(path: Path, error: BaseException) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)


def _drop(name: str) -> None:
    for one in [known for known in sys.modules if known == name or known.startswith(name + ".")]:
        del sys.modules[one]


Options = TypeVar("Options", bound=Struct)


class Site(Struct, frozen=True):
    """Location of a definition: its paths are relative to `folder`, and its Python code comes from `imports`."""

    folder: Path
    imports: Imports
    outside: OutboundConnections | None = None
    """Guarded connections, for agents whose address was not written by an operator of this machine."""


def named_object(call: str, site: Site, what: str, field: str = "call") -> object:
    """Return the object that a definition names: `path/to/file.py:name` or `package.module:name`. `what` is the word
    for it in errors."""
    where, _, name = call.rpartition(":")
    if not where or not name.isidentifier():
        raise Invalid("must be path/to/file.py:name or package.module:name", field=field)
    try:
        module = site.imports.file(site.folder / where) if where.endswith(".py") else site.imports.named(where)
    except Invalid as error:
        raise Invalid(error.message, field=field) from None
    found: object = getattr(module, name, None)
    if found is None:
        raise Invalid(f"{where} has no {what} {name}{did_you_mean(name, vars(module))}", field=field)
    return found


def did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def blank(slug: str, options: Struct, site: Site) -> Agent:
    """Return an agent of which only the slug is known."""
    return Agent(slug, plain_name(slug), f"The agent {slug}.")


@dataclass(frozen=True)
class DriverKind(Generic[Options]):
    """A kind of driver: the type of its options, and the function that builds a driver from them. Errors in an option
    are raised as Invalid with its `field`."""

    options: type[Options]
    build: Callable[[Agent, Options, Site], Driver]
    start: Callable[[str, Options, Site], Agent] = blank
    """Makes the agent to which the fields of the definition are then applied."""
    short: Callable[[str], dict[str, Any]] | None = None
    """Reads options that are written as one text, such as `command: wc -w`."""
    short_list: Callable[[list[str]], dict[str, Any]] | None = None
    """Reads options that are written as a list of texts, such as `workflow: [writer, editor]`."""


Kinds = Mapping[str, DriverKind[Any]]


# Programs and folders that definitions name. Their paths are relative to the definition.


def program_at(name: str, folder: Path, field: str = "run") -> str:
    """Return the absolute path of a program. A path is relative to `folder`. A bare name is searched as in an activated
    virtual environment: first next to the Python that runs the server, so that `python` has the server's packages,
    then on the PATH."""
    if "/" not in name:
        found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        if found is None:
            raise Invalid(
                f"the program {name} is not on the PATH; write ./{name} for a program next to this file", field=field
            )
        return str(Path(found).absolute())
    path = (folder / name).absolute()
    if not path.is_file():
        raise Invalid(f"the file {folder / name} does not exist; check the path", field=field)
    if not os.access(path, os.X_OK):
        raise Invalid(f"the file {folder / name} is not executable; run chmod +x on it", field=field)
    return str(path)


def folder_at(name: str, folder: Path, field: str = "cwd") -> str:
    try:
        path = (folder / name).absolute()
        if path.is_dir():
            return str(path)
    except ValueError:
        pass
    raise Invalid(f"the folder does not exist: {folder / name}", field=field)
