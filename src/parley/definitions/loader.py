"""Load all definitions that a server serves."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from msgspec import Struct

from parley.definitions.agents import KINDS, build, drafted
from parley.definitions.files import DefinitionFile, fault, parse_toml, parse_yaml, read_text, together
from parley.definitions.frameworks import adapted
from parley.drivers.function import FunctionDriver
from parley.drivers.kind import Imports, Kinds, Site
from parley.errors import ConfigurationError, Invalid
from parley.execution.driver import Driver
from parley.extras import ExtraMissing
from parley.runs.rules.agents import Agent, check_agent

FOLDER = "agents"
YAML = (".yaml", ".yml")
NO_AGENT = (
    "contains no agent: no @agent function, no driver, and no agent of a framework"
    " (a compiled LangGraph graph, an agent of pydantic-ai or the OpenAI Agents SDK)"
)

Mark = tuple[int, ...] | tuple[str, ...] | None
"""Cheap fingerprint of a file or folder, used to detect changes; None if it does not exist."""


class Sources(Struct, frozen=True):
    """Files, modules and folders that definitions are loaded from."""

    names: tuple[str, ...] = ()
    """Python files, modules, YAML files, and folders with YAML files."""
    tables: Path | None = None
    """A TOML file with `[[agent]]` tables."""
    folder: Path | None = None
    """A folder with YAML files. It may be missing, and may be created later."""


class Defined(Struct, frozen=True):
    """An agent, and the place of its definition."""

    driver: Driver
    kind: str
    file: str
    line: int


def sources(names: Sequence[str], tables: str) -> Sources:
    """Return the sources: the given names, or else the folder `agents`; and the tables of the settings file, if any."""
    return Sources(tuple(names), Path(tables), None if names else Path(FOLDER))


def mark(path: Path) -> Mark:
    try:
        if path.is_dir():
            return tuple(one.name for one in definition_files(path))
        found = path.stat()
    except (OSError, ValueError):
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def definition_files(folder: Path) -> list[Path]:
    """Return the YAML files of a folder, without hidden files: editors create those."""
    return sorted(one for one in folder.iterdir() if one.suffix in YAML and not one.name.startswith("."))


def is_driver(value: object) -> TypeGuard[Driver]:
    """Tell whether a value of a module is a driver. Its class is checked first, because other objects may create any
    attribute on access."""
    kind = type(value)
    return hasattr(kind, "run") and hasattr(kind, "agent") and isinstance(getattr(value, "agent", None), Agent)


def _drivers_in(module: ModuleType, file: str) -> list[Driver]:
    """Return the drivers of a module. A module without drivers may have agents of a framework."""
    found = [value for value in vars(module).values() if is_driver(value)]
    if found:
        return found
    public = [(variable, value) for variable, value in vars(module).items() if not variable.startswith("_")]
    # An agent with two names is served under the first.
    agents = {id(value): (variable, value) for variable, value in reversed(public)}
    adapters = (adapted(value, variable, file) for variable, value in reversed(agents.values()))
    return [one for one in adapters if one is not None]


def _line(fault: ConfigurationError) -> int:
    line = fault.details["line"]
    return line if isinstance(line, int) else 0


class LoadedDefinitions:
    """The result of loading: the agents, all errors, and marks of all files and folders that were read."""

    def __init__(self, where: Sources, before: "LoadedDefinitions | None" = None, kinds: Kinds = KINDS) -> None:
        self._kinds = kinds
        self._places: dict[str, Defined] = {}
        self.faults: list[ConfigurationError] = []
        self.marks: dict[Path, Mark] = {}
        self.imports = Imports(before.imports if before else None, self._note)
        for name in where.names:
            self._name(name)
        if where.folder is not None:
            self._note(where.folder)
            if where.folder.is_dir():
                self._folder(where.folder)
        if where.tables is not None:
            self._toml(where.tables)
        if before is not None and self.faults:
            self.imports.keep_unread(before.imports)

    @property
    def defined(self) -> list[Defined]:
        return list(self._places.values())

    @property
    def drivers(self) -> list[Driver]:
        return [one.driver for one in self.defined]

    @property
    def stale(self) -> bool:
        """True if any file or folder has changed since it was read."""
        return any(mark(path) != before for path, before in self.marks.items())

    def check(self) -> None:
        if self.faults:
            raise together(self.faults)

    def is_faulty(self, file: str) -> bool:
        """Tell whether a file, or the folder or code that it needs, has an error."""
        folders = {str(folder) for folder in Path(file).parents}
        return any(fault.details.get("file") == file or fault.details.get("file") in folders for fault in self.faults)

    def _note(self, path: Path) -> None:
        self.marks.setdefault(path, mark(path))

    def _name(self, name: str) -> None:
        path = Path(name)
        if path.is_dir():
            self._folder(path)
        elif path.suffix in YAML:
            self._yaml(path)
        else:
            self._python(name)

    def _folder(self, path: Path) -> None:
        self._note(path)
        try:
            files = definition_files(path)
        except OSError as error:
            self.faults.append(fault(str(path), f"cannot be read: {error.strerror}"))
            return
        for one in files:
            self._yaml(one)

    def _yaml(self, path: Path) -> None:
        self._note(path)
        try:
            document, faults = parse_yaml(str(path), read_text(path))
        except ConfigurationError as error:
            self.faults.append(error)
            return
        self._define(document, path.stem, path.parent, faults)

    def _toml(self, path: Path) -> None:
        self._note(path)
        if not path.is_file():
            return
        try:
            documents = parse_toml(str(path), read_text(path))
        except ConfigurationError as error:
            self.faults.append(error)
            return
        for document in documents:
            self._define(document, None, path.parent, [])

    def _define(
        self, document: DefinitionFile, slug: str | None, folder: Path, faults: list[ConfigurationError]
    ) -> None:
        """Add the agent of a definition. Continues after errors so that all are reported; an agent with errors is not
        served."""
        draft = drafted(document, self._kinds, slug, faults)
        if draft is not None:
            try:
                driver = build(draft, self._kinds[draft.kind], Site(folder, self.imports))
                if not faults:
                    self._add(Defined(driver, draft.kind, document.file, document.line(("slug",))))
            except ConfigurationError as error:
                faults.append(error)
        self.faults.extend(sorted(faults, key=_line))

    def _python(self, name: str) -> None:
        try:
            module = self.imports.file(Path(name)) if name.endswith(".py") else self.imports.named(name)
        except Invalid as error:
            self.faults.append(fault(name, error.message))
            return
        try:
            found = _drivers_in(module, Path(name).stem)
        except ExtraMissing as error:
            self.faults.append(fault(name, error.message))
            return
        if not found:
            self.faults.append(fault(name, NO_AGENT))
        for driver in {id(one): one for one in found}.values():
            function = driver.function if isinstance(driver, FunctionDriver) else None
            line = getattr(getattr(function, "__code__", None), "co_firstlineno", 1)
            self._add(Defined(driver, "driver" if function is None else "function", name, line))

    def _add(self, new: Defined) -> None:
        slug = new.driver.agent.slug
        try:
            check_agent(new.driver.agent)
        except Invalid as error:
            self.faults.append(fault(new.file, error.message, new.line, str(error.details.get("field"))))
            return
        known = self._places.setdefault(slug, new)
        if known is not new:
            message = f"{slug} is already defined in {known.file}:{known.line}"
            self.faults.append(fault(new.file, message, new.line, "slug"))
