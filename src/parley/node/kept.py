"""What a node keeps of itself across restarts: its id and its token, in a file that nobody else may read."""

import os
import tempfile
import uuid
from pathlib import Path

import msgspec
from msgspec import Struct

from parley.errors import ConfigurationError

FILE = "node.json"


class Self(Struct, frozen=True):
    id: str
    token: str | None = None


class Kept:
    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE

    def read(self, id_: str | None) -> Self:
        """As it was; a node that is started under another id is another one, and one without an id makes one up."""
        found = self._stored()
        if found is not None and id_ in (None, found.id):
            return found
        new = Self(id_ or str(uuid.uuid4()))
        self.write(new)
        return new

    def write(self, known: Self) -> None:
        """All of it or nothing: a token is shown once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{FILE}.")  # of mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(known))
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _stored(self) -> Self | None:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Self)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigurationError(f"{self.path} cannot be read: {type(error).__name__}.") from None
