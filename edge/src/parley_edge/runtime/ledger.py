"""Task runs of a runtime on disk: after a crash, finished results are delivered and unfinished tasks handed back.

One file per task run, in one folder per profile. Claims are not flushed to disk: they matter only if the process
dies, and if the machine dies, only the time of a lease is lost. Results are flushed.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from parley_edge.json_values import Json
from parley_edge.runtime.answers import Completed, Failed, Result, Write
from parley_edge.storage import files


@dataclass(frozen=True, slots=True)
class Entry:
    run: str
    lease: str
    runtime_id: str
    result: Result | None = None
    """None while the task is in progress."""
    instance: str = ""
    """Instance that wrote the entry; empty if an earlier version wrote it."""


# Why: docs/decisions/edge.md#write-a-result-to-disk-before-sending-it
class Ledger:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> None:
        files.make_private_folder(self._folder.parent)
        files.make_private_folder(self._folder)
        files.sweep(self._folder)

    def keep(self, entry: Entry) -> None:
        """Store an entry. A result is on disk when this returns."""
        content = json.dumps(_written(entry), ensure_ascii=False).encode("utf-8", "replace")
        files.write(self._path(entry.run), content, durable=entry.result is not None)

    def forget(self, run: str) -> None:
        self._path(run).unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """The entries of an earlier process. A file that cannot be parsed is renamed, not deleted."""
        return [entry for path in self._files() if (entry := self._read(path)) is not None]

    def clear(self) -> None:
        """Delete all entries, when a profile is removed."""
        for path in self._files():
            path.unlink(missing_ok=True)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _files(self) -> Iterable[Path]:
        return sorted(self._folder.glob("*.json")) if self._folder.is_dir() else []

    def _read(self, path: Path) -> Entry | None:
        try:
            return _entry(json.loads(path.read_bytes()))
        except FileNotFoundError:
            # A running runtime has delivered it meanwhile.
            return None
        except (ValueError, KeyError, TypeError):
            path.rename(path.with_suffix(".broken"))
            return None

    def _path(self, run: str) -> Path:
        """The file of a task run, named by a hash: an id from the platform may not be a valid file name."""
        return self._folder / f"{hashlib.sha256(run.encode()).hexdigest()[:40]}.json"


def _written(entry: Entry) -> Json:
    said: Json = {"task_run_id": entry.run, "lease_id": entry.lease, "runtime_id": entry.runtime_id}
    said |= {"instance": entry.instance} if entry.instance else {}
    match entry.result:
        case Completed(output, writes):
            return said | {"complete": output, "artifacts": [write.request for write in writes]}
        case Failed(error, code):
            return said | {"fail": error, "code": code}
        case None:
            return said


def _entry(said: Json) -> Entry:
    run, lease, runtime_id = (str(said[name]) for name in ("task_run_id", "lease_id", "runtime_id"))
    return Entry(run, lease, runtime_id, _result(said), str(said.get("instance", "")))


def _result(said: Json) -> Result | None:
    if "complete" in said:
        writes = cast(list[Json], said["artifacts"])
        return Completed(cast(Json, said["complete"]), tuple(Write(dict(one)) for one in writes))
    return Failed(str(said["fail"]), str(said["code"])) if "fail" in said else None
